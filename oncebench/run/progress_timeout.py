"""Timeouts that restart whenever the run makes progress.

Promise: a slow run is not mistaken for a stalled one. Requirement: the progress must end by itself, as do the batches
of a load that has ended, or the requested faults. Otherwise the timeout never expires.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from oncebench.run.attempts.supervisor import Supervisor
from oncebench.run.progress import RunProgress

# A start that writes to its log without end is ended after this many times the limit of a silent start.
LONGEST_START = 5.0


class ProgressTimeout:
    """Expires `limit_s` seconds after `progress` last changed.

    Args:
        limit_s: seconds without a change.
        progress: returns a value that changes whenever the run makes progress.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        limit_s: float,
        progress: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit_s = limit_s
        self._progress = progress
        self._clock = clock
        self._newest = progress()
        self._until = clock() + self._allowed_s()
        self._final = False

    def shorten(self, limit_s: float) -> None:
        """Sets a final limit that no progress extends; only the first call counts."""
        if not self._final:
            self._until, self._final = min(self._until, self._clock() + limit_s), True

    def expired(self) -> bool:
        """Whether the limit has passed."""
        now = self._clock()
        if not self._final and (newest := self._progress()) != self._newest:
            self._until, self._newest = now + self._allowed_s(), newest
        return now > self._until

    def _allowed_s(self) -> float:
        """Seconds without a change that are allowed from now on."""
        return self.limit_s


class DrainTimeout(ProgressTimeout):
    """Expires when a run whose load is over makes no progress.

    Batches, faults and the signs of life of a starting attempt are progress. Only the first start after a batch or a
    fault counts, so a crash loop expires soon. The first batch after a start may take as long as the start: a slow
    machine is slow at both.

    Args:
        limit_s: seconds without progress.
        start_s: seconds without a sign of life of a start, if this is longer than `limit_s`.
        progress, supervisor: of the run.
        clock: monotonic seconds.

    Attributes:
        starting: whether the newest attempt is such a start. A run that ends here has not stalled: it was too slow.
    """

    def __init__(
        self,
        limit_s: float,
        start_s: float,
        progress: RunProgress,
        supervisor: Supervisor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start_s, self._run, self._supervisor = start_s, progress, supervisor
        self._events_read = progress.events_read
        self._done: object = None
        self._counted: int | None = None  # the start that counts, by its number
        self._began = self._took_s = 0.0  # when that start began, and how long it took
        self.starting = False
        super().__init__(limit_s, self._made, clock)

    def _made(self) -> object:
        """Returns the progress so far: what is done, and the signs of life of a start that counts."""
        supervisor, now = self._supervisor, self._clock()
        starting, attempt = supervisor.starting, supervisor.restarts
        if not starting:  # a start reports again what earlier attempts have read
            self._events_read = self._run.events_read
        done = self._events_read, supervisor.hits_handled, supervisor.random_kills_left
        if done != self._done:
            self._done, self._counted, self._took_s = done, None, 0.0
        if starting and self._counted is None:
            self._counted, self._began = attempt, now
        self.starting = starting and attempt == self._counted
        if self.starting:
            self._took_s = now - self._began
        counts = self.starting and self._took_s < LONGEST_START * self._start_s
        return done, supervisor.signs_of_life() if counts else None

    def _allowed_s(self) -> float:
        return max(self.limit_s, self._start_s if self.starting else self._took_s)
