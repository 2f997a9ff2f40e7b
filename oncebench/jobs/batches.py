"""Delivers each batch of a query: the function that Spark's foreachBatch calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame

from oncebench.delivery.batch import Batch
from oncebench.delivery.contract import Sink
from oncebench.delivery.decisions import REWRITE
from oncebench.delivery.errors import AnotherDriver, OlderDriver, PipelineError, WriterStartedAgain
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.failures import deaths
from oncebench.delivery.journal import Journal
from oncebench.delivery.protocols import Protocol
from oncebench.delivery.quarantine import Quarantine
from oncebench.delivery.stores.entries import UNAVAILABLE

# A job outside the suite has no faults: nothing is read from or written to the path.
NO_FAILPOINTS = Failpoints((), Path("/dev/null"), None)
_log = logging.getLogger(__name__)


class Batches:
    """The batches of one driver, delivered by a protocol.

    Each batch has a greater number than the one before. Spark replays a batch only in a new start of the query, and a
    new start needs a new driver: this one's sink knows the markers from before its first batch.

    Args:
        protocol: of the guarantee.
        sink: started.
        journal: of the checkpoint.
        partitions: the most tasks that a batch may have; None: any number.
        on_lost: see `oncebench.delivery.decisions`.
        quarantine: where rejected records go.
        failpoints: faults of a run of the suite.
        changed: whether an accepted loss has changed the input of a batch.
        delivered: called in this order after each batch that the sink holds.
    """

    def __init__(
        self,
        protocol: Protocol,
        sink: Sink,
        journal: Journal,
        partitions: int | None,
        quarantine: Quarantine,
        *,
        on_lost: str = REWRITE,
        failpoints: Failpoints = NO_FAILPOINTS,
        changed: Callable[[int], bool] = lambda _: False,
        delivered: Sequence[Callable[[Batch], None]] = (),
    ) -> None:
        self._protocol, self._sink, self._journal = protocol, sink, journal
        self._partitions, self._on_lost = partitions, on_lost
        self._failpoints, self._quarantine = failpoints, quarantine
        self._changed, self._delivered = changed, delivered
        self._rows_before: int | None = None
        self._begun = -1
        self._first = True

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Delivers a batch.

        Raises:
            AnotherDriver: a newer driver was started, also if the batch failed in another way meanwhile.
            WriterStartedAgain: this driver has begun the batch, or a later one, already.
            PipelineError: see `oncebench.delivery.errors`. The query must end: a driver that continued could lose or
                duplicate rows.
        """
        self._journal.check_still_ours()
        self._begin(number)
        changed = self._changed(number)
        batch = Batch(
            rows, number, self._partitions, self._failpoints, self._quarantine, self._rows_before, changed,
            query=str(self._journal.folder),
        )  # fmt: skip
        batch.failpoint("batch-start")
        started = time.perf_counter()
        try:
            self._protocol(batch, self._sink, self._journal, self._on_lost)
        except OlderDriver as found:
            raise self._of_other(found, number) from found
        except Exception:
            newer = self._newer_driver()  # it ends this driver's transactions, which the sink reports as any failure
            if newer is not None:
                raise newer from None
            raise
        finally:
            batch.release()
        batch.timings_ms["total"] = (time.perf_counter() - started) * 1000
        batch.failpoint("after-commit")
        self._rows_before = rows_of(batch)
        for note in self._delivered:
            note(batch)
        self._tidy(number)

    def _of_other(self, found: OlderDriver, batch: int) -> PipelineError:
        """Returns the error for a batch that another driver has taken.

        The error is AnotherDriver if the other driver may run on a copy of this checkpoint. Otherwise it is the error
        found.

        An older driver of this journal can only finish the batch that it had begun, which is this driver's first one.
        It cannot finish a batch that this driver has claimed, because a claim excludes its own.
        """
        self._journal.check_still_ours()
        if self._first and not self._journal.is_claimed(batch):
            return found
        return AnotherDriver(
            f"batch {batch}: another driver has taken this batch or the sink_id, perhaps with a copy of "
            f"{self._journal.checkpoint}. This driver stops and has written nothing more. Let only one driver run per "
            "sink_id; if none runs, start one."
        )

    def _newer_driver(self) -> AnotherDriver | None:
        """Returns the error of a newer driver of this checkpoint.

        Returns None if there is none, or if the journal is not available.
        """
        try:
            with suppress(*UNAVAILABLE):
                self._journal.check_still_ours()
        except AnotherDriver as found:
            return found
        return None

    def _begin(self, number: int) -> None:
        if number <= self._begun:
            raise WriterStartedAgain(
                f"batch {number}: this writer has begun batch {self._begun} already, in a query that has ended. It "
                "does not know what that query wrote, and has written nothing more. Call deliver() again with the same "
                "arguments and start the new writer, or start the process again."
            )
        self._begun = number

    def _tidy(self, batch: int) -> None:
        """Removes old entries of the journal. A failure is logged only: the batch is delivered."""
        if self._first:
            deaths.forget(self._journal.folder)
            self._first = False
        try:
            self._journal.prune(batch)
        except UNAVAILABLE as error:
            _log.warning("old entries of %s could not be removed: %s", self._journal.folder, error)


def rows_of(batch: Batch) -> int | None:
    """Returns the number of rows of a batch that has run; None if no task has reported."""
    return sum(result.rows for result in batch.results) if batch.results else None
