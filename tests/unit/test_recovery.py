"""Recovery marks, from made-up times in microseconds."""

import numpy as np

from oncebench.reports.recovery import Recovery, recovery

S = 1_000_000
FAULT = 10 * S


def told(seen: list[int], latency: list[int], events: list[tuple[int, str]], running: list[int]) -> Recovery:
    timeline = [{"t_us": t_us, "event": event} for t_us, event in events]
    return recovery(timeline, [{"t_us": FAULT}], running, np.array(seen), np.array(latency))


BEFORE = [8 * S, 9 * S]


def test_the_marks_are_counted_from_the_fault() -> None:
    events = [(FAULT + 100_000, "pipeline-killed"), (FAULT + 110_000, "pipeline-started")]
    seen, late = [*BEFORE, 14 * S, 15 * S, 16 * S], [S, S, 6 * S, 3 * S, S]
    marks = told(seen, late, events, [1 * S, 13 * S])
    assert marks == Recovery(detect=100.0, restart=3000.0, first_visible=4000.0, caught_up=6000.0, longest_gap=5000.0)


def test_rows_seen_after_the_fault_but_before_the_restart_are_not_new() -> None:
    marks = told([*BEFORE, FAULT + 1000, 14 * S], [S] * 4, [(FAULT + 1, "pipeline-killed")], [1 * S, 13 * S])
    assert marks.first_visible == 4000.0


def test_a_latency_that_never_comes_back_is_not_called_caught_up() -> None:
    marks = told([*BEFORE, 14 * S, 15 * S], [S, S, S, 9 * S], [(FAULT + 1, "pipeline-killed")], [1 * S, 13 * S])
    assert marks.caught_up is None


def test_a_stopped_pipeline_resumes_without_a_restart() -> None:
    marks = told([*BEFORE, 13 * S], [S] * 3, [(12 * S, "pipeline-continued")], [1 * S])
    assert (marks.restart, marks.first_visible) == (None, 3000.0)


def test_a_healthy_run_has_only_its_longest_gap() -> None:
    marks = recovery([], [], [1 * S], np.array([3 * S, 1 * S, 2 * S + 500_000]), np.array([S, S, S]))
    assert marks == Recovery(longest_gap=1500.0)


def test_a_random_kill_is_seen_when_it_is_done_not_at_the_next_death() -> None:
    timeline = [{"t_us": t_us, "event": "random-kill"} for t_us in (FAULT, FAULT + 27 * S)]
    seen = np.array([*BEFORE, 14 * S, 42 * S])
    marks = recovery(timeline, [], [1 * S, 13 * S, 41 * S], seen, np.array([S] * 4))
    assert marks.detect is not None and marks.restart is not None and marks.first_visible is not None
    assert 0.0 == marks.detect <= marks.restart <= marks.first_visible
    assert (marks.restart, marks.first_visible) == (3000.0, 4000.0)


def test_a_restart_after_a_later_fault_is_none_of_a_pipeline_that_was_stopped_and_went_on() -> None:
    events = [(12 * S, "pipeline-continued"), (30 * S, "pipeline-killed")]
    marks = told([*BEFORE, 13 * S, 45 * S], [S] * 4, events, [1 * S, 40 * S])
    assert (marks.detect, marks.restart, marks.first_visible) == (2000.0, None, 3000.0)
