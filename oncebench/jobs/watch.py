"""Counts the deliveries of this process's queries, for `oncebench.jobs.metrics`.

The counts are plain numbers, and are always kept.

A `Watch` belongs to a sink_id, not to a query: `deliver` called again after a failure counts on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from oncebench.delivery import errors
from oncebench.delivery.batch import Batch
from oncebench.delivery.transactions.left import Transactions

# What a failure is counted as. All begin at 0, because Prometheus sees no increase in a series that begins at 1.
_CLASSES = tuple(
    each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.PipelineError)
)
# Any other error: of Spark, of the query's own code, or of a task, which Spark passes on as its own.
OTHER = "other"


def _no_failures() -> Counter[str]:
    return Counter({**{each.__name__: 0 for each in _CLASSES}, OTHER: 0})


@dataclass
class Watch:
    """The counts of one sink_id since this process began.

    Attributes:
        sink: the kind of sink.
        sink_id: see `oncebench.jobs.sinks`.
        written, drained: batches whose rows were written, and batches that a replay did not write again.
        rows: of the written batches.
        rejected: rows that were copied to quarantine, by reason.
        dropped: partitions that `on_lost="drop"` left out.
        failures: errors that ended a start or a batch, by class of `oncebench.delivery.errors`, or OTHER.
        newest_commit_at: Unix time in s at which the newest batch was delivered; None: none yet.
        open_since: Unix time in s at which the batch in work began; None: no batch is open.
        open_transactions: opens the sink's own list of transactions; None: its commits are one step each.
    """

    sink: str
    sink_id: str
    written: int = 0
    drained: int = 0
    rows: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    failures: Counter[str] = field(default_factory=_no_failures)
    newest_commit_at: float | None = None
    open_since: float | None = None
    open_transactions: Callable[[], Transactions] | None = None

    def note_batch(self, batch: Batch) -> None:
        """Counts a batch that the sink holds."""
        if batch.drained:
            self.drained += 1
        else:
            self.written += 1
            self.rows += sum(result.rows for result in batch.results)
        for result in batch.results:
            self.rejected.update(result.quarantined)
        self.dropped += len(batch.dropped)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Records the delivery of a batch: it begins and ends with the context.

        A batch that fails stays open until another attempt has delivered it.
        """
        self.open_since = self.open_since or time.time()
        with self.counted_failures():
            yield
        self.open_since, self.newest_commit_at = None, time.time()

    @contextmanager
    def counted_failures(self) -> Iterator[None]:
        """Counts an error that leaves the block."""
        try:
            yield
        except Exception as error:
            kind = next((each for each in type(error).__mro__ if each in _CLASSES), None)
            self.failures[kind.__name__ if kind else OTHER] += 1
            raise


WATCHES: dict[tuple[str, str], Watch] = {}


def watch_of(sink: str, sink_id: str) -> Watch:
    """Returns the counts of a sink_id; makes them at its first start."""
    return WATCHES.setdefault((sink, sink_id), Watch(sink, sink_id))
