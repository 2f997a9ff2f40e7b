"""A plan from measured runs: the fit, the forecast, the choice and the error."""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebench.errors import ExitCode, UserError
from oncebench.planning.choice import MOST_BUSY, RESTART_S, beyond, choose, transaction_timeout_s
from oncebench.planning.held_out import Error, errors
from oncebench.planning.model import FEWEST_SETTINGS, Costs, Line, duration_ms, fit, forecast, processor_ms
from oncebench.planning.points import PlanSetting, Point, describes, points
from oncebench.planning.text import command_text, errors_text, plan_text
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell
from tests import ROOT, sample_reports

# A row of the table of engines in README.md.
TWO_PHASE = "| Spark, our sink | exactly-once, two-phase |"
TRUE = Costs(Line(150.0, 8.0, 0.008), Line(170.0, 6.0, 0.014), 1.05, 1.3, (), 2)
SETTINGS = (
    PlanSetting(1_000.0, 2, 2),
    PlanSetting(1_000.0, 2, 16),
    PlanSetting(3_000.0, 2, 2),
    PlanSetting(3_000.0, 2, 4),
    PlanSetting(10_000.0, 2, 2),
    PlanSetting(3_000.0, 2, 2, 1_000),
)


def measured(setting: PlanSetting) -> Point:
    """What a machine with the costs `TRUE` would measure."""
    expected = forecast(TRUE, setting)
    assert expected is not None
    cpu_ms = expected.cpu_us * expected.events / 1000
    return Point(setting, expected.events, expected.batch_ms, cpu_ms, expected.p50_ms, expected.p99_ms, 2)


def flat_out(partitions: int, events: float) -> Point:
    setting = PlanSetting(None, 2, partitions)
    return Point(
        setting, events, duration_ms(TRUE, setting, events), processor_ms(TRUE, setting, events), None, None, 2
    )


POINTS = (*map(measured, SETTINGS), flat_out(2, 100_000), flat_out(16, 100_000))


def test_a_fit_finds_the_costs_that_made_the_runs() -> None:
    costs = fit(POINTS)
    for found, true in ((costs.batch, TRUE.batch), (costs.cpu, TRUE.cpu)):
        assert found.fixed == pytest.approx(true.fixed)
        assert found.per_partition == pytest.approx(true.per_partition)
        assert found.per_event == pytest.approx(true.per_event)
    assert (costs.p50, costs.p99) == pytest.approx((TRUE.p50, TRUE.p99))


@given(st.floats(1, 100_000), st.integers(1, 32), st.integers(1, 256), st.sampled_from((0, 200, 1_000)))
def test_a_batch_takes_the_events_of_its_interval(rate: float, cores: int, partitions: int, trigger_ms: int) -> None:
    setting = PlanSetting(rate, cores, partitions, trigger_ms)
    expected = forecast(TRUE, setting)
    if expected is None:
        assert rate / 1000 * TRUE.batch.per_event * math.ceil(partitions / cores) / partitions >= 1
        return
    interval = max(trigger_ms, expected.batch_ms)
    assert expected.events == pytest.approx(rate / 1000 * interval)


def test_eight_tasks_on_six_cores_take_two_waves() -> None:
    eight = [duration_ms(TRUE, PlanSetting(None, cores, 8), 100_000) for cores in (4, 6, 7, 8)]
    a_wave = TRUE.batch.per_partition + TRUE.batch.per_event * 100_000 / 8
    assert eight == pytest.approx([TRUE.batch.fixed + waves * a_wave for waves in (2, 2, 2, 1)])
    assert forecast(TRUE, PlanSetting(200_000.0, 6, 8)) != forecast(TRUE, PlanSetting(200_000.0, 6, 6))


def test_an_overloaded_setting_has_no_forecast() -> None:
    assert forecast(TRUE, PlanSetting(260_000.0, 2, 2)) is None
    assert forecast(TRUE, PlanSetting(260_000.0, 16, 2)) is None  # two partitions use two cores
    assert forecast(TRUE, PlanSetting(200_000.0, 2, 2)) is not None


