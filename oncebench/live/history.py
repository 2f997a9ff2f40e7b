"""Derives the figures of the live view from the states of a run.

The figures are rates, a sparkline, the time left, the backlog, and the wait after a fault.

Promise: rates and sparkline cover the last seconds only. A figure that does not exist yet is None.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oncebench.live.status import LOADING, Phase, RunStatus

# Long enough to smooth batches of half a second, short enough to show a stop.
RATE_S = 3.0
SPARKS = 24  # of half a second each: as many as fit next to the other columns of a terminal
SPARK_S = 0.5
# A pipeline that keeps up is one or two batches behind its load. Batches take 1 to 2 s on two cores.
BEHIND_S = 5.0
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class _Sample:
    at: float
    sent: int
    visible: int


class History:
    """Collects the states of one run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: deque[_Sample] = deque()
        self._sparks: deque[float | None] = deque(maxlen=SPARKS)
        self._next_spark = 0.0
        self._phase: Phase | None = None
        self._phase_since = clock()
        self._first_event_at: float | None = None
        self._planned_at: float | None = None  # when the first event of the load was due
        self._load_per_s: float | None = None
        self._fault = ""
        self._down: tuple[float, int] | None = None  # when rows ceased to appear, and how many were visible then
        # From the newest fault until `visible` rose. Copies count too, so it is not the report's recovery.
        self.rise_s: float | None = None
        self.left_s: float | None = None
        self.behind_s: float | None = None

    def add(self, status: RunStatus) -> None:
        """Adds the newest state."""
        now = self._clock()
        if status.phase != self._phase:
            self._phase, self._phase_since = status.phase, now
        sample = _Sample(now, status.load_counts.get("sent", 0), status.observer.get("visible", 0))
        self._samples.append(sample)
        while self._samples[0].at < now - RATE_S:
            self._samples.popleft()
        if now >= self._next_spark:
            self._next_spark = now + SPARK_S
            self._sparks.append(status.observer.get("p99_ms"))
        self._follow_load(status, now)
        self._follow_fault(status.fault, sample)

    @property
    def phase_s(self) -> float:
        """Seconds since the current phase began."""
        return self._clock() - self._phase_since

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
        """The p99 latency per half second; a space where no row became visible."""
        return sparkline(self._sparks)

    def _rate(self, counts: Sequence[int]) -> float:
        span = self._samples[-1].at - self._samples[0].at if self._samples else 0.0
        return (counts[-1] - counts[0]) / span if span else 0.0

    def _follow_load(self, status: RunStatus, now: float) -> None:
        loading = status.phase == LOADING and status.load_s is not None
        # The phase begins with the start of the generator, which plans its events first.
        if loading and self._planned_at is None and status.load_counts.get("planned_by_now", 0):
            self._planned_at = now
        self.left_s = None
        if loading and status.load_s is not None and self._planned_at is not None:
            self.left_s = max(0.0, status.load_s - (now - self._planned_at))
        acknowledged = status.load_counts.get("acknowledged", 0)
        if loading and acknowledged:
            self._first_event_at = now if self._first_event_at is None else self._first_event_at
            seconds = now - self._first_event_at
            self._load_per_s = acknowledged / seconds if seconds >= RATE_S else None
        self.behind_s = self._behind(status)

    def _behind(self, status: RunStatus) -> float | None:
        """Seconds of load that wait in the topic; None while the pipeline keeps up."""
        if status.lag is None or self._load_per_s is None:
            return None
        behind_s = status.lag / self._load_per_s
        return behind_s if behind_s >= BEHIND_S + 2 * status.trigger_s else None

    def _follow_fault(self, fault: str, sample: _Sample) -> None:
        down = fault.endswith(("restarting", "stopped"))
        if down and fault != self._fault:
            self._down, self.rise_s = (sample.at, sample.visible), None
        elif down and self._down is not None:
            # Rows that were visible before the fault may be counted a moment after it.
            self._down = self._down[0], sample.visible
        elif self._down is not None and sample.visible > self._down[1]:
            self.rise_s, self._down = sample.at - self._down[0], None
        self._fault = fault


def sparkline(values: Sequence[float | None]) -> str:
    """Returns a bar for each value, from 0 to the highest value; a space for None."""
    known = [value for value in values if value is not None]
    top = max(known, default=0.0)
    return "".join(" " if value is None else _bar(value, top) for value in values)


def _bar(value: float, top: float) -> str:
    return _BARS[min(len(_BARS) - 1, max(0, int(value / top * len(_BARS))))] if top > 0 else _BARS[0]
