"""Estimates how long the pipeline still has work, so that random kills come while it has.

Promise: 0 only if the pipeline has read and committed every planned event. Otherwise the estimate tends to be too
short, because a kill that comes too late tests nothing.

What can go wrong: batches become quicker than the newest one, and the estimate is too long. Or events of the load
failed, so the pipeline never reads as many as planned, and the estimate is never 0. The run itself then notices that
everything is read (`Supervisor.hasten_random_kill`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from loadgen.session import EVENTS_PER_SESSION
from oncebench.run.progress import RunProgress
from oncebench.scenario.cell import Cell

# Seconds that an engine needs at least for the events that arrived during a restart. The first batch of a restarted
# pipeline takes 3 to 5 s on two idle cores.
BACKLOG_S = 2.0


class WorkLeft:
    """The remaining work of a run. The load begins when this object is created.

    Args:
        cell, progress: of the run.
        clock: monotonic seconds.
    """

    def __init__(self, cell: Cell, progress: RunProgress, clock: Callable[[], float] = time.monotonic) -> None:
        self._cell, self._progress, self._clock = cell, progress, clock
        self._load_ends = clock() + cell.load_s

    def seconds(self, standstill_s: float = 0.0) -> float:
        """Returns the seconds of work that the pipeline has left.

        The result is infinite if they are not known yet.

        Args:
            standstill_s: the seconds for which the pipeline will not run, while the load continues.
        """
        planned = self._cell.sessions * EVENTS_PER_SESSION + self._progress.sent_ahead
        unread = planned - self._progress.events_read
        if unread <= 0:
            return 0.0
        limit = self._cell.max_events_per_batch
        batches = 1 if limit is None else math.ceil(unread / limit)
        return max(self._load_ends - self._clock() - standstill_s, batches * self._batch_s(), BACKLOG_S)

    def _batch_s(self) -> float:
        """The time from one batch to the next, at least."""
        trigger_s, batch_s = self._cell.trigger_ms / 1000, self._progress.batch_s
        if trigger_s or batch_s is not None:
            return trigger_s or batch_s or 0.0
        return math.inf if self._cell.rate == "max" else 0.0