def test_a_choice_keeps_the_latency_with_the_fewest_cores() -> None:
    plan = choose(TRUE, 200_000.0, 1_000.0)
    assert plan.expected.p99_ms <= 1_000
    assert plan.expected.busy <= MOST_BUSY
    fewer = plan.setting.cores - 1
    for partitions in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        for trigger_ms in (0, 100, 200, 500, 1_000):
            expected = forecast(TRUE, PlanSetting(200_000.0, fewer, partitions, trigger_ms))
            assert expected is None or expected.p99_ms > 1_000 or expected.busy > MOST_BUSY


def test_a_choice_spends_a_loose_latency_on_fewer_batches() -> None:
    tight, loose = choose(TRUE, 3_000.0, 700.0), choose(TRUE, 3_000.0, 20_000.0)
    assert loose.setting.trigger_ms > tight.setting.trigger_ms
    assert loose.expected.cpu_us < tight.expected.cpu_us


def test_a_choice_takes_the_cheapest_setting_of_its_cores() -> None:
    plan = choose(TRUE, 3_000.0, 20_000.0)
    for partitions in (1, 2, 4, 8, 16):
        for trigger_ms in (0, 500, 5_000, 10_000):
            other = forecast(TRUE, PlanSetting(3_000.0, plan.setting.cores, partitions, trigger_ms))
            fits = other is not None and other.p99_ms <= 20_000 and other.busy <= MOST_BUSY
            assert not fits or other is None or plan.expected.cpu_us <= other.cpu_us


@pytest.mark.parametrize("rate", [100_000.0, 250_000.0, 400_000.0])
def test_a_choice_needs_no_more_cores_than_any_partitions_do(rate: float) -> None:
    plan = choose(TRUE, rate, 1_500.0)
    for partitions in range(1, 257):
        other = forecast(TRUE, PlanSetting(rate, plan.setting.cores - 1, partitions))
        assert other is None or other.p99_ms > 1_500 or other.busy > MOST_BUSY


def test_only_healthy_runs_count() -> None:
    (healthy, *_), (faulted, *_) = (
        [each for each in made if each["cell"]["sink"] == "kafka" and each["cell"]["variant"] == "two-phase"]
        for made in (list(sample_reports.healthy(1)), list(sample_reports.faulted(1)))
    )
    assert not describes(faulted, "kafka", "exactly-once", "two-phase")
    assert describes(healthy, "kafka", "exactly-once", "two-phase")
    assert not describes(healthy, "kafka", "exactly-once", "idempotent")


def healthy_report(**config: Any) -> dict[str, Any]:
    """A report that has a point, with these fields of its cell."""
    chosen = {"sink": "kafka", "guarantee": "exactly-once", "variant": "two-phase"}
    made = next(each for each in sample_reports.healthy(1) if each["cell"].items() >= chosen.items())
    made["batches"]["input_rows"] = 600.0
    return {**made, "config": {**made["config"], **config}}


def points_of(*reports: dict[str, Any]) -> list[Point]:
    return points(cast("list[Report]", list(reports)), "kafka", "exactly-once", "two-phase")


PLANNED = {"rate", "sessions", "seed", "partitions", "trigger_ms", "max_events_per_batch", "warmup_s"}


@pytest.mark.parametrize("name", [field.name for field in fields(Cell)])
def test_a_run_counts_only_if_nothing_else_than_the_plan_chooses_differs(name: str) -> None:
    usual = Cell("kafka", "exactly-once", "two-phase").as_json()[name]
    other = {str: "another", list: ["another"], float: 7.0}.get(type(usual), 7)
    assert len(points_of(healthy_report())) == 1
    assert len(points_of(healthy_report(**{name: other}))) == (name in PLANNED)


def test_a_restart_takes_no_longer_than_the_plan_expects() -> None:
    """The longest published recovery of a two-phase variant of Spark."""
    (row,) = (line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(TWO_PHASE))
    recovery = re.search(r"\| ([0-9.]+) s \(([0-9.]+) to ([0-9.]+)\) \|", row)
    assert recovery is not None, row
    assert float(recovery[3]) <= RESTART_S


def test_a_run_that_fell_behind_does_not_count() -> None:
    growing = {"lag_slope": 0.4, "lag_slope_error": 0.01, "latency_rise": 3.0}
    assert points_of({**healthy_report(), "steadiness": growing}) == []


