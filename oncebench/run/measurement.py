"""Decides from when on a run is measured, and watches the clock that its times come from.

Promise: the measurement begins with the load, or with the pipeline under a flat-out load. It begins again, once, when
the warm-up time is over. A wall clock that was moved is noticed, even if it was moved back before the run ended. A
machine that slept is noticed too: its monotonic clock stood still.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from loadgen.session import EVENTS_PER_SESSION
from oncebench.live.status import DRAINING, LOADING, Phase
from oncebench.run.meters import Meters
from oncebench.run.progress import RunProgress
from oncebench.scenario.cell import Cell
from oncebench.sinks.reader import now_us

_READINGS = 5  # of the clocks at each look; the quickest counts, because the process may be suspended within one


class WallClock:
    """Compares the wall clock with the monotonic clock, from now on.

    Corrections of the clock's speed change both clocks alike, so they are no movement.

    Attributes:
        moved_us: how far the wall clock was from its course at most; below 0 if it was set back.
    """

    def __init__(self) -> None:
        self._ahead_ns, self.moved_us = _ahead_ns(), 0

    def look(self) -> None:
        """Compares the clocks once."""
        self.moved_us = max(self.moved_us, (_ahead_ns() - self._ahead_ns) // 1000, key=abs)


def _ahead_ns() -> int:
    """Returns the wall clock minus the monotonic clock."""
    readings = ((time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(_READINGS))
    before_ns, wall_ns, after_ns = min(readings, key=lambda reading: reading[2] - reading[0])
    return wall_ns - (before_ns + after_ns) // 2


class Measurement:
    """The beginning of the measurement of one run.

    Args:
        cell: of the run.
        plan: the plan of a generator, which need not exist yet.
        meters, progress: of the run.

    Attributes:
        from_us: when the measurement began, epoch µs; 0 before.
        warm: whether the warm-up time is over.
        clock: watched at each look, since this was made.
    """

    def __init__(self, cell: Cell, plan: Path, meters: Meters, progress: RunProgress) -> None:
        self._cell, self._plan, self._meters, self._progress = cell, plan, meters, progress
        self.from_us, self.warm = 0, False
        self.clock = WallClock()

    def begin(self) -> None:
        """Starts measuring: at the start of pipeline or load, and again after the warm-up time."""
        self._meters.mark()
        self.from_us = now_us()

    def look(self, phase: Phase) -> None:
        """Starts the measurement again when the warm-up time is over."""
        self.clock.look()
        if not self.warm and self._warm_up_time_is_over(phase):
            self.warm = True
            self.begin()

    def _warm_up_time_is_over(self, phase: Phase) -> bool:
        """Whether the load runs for longer than the warm-up time.

        A flat-out load is there before the pipeline starts, so its warm-up time counts from the pipeline's start. It
        is measured as a whole if less than half of it is left then.
        """
        if self._cell.rate == "max":
            began_us = self.from_us
            load = self._cell.sessions * EVENTS_PER_SESSION
            if phase != DRAINING or 2 * (self._progress.events_read - self._progress.sent_ahead) > load:
                return False
        else:
            if phase != LOADING or not self._plan.exists():
                return False
            began_us = json.loads(self._plan.read_text())["started_us"]
        return now_us() >= began_us + self._cell.warmup_s * 1e6
