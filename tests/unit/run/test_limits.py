"""The limits of a run grow with its faults, its load, and a slow start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncebench.run import limits as module
from oncebench.run.limits import Limits
from oncebench.run.progress import RunProgress
from oncebench.scenario.cell import Cell
from tests.unit.run.fake_run import FakeSupervisor

CELL = Cell("kafka", "exactly-once", "two-phase", rate=1_000.0, sessions=100)


@pytest.mark.parametrize(
    ("changes", "faults_s"),
    [
        ({}, 0.0),
        ({"faults": ("mid-write:kill", "after-commit:stop-broker:40", "after-commit:outage:2")}, 42.0),
        ({"random_kills": 3, "outage_s": 20.0}, 60.0),
    ],
)
def test_a_fault_may_keep_a_server_down_and_a_drain_waits_for_it(
    tmp_path: Path, changes: dict[str, Any], faults_s: float
) -> None:
    limits, supervisor = Limits(replace(CELL, **changes), 300.0), FakeSupervisor()
    drain = limits.drain(RunProgress(tmp_path, None), supervisor)  # type: ignore[arg-type]
    assert limits.server_s == module.SERVER_LIMIT_S + faults_s
    assert drain.limit_s == module.STANDSTILL_S + faults_s + 2 * 10.0
    assert drain._start_s == 300.0 + faults_s


def test_a_load_without_a_rate_counts_with_the_rate_of_a_slow_run(tmp_path: Path) -> None:
    limits, supervisor = Limits(replace(CELL, rate="max"), 300.0), FakeSupervisor()
    drain = limits.drain(RunProgress(tmp_path, None), supervisor)  # type: ignore[arg-type]
    assert drain.limit_s == module.STANDSTILL_S + 2 * 10_000 / module.FLAT_OUT_EVENTS_PER_S


def test_the_phases_before_the_load_wait_for_a_start_and_their_batch() -> None:
    limits = Limits(replace(CELL, trigger_ms=2_000, open_sessions=10_000), 300.0)
    assert (limits.start_s, limits.warm_up_s, limits.preload_s) == (300.0, 302.0, 350.0)


def test_final_reads_wait_for_the_end_of_every_transaction() -> None:
    assert Limits(replace(CELL, transaction_timeout_ms=60_000), 300.0).settle_s == 60.0 + module.ABORT_MARGIN_S