def test_runs_of_several_machines_are_refused() -> None:
    here = healthy_report()
    there = {**here, "environment": {**here["environment"], "cpu": "another processor"}}
    assert len(points_of(here, here)) == 2
    with pytest.raises(UserError, match=r"2 machines \(a processor, 2 cores; another processor, 2 cores\)") as refused:
        points_of(here, there)
    assert refused.value.exit_code == ExitCode.USAGE
    assert len(points_of(here, {**there, "probe": True})) == 1


OWN_KAFKA = {"own": False, "bootstrap_servers": "b1:9092"}


def report_of_own_kafka(servers: dict[str, Any] = OWN_KAFKA) -> dict[str, Any]:
    """A report of a run on the user's Kafka, whose processor time cannot be measured."""
    made = healthy_report()
    made["environment"] = {**made["environment"], "kafka": servers}
    return {**made, "cpu_s_per_million_events": None, "pipeline_cpu_s_per_million_events": 300.0}


def test_runs_on_the_users_kafka_count_with_the_pipelines_cores_alone() -> None:
    ours, theirs = points_of(healthy_report()), points_of(report_of_own_kafka())
    assert [point.alone for point in (*ours, *theirs)] == [False, True]
    assert theirs[0].cpu_ms / ours[0].cpu_ms == pytest.approx(300.0 / healthy_report()["cpu_s_per_million_events"])
    costs = fit([replace(point, alone=True) for point in POINTS])
    text = plan_text(choose(costs, 3_000.0, 1_000.0), costs, None, 0.0)
    assert " for the pipeline alone; your servers need their own, " in text
    assert "µs per event, pipeline alone" in text


def test_runs_of_several_servers_are_refused() -> None:
    other = report_of_own_kafka({**OWN_KAFKA, "bootstrap_servers": "c1:9092"})
    with pytest.raises(UserError, match=r"2 groups of servers \(kafka b1:9092; started by the run\)"):
        points_of(healthy_report(), report_of_own_kafka())
    with pytest.raises(UserError, match=r"2 groups of servers \(kafka b1:9092; kafka c1:9092\)"):
        points_of(other, report_of_own_kafka())


def test_the_cores_of_a_run_are_the_slots_of_its_master() -> None:
    made = healthy_report()
    made["environment"] = {**made["environment"], "cores": 16}
    (point,) = points_of(made)
    assert (point.setting.cores, point.machine) == (2, 16)


def test_an_impossible_latency_is_refused_with_the_lowest_one() -> None:
    with pytest.raises(UserError, match=r"lowest p99 is \d+ ms, and 100 ms was asked"):
        choose(TRUE, 3_000.0, 100.0)


def test_a_rate_beyond_all_cores_is_refused() -> None:
    with pytest.raises(UserError, match="more than 128 cores"):
        choose(TRUE, 1e9, 1_000.0)


def test_a_plan_lists_what_was_not_measured() -> None:
    costs = fit(POINTS)
    assert beyond(costs, PlanSetting(200_000.0, 6, 32)) == [
        "6 cores (measured: 2)",
        "32 partitions (measured: 2 to 16)",
        "200,000 events/s (measured: up to 10,000, and flat out)",
    ]
    assert beyond(costs, PlanSetting(3_000.0, 2, 4)) == []
    assert beyond(costs, PlanSetting(3_000.0, 2, 4, 5_000)) == ["trigger 5,000 ms (measured: 0 to 1,000 ms)"]


@pytest.mark.parametrize("cores", [2, 16])
def test_two_slots_on_a_larger_machine_measure_neither_two_cores_nor_all(cores: int) -> None:
    costs = fit([replace(point, machine=16) for point in POINTS])
    assert beyond(costs, PlanSetting(3_000.0, cores, 4)) == [f"{cores} cores (measured: 2 tasks at once on 16 cores)"]


def test_a_transaction_outlives_the_outage() -> None:
    plan = choose(TRUE, 3_000.0, 1_000.0)
    assert transaction_timeout_s(plan, 0) == 60
    assert transaction_timeout_s(plan, 600) >= 600 + RESTART_S


