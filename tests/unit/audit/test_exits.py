"""Exits of the pipeline: which were intended, and the causes of the others."""

from __future__ import annotations

from typing import Any

import pytest

from oncebench.audit.exits import AFTERMATH_US, Exits, UnintendedExit, exits_of


def line(event: str, t_us: int = 0, **fields: Any) -> dict[str, Any]:
    return {"event": event, "t_us": t_us, **fields}


def test_a_run_without_an_exit_has_none() -> None:
    assert (
        exits_of([line("pipeline-started", pid=1), line("pipeline-continued"), line("pipeline-stopped")], []) == Exits()
    )


def test_kills_by_failpoints_and_at_random_are_intended() -> None:
    timeline = [line("pipeline-started", pid=1), line("pipeline-killed"), line("pipeline-started", pid=2)]
    hits = [{"action": "kill", "life": 1}]
    assert exits_of([*timeline, line("random-kill")], hits) == Exits(intended=2, by_failpoint=1)


def test_an_exit_after_a_failpoint_kill_is_intended_whatever_the_timeline_has() -> None:
    timeline = [line("pipeline-started", pid=1), line("pipeline-failed", exit_code=-9, why="a line of the log")]
    assert exits_of(timeline, [{"action": "kill", "life": 1}]) == Exits(intended=1, by_failpoint=1)
    assert exits_of(timeline, [{"action": "kill", "life": 2}]).intended == 0


def test_an_exit_of_an_attempt_that_hit_a_fault_is_intended() -> None:
    timeline = [line("pipeline-started", pid=1), line("pipeline-failed", exit_code=1, why="stopped: no broker")]
    assert exits_of(timeline, [{"action": "kill-broker", "life": 1}]) == Exits(intended=1)
    assert exits_of(timeline, [{"action": "kill-broker", "life": 2}]).intended == 0


@pytest.mark.parametrize("action", ["stop", "kill-broker"])
@pytest.mark.parametrize(("later_us", "intended"), [(AFTERMATH_US, 1), (AFTERMATH_US + 1, 0)])
def test_an_exit_long_after_a_fault_was_over_is_unintended(action: str, later_us: int, intended: int) -> None:
    hit = {"action": action, "fault": f"mid-write:{action}:5", "t_us": 10_000_000, "life": 7}
    timeline = [
        line("pipeline-started", pid=7),
        line("nemesis-over", 15_000_000, hit_us=10_000_000),
        line("pipeline-failed", 15_000_000 + later_us, exit_code=1, why="OutOfMemoryError"),
    ]
    found = exits_of(timeline, [hit])
    assert (found.intended, len(found.unintended)) == (intended, 1 - intended)
    second = {**hit, "t_us": 15_000_000 + later_us}  # its end is not recorded
    assert exits_of(timeline, [hit, second]).intended == exits_of(timeline, [second, hit]).intended == 1


def test_an_unintended_exit_comes_with_its_cause_and_time() -> None:
    timeline = [
        line("pipeline-started", 1_000_000, pid=1),
        line("pipeline-failed", 1_900_000, exit_code=-11, why="a line of the log"),
        line("pipeline-started", 2_000_000, pid=2),
        line("pipeline-failed", 4_500_000, exit_code=1, why="stopped: no"),
    ]
    found = exits_of(timeline, [])
    assert found.unintended == (
        UnintendedExit(None, 11, "a line of the log", 0.9),
        UnintendedExit(1, None, "stopped: no", 2.5),
    )
    report = found.as_json()
    assert (report["asked"], report["unasked"]) == (0, 2)
    assert report["each_unasked"][1] == {"exit_code": 1, "signal": None, "why": "stopped: no", "after_start_s": 2.5}
    assert [str(UnintendedExit.of({**each, "told": "by older versions"})) for each in report["each_unasked"]] == [
        "signal 11, 0.9 s after its start",
        "exit code 1, 2.5 s after its start",
    ]


@pytest.mark.parametrize(
    ("exit_code", "how"), [(0, "exit code 0"), (1, "exit code 1"), (-1, "signal 1"), (None, "exit code None")]
)
def test_an_exit_without_a_signal_comes_with_its_exit_code(exit_code: int | None, how: str) -> None:
    (one,) = exits_of([line("pipeline-failed", exit_code=exit_code)], []).unintended
    assert (str(one), one.why, one.after_start_s) == (how, "", None)


def test_the_time_after_the_start_is_in_tenths_of_a_second() -> None:
    timeline = [line("pipeline-started", 7, pid=1), line("pipeline-failed", 7 + 100_000_049_999, exit_code=1)]
    assert exits_of(timeline, []).unintended[0].after_start_s == 100_000.0
    timeline = [line("pipeline-started", 7, pid=1), line("pipeline-failed", 7 + 123_456, exit_code=1)]
    assert exits_of(timeline, []).unintended[0].after_start_s == 0.1


def test_a_hit_without_an_attempt_explains_no_exit() -> None:
    timeline = [line("pipeline-started"), line("pipeline-failed", exit_code=1)]
    assert exits_of(timeline, [{"action": "kill"}]).intended == 0
