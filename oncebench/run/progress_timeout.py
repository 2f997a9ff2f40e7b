"""A timeout that restarts whenever the run makes progress.

Promise: a slow run is not mistaken for a stalled one. Requirement: the progress must end by itself, as do the batches
of a load that has ended, or the requested faults. Otherwise the timeout never expires.
"""

from __future__ import annotations

import time
from collections.abc import Callable


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
        self._until, self._newest = clock() + limit_s, progress()
        self._final = False

    def shorten(self, limit_s: float) -> None:
        """Sets a final limit that no progress extends; only the first call counts."""
        if not self._final:
            self._until, self._final = min(self._until, self._clock() + limit_s), True

    def expired(self) -> bool:
        """Whether the limit has passed."""
        now = self._clock()
        if not self._final and (newest := self._progress()) != self._newest:
            self._until, self._newest = now + self.limit_s, newest
        return now > self._until
