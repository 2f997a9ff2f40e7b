"""A run from second to second: what was sent, seen and left to do, and whether the pipeline kept up."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oncebench.audit.python.audit import Sightings
from oncebench.report.comparisons.sustained import why_not
from oncebench.report.measures.timeline import MAX_STEPS, events_after, steadiness, timeline
from tests.unit.report.test_tables import report

S = 1_000_000
START = 1_000 * S


def record(acked_s: list[float], positions: list[tuple[float, int]], in_topic: int | None = None) -> Any:
    acked = np.array([START + round(at * S) for at in acked_s], dtype=np.int64)
    took = {"triggerExecution": 400}
    lines = [
        {"kind": "batch", "t_us": START + round(at * S), "end_offsets": {"0": read}, "duration_ms": took}
        for at, read in positions
    ]
    return SimpleNamespace(
        plan=SimpleNamespace(started_us=START),
        ledger=SimpleNamespace(acked_us=np.append(acked, 0)),  # one event of which nothing is known
        input=SimpleNamespace(table=SimpleNamespace(num_rows=len(acked) if in_topic is None else in_topic)),
        progress=SimpleNamespace(items=lines),
    )


def seen(*rows: tuple[float, float]) -> Sightings:
    """Rows by (seconds after the start when seen, latency in ms)."""
    seen_us = np.array([START + round(at * S) for at, _ in rows], dtype=np.int64)
    latency = np.array([round(ms * 1000) for _, ms in rows], dtype=np.int64)
    return Sightings(seen_us - latency, None, seen_us)


def test_each_second_has_its_events_rows_and_latencies_and_a_silent_one_has_none() -> None:
    told = timeline(record([0.1, 0.2, 1.5], []), seen((0.5, 10), (0.6, 30), (2.5, 40)))
    assert (told["start_us"], told["step_s"]) == (START, 1)
    assert told["sent"] == [2, 1, 0]
    assert told["visible"] == [2, 0, 1]
    assert told["p50_ms"] == [10.0, None, 40.0]
    assert told["p99_ms"] == [30.0, None, 40.0]


def test_lag_is_what_is_in_the_topic_and_in_no_finished_batch() -> None:
    run = record([0.1, 0.2, 1.5], [(-1.0, 7), (1.2, 9), (2.1, 10)], in_topic=10)  # seven were there before
    assert timeline(run, seen((2.5, 1)))["lag"] == [2, 1, 0]


def test_a_batch_that_is_done_at_the_end_of_a_step_is_done_in_it() -> None:
    assert timeline(record([0.1, 0.9], [(1.0, 2)]), seen((1.5, 1)))["lag"] == [0, 0]


@pytest.mark.parametrize(
    ("at_s", "left"),
    [
        (-5.0, 4),  # the seven that were there before are not of the load
        (0.6, 4),
        (0.7, 3.5),  # a quarter of the first batch's time has passed
        (1.0, 2),
        (1.3, 2),
        (1.8, 1),  # half of the second's
        (9.0, 0),
    ],
)
def test_what_work_is_for_is_what_had_still_to_be_read_when_it_began_to_count(at_s: float, left: float) -> None:
    acked = [0.1, 0.2, 0.8, 0.9]
    run = record(acked, [(-1.0, 7), (1.0, 9), (2.0, 11)], in_topic=11)
    assert events_after(run, START + round(at_s * S)) == round(left)


def test_a_batch_that_is_replayed_is_not_read_twice_and_one_without_a_time_is_read_at_its_end() -> None:
    run = record([0.1, 0.2], [(0.5, 2), (0.7, 1), (0.9, 2)])
    assert events_after(run, START + S // 2) == 0
    run.progress.items[0]["duration_ms"] = {}
    assert events_after(run, START + S // 2 - 1) == 2
    assert events_after(run, START + S // 2) == 0


def test_a_batch_that_is_told_again_moves_nothing_back() -> None:
    run = record([0.1, 0.2], [(0.5, 2), (0.7, 1)])
    assert timeline(run, seen((0.9, 1)))["lag"] == [0]


def test_a_long_run_has_wider_steps_and_no_more_of_them() -> None:
    told = timeline(record([0.0, 2.5 * MAX_STEPS], []), seen())
    assert (told["step_s"], len(told["sent"])) == (3, 250)
    assert sum(told["sent"]) == 2


def test_a_run_of_which_nothing_was_seen_has_one_empty_step() -> None:
    told = timeline(record([], []), seen())
    assert (told["sent"], told["visible"], told["p50_ms"], told["lag"]) == ([0], [0], [None], [0])


def shown(lag: list[int], p50: list[float | None]) -> dict[str, Any]:
    return {"step_s": 1, "lag": lag, "p50_ms": p50}


def test_a_lag_that_grows_is_told_as_a_share_of_the_load_and_rising_latency_as_a_share_of_the_early_one() -> None:
    falling_behind = shown([100 * at for at in range(12)], [100.0 + 10 * at for at in range(12)])
    told = steadiness(falling_behind, 1000.0, 0.0, 12.0)
    assert told == {"lag_slope": 0.1, "lag_slope_error": 0.0, "latency_rise": pytest.approx(80 / 115, abs=1e-4)}
    keeping_up = shown([500] * 12, [100.0] * 12)
    assert steadiness(keeping_up, 1000.0, 0.0, 12.0) == {"lag_slope": 0.0, "lag_slope_error": 0.0, "latency_rise": 0.0}


def test_warm_up_and_what_came_after_the_load_say_nothing_of_steadiness() -> None:
    told = steadiness(shown([9000] * 3 + [500] * 9 + [0] * 5, [900.0] * 3 + [100.0] * 9 + [5.0] * 5), 1000.0, 3.0, 12.0)
    assert told == {"lag_slope": 0.0, "lag_slope_error": 0.0, "latency_rise": 0.0}


def test_the_last_second_of_a_load_counts_although_its_last_event_is_due_a_moment_before() -> None:
    growing = shown([100] * 14 + [1000, 0], [100.0] * 16)
    assert steadiness(growing, 1000.0, 3.0, 14.999) == steadiness(growing, 1000.0, 3.0, 15.0)
    assert steadiness(growing, 1000.0, 3.0, 14.6) == steadiness(growing, 1000.0, 3.0, 14.0)


@pytest.mark.parametrize(
    ("rate", "steps"), [("max", 12), (1000.0, 5)], ids=["no rate to keep up with", "too short to tell"]
)
def test_what_cannot_be_told_is_not_told(rate: float | str, steps: int) -> None:
    assert steadiness(shown([1] * steps, [1.0] * steps), rate, 0.0, float(steps)) == {
        "lag_slope": None, "lag_slope_error": None, "latency_rise": None
    }  # fmt: skip


def test_a_pipeline_that_shows_rows_seldom_has_a_slope_and_no_rise() -> None:
    told = steadiness(shown([100 * at for at in range(12)], [100.0, None, None, None] * 3), 1000.0, 0.0, 12.0)
    assert told == {"lag_slope": 0.1, "lag_slope_error": 0.0, "latency_rise": None}


@pytest.mark.parametrize(("behind", "least", "most"), [(0.0, 0.0, 0.06), (0.1, 0.95, 1.0)])
def test_a_lag_that_goes_up_and_down_with_the_batches_is_told_from_one_that_grows(
    behind: float, least: float, most: float
) -> None:
    drawn = random.Random(1)
    told = [steadiness(shown(batched(drawn, behind), [1.0] * 17), 1000.0, 0.0, 17.0) for _ in range(400)]
    falling = sum(not keeps_up(seen) for seen in told) / len(told)
    assert least <= falling <= most


def batched(drawn: random.Random, behind: float) -> list[int]:
    """The lag after each of 17 s at 1,000 events/s: batches of about 0.9 s take what was there when they began."""
    end_s, taken_s, lag, at = -drawn.uniform(0.0, 0.9), 0.0, [], 1
    while at <= 17:
        begin_s, end_s = end_s, end_s + 0.9 * drawn.uniform(0.85, 1.15)
        while at <= 17 and at < end_s:
            lag.append(round(1000 * (at - taken_s + behind * at)))
            at += 1
        taken_s = begin_s
    return lag


def keeps_up(seen: dict[str, float | None]) -> bool:
    return not list(why_not(report(steadiness=seen)))
