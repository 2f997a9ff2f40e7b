"""Reads planned and finished batches from Spark's checkpoint, wherever it is.

The batches are the entries of Spark's OffsetSeqLog and CommitLog.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.failures.system import not_now, passes
from oncebench.delivery.stores.choose import Place, store_of
from oncebench.delivery.stores.entries import exists


def offsets_of(offset: Any, topic: str) -> dict[str, int]:
    """Returns offsets by partition from Spark's form `{topic: {partition: offset}}`."""
    found = json.loads(offset) if isinstance(offset, str) else offset
    return dict((found or {}).get(topic, {}))


def last_offset(checkpoint: Place, entry: str, topic: str) -> dict[str, int]:
    """Returns the offsets in the last line of an entry of Spark's offset log, in either form.

    The second form (`spark.sql.streaming.offsetLog.formatVersion=2`, Spark 4.1) puts the source's id and a colon before
    the offset. A batch without an offset has `-` there.

    Raises:
        RefusedStart: the entry has a form that this version does not know.
    """
    return offsets_of(split_last(text_of(checkpoint, entry))[2] or None, topic)


def text_of(checkpoint: Place, entry: str) -> str:
    """Returns an entry of Spark's, such as `offsets/7`."""
    return store_of(checkpoint).read(entry).decode()


def split_last(text: str) -> tuple[str, str, str]:
    """Splits an entry into its earlier lines, the source's id with its colon, and the offset.

    The earlier lines are those before the last one.

    Raises:
        ValueError: it is empty.
        RefusedStart: the entry has a form that this version does not know.
    """
    if not text.strip():
        raise ValueError("it is empty")
    head, newline, last = text.rstrip("\n").rpartition("\n")
    version = text.split("\n", 1)[0].strip()
    if version == "v2":
        source, colon, offset = last.partition(":")
        return head + newline, source + colon, "" if offset == "-" else offset
    if version.startswith("v") and version not in ("v1", "v0"):
        raise RefusedStart(
            f"Spark's offset log has the form {version}, and this job reads v1 and v2. Nothing was read or written. "
            "Start the job with the version of Spark that made the checkpoint, or with a newer oncebench."
        )
    return head + newline, "", "" if last == "-" else last


def committed_position(checkpoint: Place, topic: str) -> tuple[int, dict[str, int]] | None:
    """Returns (batch, end offsets) of the newest batch in the commit log; None if it is empty.

    Raises:
        RefusedStart: the entry is damaged.
    """
    newest = newest_finished(checkpoint)
    return None if newest < 0 else (newest, offsets_in(checkpoint, newest, topic))


def offsets_in(checkpoint: Place, batch: int, topic: str) -> dict[str, int]:
    """Returns the end offsets of a planned batch.

    Raises:
        RefusedStart: the entry is damaged.
    """
    entry = f"offsets/{batch}"
    with _refuse_damaged(checkpoint, entry):
        return last_offset(checkpoint, entry, topic)


def begin_of_first_batch(checkpoint: Place, topic: str) -> dict[str, int] | None:
    """Returns the offsets at which Spark's source began; None if it has not begun.

    Raises:
        RefusedStart: the entry is damaged.
    """
    entry = "sources/0/0"
    if not exists(checkpoint, entry):
        return None
    with _refuse_damaged(checkpoint, entry):
        return last_offset(checkpoint, entry, topic)


def newest_finished(checkpoint: Place) -> int:
    """Returns the newest batch in Spark's commit log; -1 if there is none."""
    return max(_batches(checkpoint, "commits"), default=-1)


def open_batch(checkpoint: Place) -> int | None:
    """Returns the batch that is planned and not finished; None if no batch is open.

    Spark runs it again: the offset log has it, and the commit log does not.
    """
    newest = last_batch(checkpoint)
    return newest if newest > newest_finished(checkpoint) else None


def query_id(checkpoint: Place) -> str:
    """Returns the id of the query that made the checkpoint (Spark's `StreamMetadata`).

    Raises:
        RefusedStart: the entry is damaged.
    """
    with _refuse_damaged(checkpoint, "metadata"):
        return str(json.loads(text_of(checkpoint, "metadata"))["id"])


def begun_at(checkpoint: Place, batch: int) -> float | None:
    """Returns the Unix time in s at which Spark planned a batch; None if Spark did not store it.

    The time is `OffsetSeqMetadata.batchTimestampMs`.

    Raises:
        RefusedStart: the entry is damaged.
    """
    entry = f"offsets/{batch}"
    with _refuse_damaged(checkpoint, entry):
        for line in text_of(checkpoint, entry).splitlines():
            if '"batchTimestampMs"' in line:
                return float(json.loads(line)["batchTimestampMs"]) / 1000
    return None


def last_batch(checkpoint: Place) -> int:
    """Returns the newest batch in Spark's offset log; -1 if there is none."""
    return max(_batches(checkpoint, "offsets"), default=-1)


@contextmanager
def _refuse_damaged(checkpoint: Place, entry: str) -> Iterator[None]:
    """Converts errors while reading an entry of Spark's to errors that name it.

    Raises:
        RefusedStart: it is damaged.
        DeliveryFailed, NoStore: the disk or the object store fails. The entry need not be damaged.
    """
    try:
        yield
    except (ValueError, LookupError, OSError) as error:  # torn, empty or missing
        if isinstance(error, OSError) and passes(error):
            path = Path(f"{checkpoint}/{entry}")
            raise not_now(error, f"{path} in Spark's checkpoint cannot be read", path) from error
        raise RefusedStart(
            f"{checkpoint}/{entry} in Spark's checkpoint can't be read ({error}): the checkpoint is damaged. "
            "Restore all of it, with its journal, as they were just before the damage; without such a copy, take a new "
            "checkpoint, sink_id and output."
        ) from error


def has_planned(checkpoint: Place, batch: int) -> bool:
    """Whether Spark's offset log has a batch."""
    return exists(checkpoint, f"offsets/{batch}")


def has_finished(checkpoint: Place, batch: int) -> bool:
    """Whether Spark's commit log has a batch."""
    return exists(checkpoint, f"commits/{batch}")


def _batches(checkpoint: Place, log: str) -> list[int]:
    return [int(name) for name in store_of(checkpoint).below(log).names() if name.isdigit()]


def planned_range(checkpoint: Place, batch: int, topic: str) -> dict[int, tuple[int, int]]:
    """Returns a planned batch's input: partition -> first offset, and the one behind the last.

    Spark's offset log has ends only. The first batch begins at offset 0, or where the topic began when it was planned.

    Raises:
        RefusedStart: the entry is damaged.
    """
    ends = {}
    for number in (batch - 1, batch):
        entry = f"offsets/{number}"
        with _refuse_damaged(checkpoint, entry):
            ends[number] = last_offset(checkpoint, entry, topic) if exists(checkpoint, entry) else {}
    return {int(p): (ends[batch - 1].get(p, 0), end) for p, end in ends[batch].items()}
