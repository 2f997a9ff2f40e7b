"""When a run is measured: from the start of load or pipeline.

The measurement begins again at the end of the warm-up time.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.live.status import DRAINING, LOADING, Phase
from oncebench.run.measurement import Measurement
from oncebench.scenario.cell import Cell


class Measured:
    """A run with a warm-up time of 6 s whose load began so long ago; None: not yet."""

    def __init__(self, folder: Path, started_s_ago: float | None, **changes: Any) -> None:
        if started_s_ago is not None:
            (folder / "plan.json").write_text(json.dumps({"started_us": us_ago(started_s_ago)}))
        self.marks = 0
        self.progress: Any = SimpleNamespace(events_read=0, sent_ahead=0)
        meters: Any = SimpleNamespace(mark=self.mark)
        cell = Cell("kafka", "exactly-once", "two-phase", warmup_s=6.0, rate=changes.pop("rate", 500.0), **changes)
        self.measurement = Measurement(cell, folder / "plan.json", meters, self.progress)

    def mark(self) -> None:
        self.marks += 1


def us_ago(seconds: float) -> int:
    return time.time_ns() // 1000 - round(seconds * 1e6)


@pytest.mark.parametrize(
    ("started_s_ago", "phase", "marks"),
    [(6.1, LOADING, 1), (5.0, LOADING, 0), (None, LOADING, 0), (6.1, DRAINING, 0)],
)
def test_use_counts_anew_when_the_warm_up_time_ends_during_the_load(
    tmp_path: Path, started_s_ago: float | None, phase: Phase, marks: int
) -> None:
    run = Measured(tmp_path, started_s_ago)
    run.measurement.look(phase)
    run.measurement.look(phase)
    assert (run.marks, run.measurement.warm) == (marks, bool(marks))
    assert (run.measurement.from_us > 0) == bool(marks)


@pytest.mark.parametrize(("began_s_ago", "read", "marks"), [(6.1, 500, 1), (6.1, 501, 0), (5.9, 500, 0)])
def test_a_flat_out_load_is_warm_while_half_of_it_is_left(
    tmp_path: Path, began_s_ago: float, read: int, marks: int
) -> None:
    run = Measured(tmp_path, 6.1, rate="max", sessions=10)
    run.measurement.from_us = us_ago(began_s_ago)
    run.progress.sent_ahead, run.progress.events_read = 7, 7 + read
    run.measurement.look(LOADING)
    assert run.marks == 0
    run.measurement.look(DRAINING)
    assert run.marks == marks


def test_a_measurement_that_begins_again_counts_from_then(tmp_path: Path) -> None:
    run = Measured(tmp_path, 6.1)
    run.measurement.begin()
    run.measurement.from_us = before = us_ago(7.0)
    run.measurement.look(LOADING)
    assert (run.marks, run.measurement.from_us - before >= 7e6) == (2, True)


class Clocks:
    """A wall clock and a monotonic clock that stand still, and take `slow_ns` for a reading."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ns, self.monotonic_ns, self.slow_ns = 10**18, 10**12, [0]
        monkeypatch.setattr(time, "time_ns", lambda: self.read(self.wall_ns))
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.read(self.monotonic_ns))

    def read(self, clock_ns: int) -> int:
        suspended_ns = self.slow_ns.pop(0) if len(self.slow_ns) > 1 else 0
        self.wall_ns += suspended_ns
        self.monotonic_ns += suspended_ns
        return clock_ns


@pytest.mark.parametrize("moved_us", [200_000, -1_600_000])
def test_a_clock_that_was_moved_and_moved_back_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved_us: int
) -> None:
    clocks = Clocks(monkeypatch)
    run = Measured(tmp_path, None)
    clocks.wall_ns += moved_us * 1000
    run.measurement.look(LOADING)
    clocks.wall_ns -= moved_us * 1000
    run.measurement.look(LOADING)
    assert run.measurement.clock.moved_us == moved_us


def test_a_clock_whose_speed_is_corrected_was_not_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    run = Measured(tmp_path, None)
    clocks.wall_ns += 10**10
    clocks.monotonic_ns += 10**10
    run.measurement.look(LOADING)
    assert run.measurement.clock.moved_us == 0


def test_a_process_suspended_between_two_readings_sees_no_movement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks(monkeypatch)
    run = Measured(tmp_path, None)
    clocks.slow_ns = [0, 50_000_000, 80_000_000, 0, 0, 30_000_000, 0]
    run.measurement.look(LOADING)
    assert run.measurement.clock.moved_us == 0
