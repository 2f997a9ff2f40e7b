"""Which cells can run a workload, and that every room has its part of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadgen.workloads import LATE_BY_US
from loadgen.workloads import WORKLOADS as PLANNED
from oncebench.audit.python.workloads.answers import ANSWERS
from oncebench.audit.python.workloads.windows import LATE_IN_KEY_US
from oncebench.audit.sql.tables import WORKLOADS as COUNTED
from oncebench.errors import UserError
from oncebench.scenario.cell import Cell
from oncebench.scenario.cell_check import require_possible
from oncebench.scenario.workloads import LONGEST_S, WORKLOADS
from pipeline.config import WINDOWS
from pipeline.workloads.queries import QUERIES

CELL = Cell("kafka", "exactly-once", "two-phase", workload=WINDOWS)


def test_every_room_has_its_part_of_each_workload() -> None:
    for parts in (PLANNED, QUERIES, ANSWERS, COUNTED):
        assert list(parts) == list(WORKLOADS)


def test_windows_run_with_a_rate_and_a_kill() -> None:
    require_possible([replace(CELL, faults=("after-prepare:kill",), random_kills=2)])


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (replace(CELL, rate="max"), "need a watermark before the load"),
        (replace(CELL, open_sessions=5), "no sessions in the state"),
        (replace(CELL, max_events_per_batch=500), "far ahead of another"),
        (replace(CELL, faults=("after-commit:lose-checkpoint",)), "takes the watermark away"),
        (replace(CELL, rate=100.0, sessions=3_001), "late for 50 minutes"),
        (replace(CELL, generators=2), "older events of the others"),
    ],
)
def test_windows_refuse_what_leaves_a_late_event_in_doubt(cell: Cell, why: str) -> None:
    with pytest.raises(UserError, match=f"^--workload windows: .*{why}"):
        require_possible([cell])
    require_possible([replace(cell, workload="sessions")])


def test_windows_run_as_long_as_their_late_events_are_late() -> None:
    require_possible([replace(CELL, rate=100.0, sessions=3_000)])
    assert LONGEST_S * 1e6 < LATE_IN_KEY_US < LATE_BY_US


def test_a_workload_is_in_the_title_and_in_the_command() -> None:
    assert CELL.title == "kafka exactly-once two-phase, healthy, windows"
    assert "--workload windows" in CELL.reproduce()
    assert "--workload" not in replace(CELL, workload="sessions").reproduce()


def test_a_skew_is_in_the_title_and_in_the_command() -> None:
    skewed = replace(CELL, workload="sessions", skew=1.2)
    assert skewed.title == "kafka exactly-once two-phase, healthy, skew 1.2"
    assert "--skew 1.2" in skewed.reproduce()
    assert "--skew" not in CELL.reproduce()
