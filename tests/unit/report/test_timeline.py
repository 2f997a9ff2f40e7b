"""A run second by second, and whether the pipeline kept up with its load."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oncebench.audit.python.audit import Sightings
from oncebench.report.comparisons.sustained import fell_behind, why_not
from oncebench.report.measures.timeline import MAX_STEPS, events_after, steadiness, timeline
from oncebench.scenario.cell import Cell
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
        ledger=SimpleNamespace(acked_us=np.append(acked, 0)),  # an event without an acknowledgement
        input=SimpleNamespace(table=SimpleNamespace(num_rows=len(acked) if in_topic is None else in_topic)),
        progress=SimpleNamespace(items=lines),
    )


def seen(*rows: tuple[float, float]) -> Sightings:
    """Rows by (seconds after the start when seen, latency in ms)."""
    seen_us = np.array([START + round(at * S) for at, _ in rows], dtype=np.int64)
    latency = np.array([round(ms * 1000) for _, ms in rows], dtype=np.int64)
    return Sightings(seen_us - latency, None, seen_us)


def test_a_silent_second_has_no_latency() -> None:
    reported = timeline(record([0.1, 0.2, 1.5], []), seen((0.5, 10), (0.6, 30), (2.5, 40)))
    assert (reported["start_us"], reported["step_s"]) == (START, 1)
    assert reported["sent"] == [2, 1, 0]
    assert reported["visible"] == [2, 0, 1]
    assert reported["p50_ms"] == [10.0, None, 40.0]
    assert reported["p99_ms"] == [30.0, None, 40.0]


def test_lag_is_what_no_finished_batch_has_read() -> None:
    run = record([0.1, 0.2, 1.5], [(-1.0, 7), (1.2, 9), (2.1, 10)], in_topic=10)  # seven were there before
    assert timeline(run, seen((2.5, 1)))["lag"] == [2, 1, 0]


def test_a_batch_that_ends_with_a_step_belongs_to_it() -> None:
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
def test_events_after_a_time_are_those_still_to_be_read(at_s: float, left: float) -> None:
    acked = [0.1, 0.2, 0.8, 0.9]
    run = record(acked, [(-1.0, 7), (1.0, 9), (2.0, 11)], in_topic=11)
    assert events_after(run, START + round(at_s * S)) == round(left)


def test_a_replayed_batch_is_not_read_twice() -> None:
    run = record([0.1, 0.2], [(0.5, 2), (0.7, 1), (0.9, 2)])
    assert events_after(run, START + S // 2) == 0
    run.progress.items[0]["duration_ms"] = {}
    assert events_after(run, START + S // 2 - 1) == 2
    assert events_after(run, START + S // 2) == 0


def test_a_repeated_batch_line_moves_nothing_back() -> None:
    run = record([0.1, 0.2], [(0.5, 2), (0.7, 1)])
    assert timeline(run, seen((0.9, 1)))["lag"] == [0]


def stepwise(*steps: tuple[float, str, int]) -> Any:
    """Returns the record of an engine without batches.

    Args:
        steps: (seconds, partition, offset up to which the engine had read by then).
    """
    run = record([0.1, 0.2, 1.5, 1.6], [])
    run.progress.items = [
        {"kind": "position", "t_us": START + 99 * S, "read_us": START + round(at * S), "end_offsets": {partition: end}}
        for at, partition, end in steps
    ]
    return run


def test_lag_is_what_no_completed_checkpoint_has_read() -> None:
    run = stepwise((1.0, "0", 1), (1.0, "1", 1), (2.0, "0", 2), (2.0, "1", 2))
    assert timeline(run, seen((1.9, 1)))["lag"] == [0, 0]
    assert timeline(stepwise((2.0, "0", 4)), seen((1.9, 1)))["lag"] == [2, 0]


def test_a_step_of_the_position_takes_the_time_since_the_step_before() -> None:
    run = stepwise((1.0, "0", 1), (1.2, "1", 1), (2.0, "0", 3))
    assert [events_after(run, START + round(at * S)) for at in (0.9, 1.1, 1.5, 2.0)] == [4, 3, 1, 0]


@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_half_of_a_step_is_read_at_half_of_its_time_in_each_partition(partitions: int) -> None:
    acked, each = 1_600, 1_600 // partitions // 2
    run = record([0.1] * acked, [])
    run.progress.items = [
        {"kind": "position", "t_us": START + 99 * S, "read_us": START + at * S, "end_offsets": {str(part): at * each}}
        for at in (1, 2)
        for part in range(partitions)
    ]
    assert events_after(run, START + round(1.5 * S)) == acked // 4


def test_the_first_step_of_an_attempt_begins_when_it_runs() -> None:
    run = stepwise((8.0, "0", 4))
    run.progress.items.append({"kind": "running", "t_us": START})
    assert [events_after(run, START + round(at * S)) for at in (2.0, 4.0, 8.0)] == [3, 2, 0]
    again = stepwise((1.0, "0", 2), (8.0, "0", 4))
    again.progress.items += [{"kind": "running", "t_us": START}, {"kind": "running", "t_us": START + 6 * S}]
    assert [events_after(again, START + round(at * S)) for at in (0.5, 5.0, 7.0, 8.0)] == [3, 2, 1, 0]


def test_a_long_run_has_wider_steps() -> None:
    reported = timeline(record([0.0, 2.5 * MAX_STEPS], []), seen())
    assert (reported["step_s"], len(reported["sent"])) == (3, 250)
    assert sum(reported["sent"]) == 2


def test_a_run_without_rows_has_one_empty_step() -> None:
    reported = timeline(record([], []), seen())
    assert (reported["sent"], reported["visible"], reported["p50_ms"], reported["lag"]) == ([0], [0], [None], [0])


def load(warmup_s: float, rate: float | str = 1000.0, **settings: Any) -> Cell:
    return Cell("kafka", "exactly-once", "two-phase", rate=rate, warmup_s=warmup_s, **settings)


def steps_of(lag: list[int], p50: list[float | None]) -> dict[str, Any]:
    return {"step_s": 1, "lag": lag, "p50_ms": p50}


def test_lag_and_latency_growth_are_shares() -> None:
    falling_behind = steps_of([100 * at for at in range(12)], [100.0 + 10 * at for at in range(12)])
    reported = steadiness(falling_behind, load(0.0), 12.0)
    assert reported == {"lag_slope": 0.1, "lag_slope_error": 0.0, "latency_rise": pytest.approx(80 / 115, abs=1e-4)}
    keeping_up = steps_of([500] * 12, [100.0] * 12)
    assert steadiness(keeping_up, load(0.0), 12.0) == {"lag_slope": 0.0, "lag_slope_error": 0.0, "latency_rise": 0.0}


def test_steadiness_excludes_warm_up_and_draining() -> None:
    steps = steps_of([9000] * 3 + [500] * 9 + [0] * 5, [900.0] * 3 + [100.0] * 9 + [5.0] * 5)
    assert steadiness(steps, load(3.0), 12.0) == {"lag_slope": 0.0, "lag_slope_error": 0.0, "latency_rise": 0.0}


def test_the_last_second_of_a_load_is_complete() -> None:
    growing = steps_of([100] * 14 + [1000, 0], [100.0] * 16)
    assert steadiness(growing, load(3.0), 14.999) == steadiness(growing, load(3.0), 15.0)
    assert steadiness(growing, load(3.0), 14.6) == steadiness(growing, load(3.0), 14.0)


@pytest.mark.parametrize(
    ("rate", "shape", "steps"),
    [
        ("max", "constant", 12),
        (1000.0, "ramp:100", 12),
        (1000.0, "burst:3000:5:12", 12),
        (1000.0, "constant", 5),
    ],
    ids=["no rate to keep up with", "the lag rises with the rate", "the lag is that of the burst", "too short to tell"],
)
def test_an_unknown_steadiness_is_none(rate: float | str, shape: str, steps: int) -> None:
    cell = load(0.0, rate=rate, shape=shape)
    assert steadiness(steps_of([1] * steps, [1.0] * steps), cell, float(steps)) == {
        "lag_slope": None, "lag_slope_error": None, "latency_rise": None
    }  # fmt: skip


def test_rare_rows_have_a_slope_and_no_rise() -> None:
    reported = steadiness(steps_of([100 * at for at in range(12)], [100.0, None, None, None] * 3), load(0.0), 12.0)
    assert reported == {"lag_slope": 0.1, "lag_slope_error": 0.0, "latency_rise": None}


@pytest.mark.parametrize(("behind", "least", "most"), [(0.0, 0.0, 0.06), (0.1, 0.95, 1.0)])
def test_a_lag_that_swings_with_batches_is_not_growing(behind: float, least: float, most: float) -> None:
    drawn = random.Random(1)
    reported = [steadiness(steps_of(batched(drawn, behind), [1.0] * 17), load(0.0), 17.0) for _ in range(400)]
    falling = sum(not keeps_up(seen) for seen in reported) / len(reported)
    assert least <= falling <= most


def batched(drawn: random.Random, behind: float) -> list[int]:
    """The lag after each of 17 s at 1,000 events/s, with batches of about 0.9 s."""
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


TRIGGER_S = 15.0


@pytest.mark.parametrize("load_s", [17, 20, 30, 45, 60])
@pytest.mark.parametrize("batch_s", [0.5, 5.0])
def test_a_load_of_few_triggers_is_no_draw(load_s: int, batch_s: float) -> None:
    """A pipeline that keeps up is not marked, wherever the load begins within a trigger."""
    cell = load(0.0, trigger_ms=round(TRIGGER_S * 1000))
    for first_s in np.arange(0.0, TRIGGER_S, 0.25):
        began_s = np.arange(first_s - 3 * TRIGGER_S, load_s, TRIGGER_S)
        at = range(1, load_s + 1)
        lag = [round(1000 * (now - began_s[began_s + batch_s <= now].max())) for now in at]
        kept_up = steadiness(steps_of(lag, [None] * load_s), cell, float(load_s))
        assert not fell_behind(report(steadiness=kept_up)), (first_s, kept_up)
        behind = [events + 700 * now for events, now in zip(lag, at, strict=True)]
        fell = steadiness(steps_of(behind, [None] * load_s), cell, float(load_s))
        assert fell_behind(report(steadiness=fell)) or load_s < 2 * TRIGGER_S, (first_s, fell)


@pytest.mark.parametrize(("growth", "behind"), [(0.0, False), (0.003, True), (0.009, True)])
def test_a_backlog_that_grows_slowly_for_an_hour_is_one(growth: float, behind: bool) -> None:
    drawn = random.Random(2)
    at = range(12, 3601, 12)
    lag = [round(1000 * (drawn.uniform(0.35, 0.6) + growth * now)) for now in at]
    latencies = [400.0 + 1000 * growth * now for now in at]
    seen = steadiness({"step_s": 12, "lag": lag, "p50_ms": latencies}, load(10.0), 3600.0)
    assert fell_behind(report(steadiness=seen)) is behind
