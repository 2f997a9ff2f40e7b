"""How long a run is waited for: as long as it gets on, and so many seconds after it last did.

Promise: a slow run is not taken for one that stands still. What can go wrong: what is counted as getting on must come
to an end by itself (batches of a load that has ended, faults that were asked for), or the wait never does.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Patience:
    """A limit that begins anew whenever the run has got on.

    Args:
        limit_s: seconds without any change of `done_so_far`.
        done_so_far: what grows as long as the run gets on.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        limit_s: float,
        done_so_far: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_s = limit_s
        self._done_so_far = done_so_far
        self._clock = clock
        self._until, self._seen = clock() + limit_s, done_so_far()
        self._last = False

    def shorten(self, limit_s: float) -> None:
        """From now on only so many seconds more, whatever is done in them; the first call counts."""
        if not self._last:
            self._until, self._last = min(self._until, self._clock() + limit_s), True

    def over(self) -> bool:
        """Whether the limit has passed."""
        now = self._clock()
        if not self._last and (seen := self._done_so_far()) != self._seen:
            self._until, self._seen = now + self._limit_s, seen
        return now > self._until
