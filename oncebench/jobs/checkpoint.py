"""Reads planned and finished batches from Spark's checkpoint (OffsetSeqLog, CommitLog)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oncebench.delivery.errors import RefusedStart


def offsets_of(offset: Any, topic: str) -> dict[str, int]:
    """Returns offsets by partition from Spark's form `{topic: {partition: offset}}`."""
    found = json.loads(offset) if isinstance(offset, str) else offset
    return dict((found or {}).get(topic, {}))


def committed_position(checkpoint: Path, topic: str) -> tuple[int, dict[str, int]] | None:
    """Returns (batch, end offsets) of the newest batch in the commit log; None if it is empty.

    Raises:
        RefusedStart: the entry is damaged.
    """
    done = sorted(_batches(checkpoint / "commits"))
    if not done:
        return None
    entry = checkpoint / "offsets" / str(done[-1])
    with _refuse_damaged(entry):
        return done[-1], offsets_of(entry.read_text().splitlines()[-1], topic)


def offsets_in(checkpoint: Path, batch: int, topic: str) -> dict[str, int]:
    """Returns the end offsets of a planned batch.

    Raises:
        RefusedStart: the entry is damaged.
    """
    entry = checkpoint / "offsets" / str(batch)
    with _refuse_damaged(entry):
        return offsets_of(entry.read_text().splitlines()[-1], topic)


def begin_of_first_batch(checkpoint: Path, topic: str) -> dict[str, int] | None:
    """Returns the offsets at which Spark's source began; None if it has not begun.

    Raises:
        RefusedStart: the entry is damaged.
    """
    entry = checkpoint / "sources" / "0" / "0"
    if not entry.exists():
        return None
    with _refuse_damaged(entry):
        return offsets_of(entry.read_text().splitlines()[-1], topic)


def newest_finished(checkpoint: Path) -> int:
    """Returns the newest batch in Spark's commit log; -1 if there is none."""
    return max(_batches(checkpoint / "commits"), default=-1)


def open_batch(checkpoint: Path) -> int | None:
    """Returns the batch that Spark runs again: in the offset log, not in the commit log."""
    newest = newest_batch(checkpoint)
    done = max(_batches(checkpoint / "commits"), default=-1)
    return newest if newest is not None and newest > done else None


def begun_at(checkpoint: Path, batch: int) -> float | None:
    """Returns the time at which Spark planned a batch; None if Spark did not store it.

    The time is `OffsetSeqMetadata.batchTimestampMs`.

    Raises:
        RefusedStart: the entry is damaged.
    """
    entry = checkpoint / "offsets" / str(batch)
    with _refuse_damaged(entry):
        for line in entry.read_text().splitlines():
            if '"batchTimestampMs"' in line:
                return float(json.loads(line)["batchTimestampMs"]) / 1000
    return None


def newest_batch(checkpoint: Path) -> int | None:
    """Returns the newest batch in Spark's offset log, finished or not."""
    return max(_batches(checkpoint / "offsets"), default=None)


@contextmanager
def _refuse_damaged(entry: Path) -> Iterator[None]:
    """Converts errors while reading one of Spark's entries to RefusedStart."""
    try:
        yield
    except (ValueError, LookupError, OSError) as error:  # torn, empty or missing
        raise RefusedStart(
            f"{entry} in Spark's offset log can't be read ({error}): the checkpoint is damaged. Restore all of it, "
            "with its journal, from before the damage. Without it, nothing shows which rows were written."
        ) from error


def _batches(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []


def planned_range(checkpoint: Path, batch: int, topic: str) -> dict[int, tuple[int, int]]:
    """Returns a planned batch's input: partition -> first offset, and the one behind the last.

    Spark's offset log has ends only. The first batch begins at offset 0, or where the topic began when it was planned.

    Raises:
        RefusedStart: the entry is damaged.
    """
    ends = {}
    for number in (batch - 1, batch):
        entry = checkpoint / "offsets" / str(number)
        with _refuse_damaged(entry):
            ends[number] = offsets_of(entry.read_text().splitlines()[-1], topic) if entry.exists() else {}
    return {int(p): (ends[batch - 1].get(p, 0), end) for p, end in ends[batch].items()}
