"""What a run has looked like so far: current rates, a sparkline of latency, time left, when rows came again.

Promise: figures of the last seconds only, so that what is shown is what is going on; None where nothing can be said.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oncebench.live.status import Seen

# Long enough to smooth batches of half a second, short enough to see a stop.
RATE_S = 3.0
SPARKS = 24  # of half a second each: what fits beside the other columns of a terminal
SPARK_S = 0.5
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class _Sample:
    at: float
    sent: int
    visible: int


class History:
    """Takes what is seen, as often as it is seen."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: deque[_Sample] = deque()
        self._sparks: deque[float | None] = deque(maxlen=SPARKS)
        self._next_spark = 0.0
        self._loading_since: float | None = None
        self._fault = ""
        self._down: tuple[float, int] | None = None  # when rows stopped to come, and how many had
        self.recovered_s: float | None = None
        self.left_s: float | None = None

    def add(self, seen: Seen) -> None:
        """The newest state."""
        now = self._clock()
        load = seen.load.get("summary", seen.load)
        sample = _Sample(now, load.get("sent", 0), seen.observer.get("visible", 0))
        self._samples.append(sample)
        while self._samples[0].at < now - RATE_S:
            self._samples.popleft()
        if now >= self._next_spark:
            self._next_spark = now + SPARK_S
            self._sparks.append(seen.observer.get("p99_ms"))
        self._watch_load(seen, now)
        self._watch_fault(seen.fault, sample)

    @property
    def sent_per_s(self) -> float:
        """Events sent per second."""
        return self._rate([sample.sent for sample in self._samples])

    @property
    def rows_per_s(self) -> float:
        """Rows that became visible per second."""
        return self._rate([sample.visible for sample in self._samples])

    @property
    def sparkline(self) -> str:
        """The p99 of each half second, the highest of them as high as can be; a space where no row was seen."""
        return sparkline(self._sparks)

    def _rate(self, counts: Sequence[int]) -> float:
        span = self._samples[-1].at - self._samples[0].at if self._samples else 0.0
        return (counts[-1] - counts[0]) / span if span else 0.0

    def _watch_load(self, seen: Seen, now: float) -> None:
        if seen.phase != "loading" or seen.load_s is None:
            self._loading_since = self.left_s = None
            return
        self._loading_since = now if self._loading_since is None else self._loading_since
        self.left_s = max(0.0, seen.load_s - (now - self._loading_since))

    def _watch_fault(self, fault: str, sample: _Sample) -> None:
        down = fault.endswith(("restarting", "stopped"))
        if down and fault != self._fault:
            self._down, self.recovered_s = (sample.at, sample.visible), None
        elif down and self._down is not None:
            # Rows that were visible before the fault may be counted a moment after it.
            self._down = self._down[0], sample.visible
        elif self._down is not None and sample.visible > self._down[1]:
            self.recovered_s, self._down = sample.at - self._down[0], None
        self._fault = fault


def sparkline(values: Sequence[float | None]) -> str:
    """A bar for each value, from 0 to the highest of them; a space for None."""
    known = [value for value in values if value is not None]
    top = max(known, default=0.0)
    return "".join(" " if value is None else _bar(value, top) for value in values)


def _bar(value: float, top: float) -> str:
    return _BARS[min(len(_BARS) - 1, max(0, int(value / top * len(_BARS))))] if top > 0 else _BARS[0]
