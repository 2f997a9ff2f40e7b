"""Which deaths of the pipeline were asked for, and what is told of the others."""

from __future__ import annotations

from typing import Any

import pytest

from oncebench.audit.exits import Deaths, Unasked, deaths


def line(event: str, t_us: int = 0, **fields: Any) -> dict[str, Any]:
    return {"event": event, "t_us": t_us, **fields}


def test_a_run_without_a_death_has_none() -> None:
    assert (
        deaths([line("pipeline-started", pid=1), line("pipeline-continued"), line("pipeline-stopped")], []) == Deaths()
    )


def test_kills_by_failpoints_and_at_random_were_asked_for() -> None:
    timeline = [line("pipeline-started", pid=1), line("pipeline-killed"), line("pipeline-started", pid=2)]
    hits = [{"action": "kill", "life": 1}]
    assert deaths([*timeline, line("random-kill")], hits) == Deaths(asked=2, by_failpoint=1)


def test_a_life_that_a_failpoint_killed_died_of_it_whatever_the_timeline_calls_it() -> None:
    timeline = [line("pipeline-started", pid=1), line("pipeline-failed", exit_code=-9, why="a line of the log")]
    assert deaths(timeline, [{"action": "kill", "life": 1}]) == Deaths(asked=1, by_failpoint=1)
    assert deaths(timeline, [{"action": "kill", "life": 2}]).asked == 0


def test_a_life_that_did_not_survive_what_a_nemesis_did_died_of_it_too() -> None:
    timeline = [line("pipeline-started", pid=1), line("pipeline-failed", exit_code=1, why="stopped: no broker")]
    assert deaths(timeline, [{"action": "kill-broker", "life": 1}]) == Deaths(asked=1)
    assert deaths(timeline, [{"action": "kill-broker", "life": 2}]).asked == 0


def test_a_death_that_nobody_asked_for_is_told_with_its_cause_and_its_time() -> None:
    timeline = [
        line("pipeline-started", 1_000_000, pid=1),
        line("pipeline-failed", 1_900_000, exit_code=-11, why="a line of the log"),
        line("pipeline-started", 2_000_000, pid=2),
        line("pipeline-failed", 4_500_000, exit_code=1, why="stopped: no"),
    ]
    found = deaths(timeline, [])
    assert found.unasked == (Unasked(None, 11, "a line of the log", 0.9), Unasked(1, None, "stopped: no", 2.5))
    told = found.as_json()
    assert (told["asked"], told["unasked"]) == (0, 2)
    assert [each["told"] for each in told["each_unasked"]] == [
        "signal 11, 0.9 s after its start",
        "exit code 1, 2.5 s after its start",
    ]


@pytest.mark.parametrize(
    ("exit_code", "how"), [(0, "exit code 0"), (1, "exit code 1"), (-1, "signal 1"), (None, "exit code None")]
)
def test_an_end_without_a_signal_is_told_by_its_exit_code_also_where_that_is_0(exit_code: int | None, how: str) -> None:
    (death,) = deaths([line("pipeline-failed", exit_code=exit_code)], []).unasked
    assert (str(death), death.why, death.after_start_s) == (how, "", None)


def test_the_time_after_the_start_is_told_in_tenths_of_a_second() -> None:
    timeline = [line("pipeline-started", 7, pid=1), line("pipeline-failed", 7 + 100_000_049_999, exit_code=1)]
    assert deaths(timeline, []).unasked[0].after_start_s == 100_000.0
    timeline = [line("pipeline-started", 7, pid=1), line("pipeline-failed", 7 + 123_456, exit_code=1)]
    assert deaths(timeline, []).unasked[0].after_start_s == 0.1


def test_a_hit_without_a_life_explains_no_death() -> None:
    timeline = [line("pipeline-started"), line("pipeline-failed", exit_code=1)]
    assert deaths(timeline, [{"action": "kill"}]).asked == 0
