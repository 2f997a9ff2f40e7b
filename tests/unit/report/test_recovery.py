"""Recovery marks, from made-up times in microseconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oncebench.report.measures.recovery import CALM_S, Observed, Recovery, merged, of_run, recoveries

S = 1_000_000
FAULT = 10 * S
BEFORE = [8 * S, 9 * S]
KILLED = (FAULT + 100_000, "pipeline-killed")


def fault(t_us: int = FAULT, batch: int | None = 6, text: str = "after-commit:kill") -> dict[str, Any]:
    return {"t_us": t_us, "batch": batch, "fault": text}


def observed(
    rows: dict[int, int],
    events: list[tuple[int, str]] | None = None,
    running: list[int] | None = None,
    sinks: list[tuple[int, int, int]] | None = None,
    loaded_us: int = 0,
    reports_rows: bool = True,
) -> Observed:
    """A run: rows (seen: latency), timeline, attempts, and sink lines (time, batch, rows)."""
    timeline = [{"t_us": t_us, "event": event} for t_us, event in ([KILLED] if events is None else events)]
    progress = [{"kind": "running", "t_us": t_us} for t_us in ([1 * S, 13 * S] if running is None else running)]
    progress += [{"kind": "sink", "t_us": t_us, "batch": batch, "rows": n} for t_us, batch, n in sinks or []]
    seen, latency = np.array(list(rows), dtype=np.int64), np.array(list(rows.values()), dtype=np.int64)
    return Observed.of(timeline, progress, seen, latency, loaded_us, reports_rows)


def first(rows: dict[int, int], **how: Any) -> Recovery:
    return recoveries([fault()], observed(rows, **how))[0]


def rows(*seen: int, latency: int = S) -> dict[int, int]:
    return dict.fromkeys(seen, latency)


def test_marks_count_from_the_fault() -> None:
    calm = rows(*range(16 * S, 30 * S, S))
    marks = first({**rows(*BEFORE), 14 * S: 6 * S, 15 * S: 3 * S, **calm}, sinks=[(15 * S, 6, 40)])
    assert marks == Recovery(100.0, 3000.0, 4000.0, 6000.0, longest_gap=4000.0, replayed_rows=40)


def test_rows_seen_after_the_fault_but_before_the_restart_are_not_new() -> None:
    assert first(rows(*BEFORE, FAULT + 1000, 14 * S)).first_visible == 4000.0


def test_a_kill_without_a_restart_has_no_new_row() -> None:
    assert first(rows(*BEFORE, FAULT + 200_000), running=[1 * S]) == Recovery(100.0, longest_gap=200.0)


def test_a_latency_that_stays_high_has_not_caught_up() -> None:
    late = rows(*range(14 * S, 40 * S, S), latency=9 * S)
    assert first({**rows(*BEFORE), **late}).caught_up is None


def test_a_short_calm_is_not_caught_up() -> None:
    calm = round(CALM_S * S)
    for end_us, caught_up in ((14 * S + calm, 4000.0), (14 * S + calm - 1, None)):
        assert first(rows(*BEFORE, 14 * S, end_us)).caught_up == caught_up


def test_a_late_row_restarts_the_calm() -> None:
    seen = {**rows(*BEFORE, *range(14 * S, 40 * S, S)), 20 * S: 2 * S}
    assert first(seen).caught_up == 11000.0


def test_a_late_row_after_the_calm_changes_nothing() -> None:
    seen = {**rows(*BEFORE, *range(14 * S, 40 * S, S)), 30 * S: 2 * S}
    assert first(seen).caught_up == 4000.0


def test_a_silence_is_not_calm() -> None:
    seen = {**rows(*BEFORE, 14 * S), 26 * S: 13 * S, **rows(*range(27 * S, 40 * S, S))}
    assert first(seen).caught_up == 17000.0


def test_priming_rows_do_not_count_as_latency_before_the_fault() -> None:
    primed = {2 * S: 9 * S, **rows(*BEFORE), 14 * S: 5 * S, **rows(*range(15 * S, 30 * S, S))}
    assert first(primed, loaded_us=-9 * S).caught_up == 4000.0
    assert first(primed, loaded_us=5 * S).caught_up == 5000.0
    assert first(primed, loaded_us=9 * S).caught_up is None  # nothing of the load was seen before the fault


def test_a_paused_pipeline_replays_nothing() -> None:
    marks = first(rows(*BEFORE, 13 * S), events=[(12 * S, "pipeline-continued")], running=[1 * S])
    assert marks == Recovery(2000.0, None, 3000.0, None, longest_gap=3000.0, replayed_rows=0)


def test_a_pipeline_that_died_while_paused_is_back_with_its_next_attempt() -> None:
    events = [(FAULT + 50_000, "pipeline-continued"), (11 * S, "pipeline-failed")]
    marks = first(rows(*BEFORE, FAULT + 60_000, 14 * S), events=events)
    assert (marks.detect, marks.restart, marks.first_visible) == (50.0, 3000.0, 4000.0)


def test_a_clean_stop_answers_a_fault() -> None:
    assert first(rows(*BEFORE), events=[(11 * S, "pipeline-stopped")]).detect == 1000.0


def test_a_healthy_run_has_only_its_longest_gap() -> None:
    run = observed(rows(3 * S, 1 * S, 2 * S + 500_000))
    assert recoveries([], run) == []
    assert of_run([], [], run) == Recovery(longest_gap=1500.0)


def test_the_pause_between_priming_and_load_is_not_a_gap() -> None:
    primed = {1 * S: 100_000, 2 * S: 100_000}
    run = observed({**primed, **rows(5 * S, 5 * S + 300_000, 6 * S, latency=200_000)}, loaded_us=4 * S)
    assert of_run([], [], run) == Recovery(longest_gap=700.0)
    assert of_run([], [], observed(primed, loaded_us=4 * S)) == Recovery()


def test_a_fault_before_the_first_row_of_the_load_leaves_the_longest_gap() -> None:
    run = observed({9 * S: 100_000, **rows(14 * S, 15 * S, latency=200_000)}, loaded_us=9 * S)
    found = recoveries([fault()], run)
    assert found[0].longest_gap == 4000.0
    assert of_run([fault()], found, run).longest_gap == 4000.0


def test_a_gap_after_a_fault_counts_without_a_recovery() -> None:
    run = observed(rows(FAULT + 2 * S), running=[1 * S])
    assert of_run([fault()], recoveries([fault()], run), run) == Recovery(100.0, longest_gap=2000.0)


def test_faults_without_a_row_between_them_are_one_gap() -> None:
    faults = [fault(), fault(FAULT + 5 * S, 7)]
    events = [KILLED, (FAULT + 5 * S + 100_000, KILLED[1])]
    run = observed(rows(14 * S + 5 * S), events, running=[1 * S, 13 * S, 18 * S])
    found = recoveries(faults, run)
    assert [marks.longest_gap for marks in found] == [5000.0, 4000.0]
    assert of_run(faults, found, run).longest_gap == 9000.0


def test_a_random_kill_is_detected_at_once() -> None:
    kills = [fault(FAULT, None, "random:kill"), fault(FAULT + 27 * S, 9, "random:kill")]
    events = [(kill["t_us"], "random-kill") for kill in kills]
    found = recoveries(kills, observed(rows(*BEFORE, 14 * S, 42 * S), events=events, running=[1 * S, 13 * S, 41 * S]))
    assert [(marks.detect, marks.restart, marks.first_visible) for marks in found] == [
        (0.0, 3000.0, 4000.0), (0.0, 4000.0, 5000.0)
    ]  # fmt: skip


def test_the_time_of_a_fault_ends_at_the_next_fault() -> None:
    faults = [fault(), fault(14 * S, 6), fault(20 * S, 9)]
    events = [KILLED, (14 * S + 1000, "pipeline-killed"), (21 * S, "pipeline-continued")]
    run = observed(
        rows(*BEFORE, 18 * S, 22 * S), events=events, running=[1 * S, 13 * S, 17 * S], sinks=[(18 * S, 6, 9)]
    )
    found = recoveries(faults, run)
    assert found == [
        Recovery(100.0, 3000.0, None, None, longest_gap=4000.0, replayed_rows=0),
        Recovery(1.0, 3000.0, 4000.0, None, longest_gap=4000.0, replayed_rows=9),
        Recovery(1000.0, None, 2000.0, None, longest_gap=2000.0, replayed_rows=0),
    ]
    whole = of_run(faults, found, run)
    assert whole == Recovery(100.0, 7000.0, 8000.0, None, longest_gap=9000.0, replayed_rows=9)
    assert merged([fault["t_us"] for fault in faults[:2]], found[:2]) == Recovery(
        100.0, 7000.0, 8000.0, None, longest_gap=4000.0, replayed_rows=9
    )


def test_a_second_fault_before_recovery_leaves_the_first_unrecovered() -> None:
    faults = [fault(FAULT), fault(12 * S, 6)]
    run = observed(rows(*BEFORE, 18 * S), events=[(12 * S + 1000, "pipeline-killed")], running=[1 * S, 17 * S])
    assert recoveries(faults, run) == [
        Recovery(longest_gap=2000.0), Recovery(1.0, 5000.0, 6000.0, None, longest_gap=6000.0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sinks", "replayed"),
    [
        ([(5 * S, 5, 7), (9 * S, 6, 40), (15 * S, 7, 80)], 0),  # killed when Spark had the batch
        ([(5 * S, 5, 7), (15 * S, 6, 40), (16 * S, 7, 80)], 40),
        ([(5 * S, 7, 7), (15 * S, 6, 40), (16 * S, 7, 80), (17 * S, 8, 160)], 120),  # two batches were taken back
        ([], None),  # no batch came to its end
    ],
)
def test_batches_that_had_begun_replay_rows(sinks: list[tuple[int, int, int]], replayed: int | None) -> None:
    assert first(rows(*BEFORE, 14 * S), sinks=sinks).replayed_rows == replayed


def test_replayed_rows_are_unknown_without_reported_rows() -> None:
    silent = [(9 * S, 6, 0), (15 * S, 6, 0), (22 * S, 8, 0)]
    events = [KILLED, (21 * S, "pipeline-continued")]
    run = observed(rows(*BEFORE, 14 * S, 22 * S), events=events, sinks=silent, reports_rows=False)
    faults = [fault(), fault(20 * S, 8)]
    found = recoveries(faults, run)
    assert [marks.first_visible for marks in found] == [4000.0, 2000.0]
    assert [marks.replayed_rows for marks in [*found, of_run(faults, found, run)]] == [None] * 3


def test_an_open_batch_is_replayed_even_if_no_fault_hit_it() -> None:
    run = observed(rows(*BEFORE, 14 * S), sinks=[(11 * S, 6, 40), (15 * S, 7, 80), (16 * S, 8, 160)])
    assert recoveries([fault()], run)[0].replayed_rows == 0
    left = {"kind": "started", "t_us": 12 * S, "open_batch": 7}
    assert recoveries([fault()], replace(run, progress=[*run.progress, left]))[0].replayed_rows == 80


def test_an_early_kill_replays_the_batch_of_the_previous_fault() -> None:
    kills = [fault(FAULT, 6, "random:kill"), fault(14 * S, None, "random:kill")]
    run = observed(rows(*BEFORE, 19 * S), events=[], running=[1 * S, 13 * S, 17 * S], sinks=[(18 * S, 6, 40)])
    assert [marks.replayed_rows for marks in recoveries(kills, run)] == [0, 40]


def test_marks_have_one_decimal_and_rows_none() -> None:
    reported = Recovery(1.26, replayed_rows=7).as_json()
    assert (reported["detect"], reported["restart"], repr(reported["replayed_rows"])) == (1.3, None, "7")


def test_a_lost_leader_counts_from_its_loss_and_not_from_the_wait_before() -> None:
    lost_us, back_us = FAULT + 5 * S, FAULT + 8 * S
    timeline = [
        {"t_us": lost_us, "event": "leader-killed", "hit_us": FAULT},
        {"t_us": lost_us, "event": "pipeline-continued", "hit_us": FAULT},
        {"t_us": back_us, "event": "leader-killed", "hit_us": FAULT + 1},  # of another fault
    ]
    run = observed(rows(*BEFORE, back_us, back_us + S), running=[1 * S])
    (marks,) = recoveries([fault()], replace(run, timeline=timeline))
    assert marks.longest_gap == 3000.0
