"""Reads Spark's checkpoint: which batches were planned and which are done (OffsetSeqLog, CommitLog)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oncebench.delivery.errors import RefusedStart


def offsets_of(offset: Any, topic: str) -> dict[str, int]:
    """Offsets by partition out of Spark's form `{topic: {partition: offset}}`."""
    found = json.loads(offset) if isinstance(offset, str) else offset
    return dict((found or {}).get(topic, {}))


def committed_position(checkpoint: Path, topic: str) -> tuple[int, dict[str, int]] | None:
    """(batch, end offsets) of the newest batch in Spark's commit log; None before the first one.

    Raises:
        RefusedStart: the entry is damaged.
    """
    done = sorted(_batches(checkpoint / "commits"))
    if not done:
        return None
    entry = checkpoint / "offsets" / str(done[-1])
    with _whole(entry):
        return done[-1], offsets_of(entry.read_text().splitlines()[-1], topic)


def open_batch(checkpoint: Path) -> int | None:
    """The batch that Spark will run again: in the offset log and beyond the commit log; None if there is none."""
    newest = newest_batch(checkpoint)
    done = max(_batches(checkpoint / "commits"), default=-1)
    return newest if newest is not None and newest > done else None


def begun_at(checkpoint: Path, batch: int) -> float | None:
    """When Spark planned a batch, by its offset log (OffsetSeqMetadata.batchTimestampMs); None: it does not say.

    Raises:
        RefusedStart: the entry is damaged.
    """
    entry = checkpoint / "offsets" / str(batch)
    with _whole(entry):
        for line in entry.read_text().splitlines():
            if '"batchTimestampMs"' in line:
                return float(json.loads(line)["batchTimestampMs"]) / 1000
    return None


def newest_batch(checkpoint: Path) -> int | None:
    """The newest batch in Spark's offset log, finished or not."""
    return max(_batches(checkpoint / "offsets"), default=None)


@contextmanager
def _whole(entry: Path) -> Iterator[None]:
    """Whoever reads an entry of Spark's in here finds it whole, or is refused."""
    try:
        yield
    except (ValueError, LookupError, OSError) as error:  # cut short, empty, or gone
        raise RefusedStart(
            f"{entry} in Spark's offset log can't be read ({error}): the checkpoint is damaged. Restore all of it, "
            "with its journal, from before the damage; without it nobody knows what was written."
        ) from error


def _batches(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