def test_exact_runs_have_no_error() -> None:
    found = errors(POINTS)
    assert {error.setting for error in found} == {point.setting for point in POINTS}
    assert all(error.share == pytest.approx(0, abs=1e-6) for error in found)
    assert not any(error.missed for error in found)


@pytest.mark.parametrize("at", range(len(POINTS)))
def test_a_setting_is_never_predicted_from_itself(at: int) -> None:
    wrong = replace(POINTS[at], batch_ms=POINTS[at].batch_ms * 3)
    points = [*POINTS[:at], wrong, *POINTS[at + 1 :]]
    own = [error for error in errors(points) if error.setting == wrong.setting and error.name == "batch ms"]
    assert [error.share for error in own] == [pytest.approx(1 / 3 - 1)]
    assert own[0].missed
    assert "-67% missed" in errors_text(own, fit(points))


def test_a_setting_that_the_fit_needs_is_not_predicted() -> None:
    one_partitioned = [point for point in POINTS if point.setting.partitions == 2] + [POINTS[1]]
    found = errors(one_partitioned)
    assert {error.setting for error in found} == {point.setting for point in one_partitioned} - {POINTS[1].setting}
    text = errors_text(found, fit(one_partitioned))
    assert text.endswith("Not predicted, because the plan needs their runs: 1,000 events/s, 16 partitions.\n")


def test_the_fewest_settings_have_a_plan_without_errors() -> None:
    fewest = POINTS[:FEWEST_SETTINGS]
    assert errors(fewest) == []
    assert errors_text([], fit(fewest)).startswith(f"No error of the plan: its {FEWEST_SETTINGS} settings")


def test_too_few_runs_are_refused() -> None:
    for few in (POINTS[:3], [POINTS[0]] * 9, [flat_out(2, n) for n in (1, 2, 3, 4)]):
        with pytest.raises(UserError, match="Give --measure") as refused:
            fit(few)
        assert refused.value.exit_code == ExitCode.USAGE


def test_the_text_holds_the_plan_and_its_command() -> None:
    costs = fit(POINTS)
    plan = choose(costs, 200_000.0, 1_000.0)
    text = plan_text(plan, costs, 1_000, 900.0)
    assert f"{plan.setting.cores} for pipeline and brokers" in text
    assert "set the broker's transaction.max.timeout.ms to 1000000" in text
    assert "not measured" in text
    command = command_text(plan, "kafka", "exactly-once", "two-phase", 60)
    assert command.startswith("oncebench run --sink kafka --guarantee exactly-once --variant two-phase --rate 200000 ")
    assert command.endswith("--transaction-timeout 60000")


def test_a_pipeline_that_would_not_keep_up_is_a_miss() -> None:
    slow = [replace(point, batch_ms=point.batch_ms * 40) for point in POINTS]
    found = [error for error in errors(slow) if error.predicted is None]
    assert found
    assert all(error.missed and error.share is None for error in found)
    assert "does not keep up" in errors_text(found, fit(slow))


def test_a_forecast_of_a_flat_out_load_is_refused() -> None:
    with pytest.raises(ValueError, match="no steady state"):
        forecast(TRUE, PlanSetting(None, 2, 2))


def test_a_fit_without_a_fixed_part_has_a_forecast_and_a_plan() -> None:
    costs = replace(TRUE, batch=Line(0.0, 0.0, 0.008))
    expected = forecast(costs, PlanSetting(1_000.0, 2, 2))
    assert expected is not None
    assert expected.events == 1
    assert choose(costs, 3_000.0, 1_000.0).expected.busy <= MOST_BUSY


def test_nothing_of_a_forecast_is_negative_or_endless() -> None:
    for setting in SETTINGS:
        expected = forecast(fit(POINTS), setting)
        assert expected is not None
        assert all(value > 0 and math.isfinite(value) for value in vars(expected).values())


def test_runs_of_one_setting_have_different_names() -> None:
    setting = PlanSetting(None, 2, 2)
    names = {Error(setting, events, "batch ms", 1.0, 1.0).run_text for events in (50_000.0, 100_000.0)}
    assert names == {"flat out, 2 partitions, 50,000 events a batch", "flat out, 2 partitions, 100,000 events a batch"}
