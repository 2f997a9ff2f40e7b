"""Lateness, and the lines of the status file."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.producer import anchored_clock
from loadgen.status import Lateness, Status, StatusFile, Summary, lateness
from oncebench.audit.python.latency import Distribution


def test_lateness_is_sent_minus_scheduled_in_ms() -> None:
    scheduled_us = np.arange(1_000, dtype=np.int64) * 1_000
    sent_us = scheduled_us + np.arange(1, 1_001) * 100  # 0.1, 0.2, ... 100 ms late
    assert lateness(scheduled_us, sent_us) == Lateness(p50=50.0, p99=99.0, max=100.0)


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=400))
def test_lateness_percentiles_are_those_of_the_audit(late_us: list[int]) -> None:
    scheduled_us = np.full(len(late_us), 2 * 10**9)
    found = lateness(scheduled_us, scheduled_us + np.array(late_us))
    audit = Distribution.of(np.array(late_us) / 1e3)
    assert (found.p50, found.p99, found.max) == (audit.p50, audit.p99, audit.max)


def test_lateness_leaves_out_events_never_attempted() -> None:
    scheduled_us, sent_us = np.array([10_000, 20_000, 30_000, 40_000]), np.array([12_000, 25_000, 0, 0])
    assert lateness(scheduled_us, sent_us) == Lateness(p50=2.0, p99=5.0, max=5.0)


def test_lateness_of_nothing_is_zero() -> None:
    assert lateness(np.zeros(3, np.int64), np.zeros(3, np.int64)) == Lateness(0.0, 0.0, 0.0)


def test_lateness_does_not_change_the_ledger() -> None:
    scheduled_us, sent_us = np.array([1, 2, 3]), np.array([9, 8, 7])
    lateness(scheduled_us, sent_us)
    assert sent_us.tolist() == [9, 8, 7]


def test_the_status_file_ends_with_the_summary(tmp_path: Path) -> None:
    summary = Summary(100, 90, 80, 7, 3, 1.5, 53.333, Lateness(0.1, 0.9, 1.0), 0.9)
    with StatusFile(tmp_path / "load.jsonl") as file:
        file.status(Status(1_000, 50, 40, 30, 0, 160.0, 0.25))
        assert (tmp_path / "load.jsonl").read_text().endswith("}\n")  # can be followed at once
        file.done(summary)
    first, last = map(json.loads, (tmp_path / "load.jsonl").read_text().splitlines())
    assert first == {
        "t_us": 1_000,
        "planned_by_now": 50,
        "sent": 40,
        "acknowledged": 30,
        "failed": 0,
        "rate_1s": 160.0,
        "lateness_p99_ms": 0.25,
    }
    assert last["done"] is True
    assert last["summary"]["lateness_ms"] == {"p50": 0.1, "p99": 0.9, "max": 1.0}
    assert last["summary"]["unknown"] == 3


def test_the_clock_is_epoch_microseconds_and_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = anchored_clock()
    assert abs(clock() - time.time_ns() // 1_000) < 1_000_000
    readings = [clock()]
    wall_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() - 10_000_000_000)
    readings += [clock() for _ in range(1_000)]
    assert readings == sorted(readings)
