"""Remembers the newest markers: a start then finds a sink older than the checkpoint.

After each batch the driver notes which partitions had rows: their markers are in the sink from then on. A start
compares the notes with the markers in the sink. It finds a database that was restored from a backup, a removed file, or
a deleted group.

    written/newest.json    {"partitions": {"0": [[11, 1764081000.0], [12, 1764081001.5]]}}

are the two newest batches with rows of partition 0, each with its time. The open batch may have a marker or not, so
the batch before it counts then. A sink that can make a marker before the first batch (`Sink.restore_marks`) has one
for each partition from its first start on: batch -1.

Promise: every noted marker was in the sink. The note is not forced to the disk, because that would cost each batch some
milliseconds. After a power cut it may be older or damaged: then a start finds less, and refuses nothing that is sound.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping, Sequence

from oncebench.delivery.contract import NO_BATCH, OVERWRITTEN, WHOLE_BATCH, Mark, Written
from oncebench.delivery.starts.gaps import NONE
from oncebench.delivery.stores.choose import Place, store_of
from oncebench.delivery.stores.entries import UNAVAILABLE, read_entry
from oncebench.delivery.stores.interface import Store

# The open batch and the one before it.
_KEPT = 2
_FOLDER, _ENTRY = "written", "newest.json"
_log = logging.getLogger(__name__)
# Partition -> the newest batches with rows, oldest first, each with the time of its note.
Noted = dict[int, list[tuple[int, float]]]


class Marks:
    """The markers that drivers of one checkpoint have noted.

    Args:
        journal: the journal's folder.
    """

    def __init__(self, journal: Place) -> None:
        self._store = store_of(journal).below(_FOLDER)
        self._noted = _read(self._store)

    def note_batch(self, batch: int, results: Collection[Written], dropped: Collection[int], whole: bool) -> None:
        """Notes a batch that the sink has committed.

        Args:
            batch: the batch id.
            results: of its tasks.
            dropped: partitions that were left out.
            whole: whether one marker covers the batch.
        """
        filled = {result.partition for result in results if result.rows} - set(dropped)
        for partition in {WHOLE_BATCH} if whole and filled else filled:
            self._noted[partition] = noted_next(self._noted.get(partition, ()), batch, time.time())
        if filled:
            try:
                self._write()
            except UNAVAILABLE as error:  # the batch is committed: the next start only finds less
                _log.warning("%s/%s cannot be written: %s", self._store, _ENTRY, error)

    def note_found(self, marks: Mapping[int, Mark], committed: int) -> None:
        """Replaces all notes by the markers that a start has found and accepted."""
        now = time.time()
        self._noted = {p: [(mark.batch, now)] for p, mark in marks.items() if NO_BATCH <= mark.batch <= committed}
        self._write()

    def note_first(self, partitions: Collection[int]) -> None:
        """Notes partitions whose marker stands for no batch yet."""
        if partitions:
            self._noted |= {partition: [(NO_BATCH, time.time())] for partition in partitions}
            self._write()

    def missing(
        self, marks: Mapping[int, Mark], committed: int, forgets_after_s: float | None
    ) -> dict[int, tuple[int | None, int]]:
        """Returns partition -> (the sink's batch, the batch it must have), where it is older.

        Args:
            marks: the markers in the sink.
            committed: the newest batch in Spark's commit log; a later one may be written again.
            forgets_after_s: how long the sink keeps a marker at least; None: for ever.
        """
        return missing(self._noted, marks, committed, forgets_after_s, time.time())

    def _write(self) -> None:
        self._store.put(_ENTRY, json.dumps({"partitions": self._noted}).encode(), durable=False)


def missing(
    noted: Noted, marks: Mapping[int, Mark], committed: int, forgets_after_s: float | None, now: float
) -> dict[int, tuple[int | None, int]]:
    """See `Marks.missing`."""
    found: dict[int, tuple[int | None, int]] = {}
    for partition, batches in sorted(noted.items()):
        expected = [(batch, at) for batch, at in batches if batch <= committed]
        if not expected:
            continue
        batch, at = expected[-1]
        there = _batch_of(marks.get(partition))
        renewed = there is None or there == NO_BATCH  # perhaps by a start that had found none
        forgotten = renewed and forgets_after_s is not None and now - at > forgets_after_s
        if not forgotten and (there is None or there < batch):
            found[partition] = there, batch
    for partition, mark in marks.items():
        if mark.batch == OVERWRITTEN:
            found.setdefault(partition, (None, committed))
    return dict(sorted(found.items()))


def _batch_of(mark: Mark | None) -> int | None:
    return None if mark is None or mark.batch == OVERWRITTEN else mark.batch


def missing_text(found: Mapping[int, tuple[int | None, int]]) -> str:
    """Returns the loss as `output/partition:newest batch there..newest batch written`."""
    return ",".join(
        f"output/{'all' if partition == WHOLE_BATCH else partition}:{NONE if there is None else there}..{expected}"
        for partition, (there, expected) in sorted(found.items())
    )


def noted_next(before: Sequence[tuple[int, float]], batch: int, at: float) -> list[tuple[int, float]]:
    """Returns a partition's notes with a batch added; a replayed batch replaces its own note."""
    return [*(each for each in before if each[0] < batch), (batch, at)][-_KEPT:]


def _read(store: Store) -> Noted:
    try:
        partitions = read_entry(store, _ENTRY)["partitions"]
        return {int(p): [(int(batch), float(at)) for batch, at in batches] for p, batches in partitions.items()}
    except FileNotFoundError:
        return {}
    except (*UNAVAILABLE, ValueError, LookupError, TypeError, AttributeError) as error:
        _log.warning(
            "%s/%s cannot be read (%s): this start cannot tell whether the sink is older", store, _ENTRY, error
        )
        return {}
