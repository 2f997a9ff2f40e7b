"""Runs are compared within their round; an interval across zero shows no difference."""

from __future__ import annotations

from dataclasses import fields
from math import comb
from typing import Any

import pytest

from oncebench.report.comparisons import paired
from oncebench.report.measures.metrics import BY_NAME, METRICS, figure, why_no_speed
from oncebench.report.tables import cost_table
from oncebench.report.tables import table as tables
from oncebench.scenario.cell import Cell
from tests.unit.report.test_tables import report

BATCH = BY_NAME["batch_ms"]
BASE = {"sink": "kafka", "guarantee": "at-least-once", "variant": "acknowledged", "faults": [], "random_kills": 0}
OF = ("exactly-once", "two-phase")


def rounds(*extra_ms: float) -> list[dict[str, Any]]:
    return [
        made
        for seed, extra in enumerate(extra_ms)
        for made in (
            report(seed=seed, cell=BASE, batches={"trigger_ms": 100.0 * (seed + 1)}),
            report(seed=seed, batches={"trigger_ms": 100.0 * (seed + 1) + extra}),
        )
    ]


def only(reports: list[dict[str, Any]]) -> paired.Rounds:
    (found,) = paired.settings(reports).values()
    return found


def extra(reports: list[dict[str, Any]]) -> paired.Difference:
    found = paired.difference(only(reports), BATCH, OF)
    assert found is not None
    return found


def test_runs_are_compared_within_their_round() -> None:
    found = extra(rounds(8.0, 10.0, 12.0))
    assert found.rounds == (8.0, 10.0, 12.0)
    assert (found.median, found.low, found.high) == (10.0, 8.0, 12.0)
    ratio = paired.ratio(only(rounds(8.0, 10.0, 12.0)), BATCH, OF)
    assert ratio is not None
    assert ratio.rounds == (1.08, 1.05, 1.04)


def test_an_interval_does_not_depend_on_the_order_of_rounds() -> None:
    values = [0.95, 1.3, 0.8, 1.1, 1.02, 0.7, 1.25, 0.9, 1.0, 1.4]
    found = [paired.median_interval(values[at:] + values[:at]) for at in range(len(values))]
    assert len({(each.median, each.low, each.high) for each in found}) == 1


def test_an_interval_that_crosses_zero_shows_no_difference() -> None:
    assert extra(rounds(8.0, 10.0, 12.0, 9.0, 11.0, 10.0)).shows(0.0)
    assert not extra(rounds(-8.0, 10.0, 12.0, 9.0, 11.0, 10.0)).shows(0.0)
    assert not paired.median_interval([0.9, 1.1, 0.8, 1.2, 1.0, 1.1]).shows(1.0)
    assert paired.median_interval([0.8, 0.9, 0.8, 0.9, 0.9, 0.8]).shows(1.0)


@pytest.mark.parametrize("fewer", [1, 2, 3, 4, 5])
def test_too_few_rounds_show_no_difference(fewer: int) -> None:
    few, enough = paired.median_interval([1.5] * fewer), paired.median_interval([1.5] * paired.FEWEST_ROUNDS)
    assert (few.has_interval, few.shows(1.0)) == (False, False)
    assert (enough.has_interval, enough.shows(1.0)) == (True, True)
    # How often all rounds fall on one side by chance.
    assert 2 ** (1 - paired.FEWEST_ROUNDS) < 0.05 < 2 ** (1 - fewer)


@pytest.mark.parametrize("n", range(paired.FEWEST_ROUNDS, 41))
def test_an_interval_misses_the_true_median_in_5_percent_at_most(n: int) -> None:
    found = paired.median_interval([float(value) for value in range(n)])
    assert found.low + found.high == n - 1

    def missed(low: float) -> float:
        """The chance that the median of any distribution is not between the ends.

        `low` is the lower end.
        """
        return 2 * sum(comb(n, beyond) for beyond in range(int(low) + 1)) / 2**n

    assert missed(found.low) <= 0.05 < missed(found.low + 1)  # a narrower one would miss more


def test_rounds_of_several_series_are_never_mixed() -> None:
    first, second = rounds(8.0, 10.0), rounds(30.0, 40.0)
    del first[0]  # a run without a meaningful speed
    for made in first:
        made["series"] = "a"
    for made in second:
        made["series"] = "b"
    assert extra([*first, *second]).rounds == (10.0, 30.0, 40.0)
    assert extra([*second, *first]).rounds == (10.0, 30.0, 40.0)


def test_a_run_that_was_not_kept_is_not_compared() -> None:
    reports = rounds(8.0, 10.0, 12.0)
    reports[1]["verdict"] = "broken"
    assert extra(reports).rounds == (10.0, 12.0)
    with pytest.raises(ValueError, match="no rounds"):
        paired.median_interval([])


def test_a_single_round_shows_no_difference_and_no_ratio() -> None:
    single = only(rounds(8.0))
    assert (paired.difference(single, BATCH, OF), paired.ratio(single, BATCH, OF)) == (None, None)
    assert paired.most_rounds(rounds(8.0)) == (1, 0)


@pytest.mark.parametrize(("events", "compared"), [(9_800, 3), (9_799, 2), (10_205, 2), (None, 3)])
def test_runs_with_different_loads_are_not_compared(events: int | None, compared: int) -> None:
    reports = [{**each, "events": {"in_topic": 10_000}} for each in rounds(8.0, 10.0, 12.0)]
    reports[1]["events"] = {"in_topic": events}
    assert len(extra(reports).rounds) == compared


def test_runs_under_other_settings_are_not_compared() -> None:
    slow, fast = ({"config": {"guarantee": "x", "seed": 1, "trigger_ms": trigger}} for trigger in (0, 1000))
    reports = [report(cell=BASE, **slow), report(**fast)]
    assert len(paired.settings(reports)) == 2
    assert [paired.difference(rounds, BATCH, OF) for rounds in paired.settings(reports).values()] == [None, None]
    assert len(paired.settings([report(cell=BASE, **slow), report(**slow)])) == 1


@pytest.mark.parametrize("name", [each.name for each in fields(Cell) if each.name != "sink"])
def test_a_field_that_an_older_report_lacks_has_its_default(name: str) -> None:
    config = Cell("kafka", "exactly-once", "two-phase").as_json()
    newer, older = report(config=config), report(config={key: config[key] for key in config if key != name})
    assert paired.Setting.of(newer) == paired.Setting.of(older)


def test_reports_with_older_rules_are_compared_separately() -> None:
    older, newer = rounds(8.0, 8.0), rounds(10.0, 10.0)
    found = paired.settings([{**each, "schema": 2} for each in older] + [{**each, "schema": 3} for each in newer])
    assert [paired.difference(of, BATCH, OF).rounds for of in found.values()] == [(8.0, 8.0), (10.0, 10.0)]
    both = [{**each, "schema": 2} for each in older] + [{**each, "schema": 3} for each in newer]
    assert [line.split(": ")[0] for line in paired.cost_lines(both)] == ["kafka, older rules (schema 2)", "kafka"]


@pytest.mark.parametrize(("rate", "names"), [("max", ["kafka, older rules (schema 3)", "kafka"]), (1000.0, ["kafka"])])
def test_schema_4_has_other_rules_for_a_flat_out_load_only(rate: object, names: list[str]) -> None:
    made = [
        each | {"schema": schema, "series": f"{schema}", "config": {"rate": rate}}
        for schema in (3, 4)
        for each in rounds(8.0, 8.0)
    ]
    assert [line.split(": ")[0] for line in paired.cost_lines(made)] == names


@pytest.mark.parametrize(
    ("engine", "rate", "settings"), [("flink", "max", 2), ("flink", 1000.0, 1), ("spark", "max", 1)]
)
def test_schema_5_has_other_rules_for_flat_out_loads_of_other_engines(engine: str, rate: object, settings: int) -> None:
    engines = {"environment": {"engine": {"name": engine}}}
    made = [each | {"schema": schema, "config": {"rate": rate}, **engines} for schema in (4, 5) for each in rounds(8.0)]
    assert len(paired.settings(made)) == settings


def test_only_a_flat_out_load_has_a_time_per_event() -> None:
    flat_out = [{**each, "config": {"rate": "max"}} for each in rounds(8.0, 8.0)]
    (line,) = paired.cost_lines(flat_out)
    assert line.endswith(", 2 rounds: +8.0 ms a batch, time per event x 1.000")
    assert "s/M events" in cost_table.markdown(flat_out)
    assert "s/M events" not in cost_table.markdown(rounds(8.0))  # it would be the load's own duration


def test_reports_without_a_series_are_not_paired() -> None:
    alone = [{name: value for name, value in each.items() if name != "series"} for each in rounds(8.0, 10.0, 12.0)]
    assert (paired.cost_lines(alone), paired.most_rounds(alone)) == ([], (0, 0))
    assert cost_table.markdown(alone).count("| 3 ") == 2  # each variant still has the figures of all its runs


def of_engine(reports: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The reports of another engine, which has no trigger interval."""
    config = {
        name: value for name, value in Cell("kafka", "", "", rate=3000.0).as_json().items() if name != "trigger_ms"
    }
    return [{**each, "environment": {"engine": {"name": name}}, "config": config} for each in reports]


def test_engines_are_not_compared_with_one_another() -> None:
    spark, flink = rounds(8.0, 8.0)[::2], of_engine(rounds(8.0, 8.0)[1::2], "flink")
    spark = [{**each, "config": Cell("kafka", "", "", rate=3000.0, trigger_ms=500).as_json()} for each in spark]
    found = paired.settings([*spark, *flink])
    assert (len(found), paired.differing(found)) == (2, ["engine"])
    assert paired.cost_lines([*spark, *flink]) == []
    table = cost_table.markdown([*spark, *flink]).splitlines()
    assert {row.split("|")[4].strip() for row in table[2:4]} == {"flink", "spark"}


def test_an_engine_has_no_setting_that_it_does_not_use() -> None:
    (setting,) = paired.settings(of_engine(rounds(8.0), "flink"))
    assert "trigger_ms" not in setting.config


def test_series_with_the_same_seeds_keep_their_rounds() -> None:
    assert extra([*rounds(8.0), *rounds(10.0)]).rounds == (8.0, 10.0)


def test_a_ratio_to_zero_is_none() -> None:
    reports = [report(cell=BASE, batches={"trigger_ms": 0.0}), report()]
    assert paired.ratio(only(reports), BATCH, OF) is None


def test_each_setting_is_named_by_the_fields_that_differ() -> None:
    made = [
        each | {"config": {"guarantee": "x", "seed": 1, "trigger_ms": trigger, "rate": 500.0}}
        for trigger in (0, 1000)
        for each in rounds(8.0, 8.0)
    ]
    reported = [line.split(": ")[0] for line in paired.cost_lines(made)]
    assert reported == ["kafka, trigger 0 ms", "kafka, trigger 1,000 ms"]


def test_a_setting_without_a_limit_says_so() -> None:
    assert paired.with_unit("max_events_per_batch", None) == "no max events per batch"
    assert paired.with_unit("checkpoint", "") == "checkpoint in the work dir"
    assert paired.with_unit("max_events_per_batch", 200_000) == "max events per batch 200,000"


def test_different_machines_are_different_settings() -> None:
    places = [{"cpu": "AMD EPYC", "cores": cores} for cores in (2, 64)]
    made = [each | {"environment": place} for place in places for each in rounds(8.0, 8.0, 8.0, 8.0, 8.0)]
    assert [len(found) for found in paired.settings(made).values()] == [5, 5]
    assert [line.split(": ")[0] for line in paired.cost_lines(made)] == [
        "kafka, machine AMD EPYC, 2 cores", "kafka, machine AMD EPYC, 64 cores"
    ]  # fmt: skip
    assert len(paired.settings(rounds(8.0))) == 1  # reports without a machine


def on(kafka: dict[str, Any] | None, theirs: dict[str, str] | None = None) -> list[dict[str, Any]]:
    return [each | {"environment": {"kafka": kafka, "theirs": theirs or {}}} for each in rounds(8.0, 8.0)]


def test_the_users_servers_are_another_setting() -> None:
    own, user = {"own": True, "bootstrap_servers": "127.0.0.1:4711"}, {"own": False, "bootstrap_servers": "prod:9092"}
    made = [
        *on(own), *on(user), *on(user | {"kafka": {"linger.ms": "100"}}), *on(user | {"kafka_conf": "client.conf"}),
        *on(user | {"security": {"protocol": "SASL_SSL", "mechanism": "PLAIN", "weaknesses": []}}),
        *on(own, {"ONCEBENCH_POSTGRES": "host=db"}),
    ]  # fmt: skip
    assert [line.split(": exactly")[0] for line in paired.cost_lines(made)] == [
        "kafka", "kafka, kafka prod:9092", "kafka, kafka prod:9092 linger.ms=100",
        "kafka, kafka prod:9092 kafka_conf=client.conf", "kafka, kafka prod:9092 SASL_SSL PLAIN",
        "kafka, servers of the user: ONCEBENCH_POSTGRES",
    ]  # fmt: skip
    assert [row[3].split(", ", 1)[1:] for row in tables.rows([*on(own), *on(user)])] == [[], ["kafka prod:9092"]] * 2


def test_a_port_of_this_machine_does_not_divide_a_setting() -> None:
    for own in (True, False):
        ports = [on({"own": own, "bootstrap_servers": f"localhost:{port}"}) for port in (4711, 4712)]
        assert len(paired.settings([*ports[0], *ports[1]])) == 1
    assert (
        paired.settings(on(None)).keys()
        == paired.settings(on({"own": True})).keys()
        == paired.settings(rounds(8.0)).keys()
    )


def test_a_negative_figure_has_no_ratio() -> None:
    made = rounds(8.0, 8.0, 8.0, 8.0, 8.0)
    made[2] = made[2] | {"batches": {"trigger_ms": -0.05}}
    assert paired.ratio(only(made), BATCH, OF) is None
    assert paired.difference(only(made), BATCH, OF) is not None


@pytest.mark.parametrize(("late", "expected"), [(3, "5, fell behind"), (2, "5")])
def test_a_variant_that_mostly_fell_behind_is_marked(late: int, expected: str) -> None:
    made = rounds(8.0, 8.0, 8.0, 8.0, 8.0)
    for each in made[1 : 2 * late : 2]:
        each["steadiness"] = {"lag_slope": 0.12, "lag_slope_error": 0.02}
    lines = cost_table.markdown(made, [BATCH]).splitlines()
    assert [line.split("|")[4].strip() for line in lines[2:4]] == ["5", expected]


def test_a_comparison_is_one_line() -> None:
    (line,) = paired.cost_lines(rounds(8.0, 10.0, 12.0))
    assert line.startswith(
        "kafka: exactly-once two-phase versus at-least-once acknowledged, 3 rounds: +10.0 ms a batch"
    )


def test_every_text_names_the_rounds_once_instead_of_an_interval() -> None:
    (line,) = paired.cost_lines(rounds(8.0, 8.0))
    assert line.endswith(", 2 rounds: +8.0 ms a batch")
    with_room = [each | {"config": {"trigger_ms": 1000}} for each in rounds(8.0, 8.0)]
    assert paired.cost_lines(with_room)[0].endswith(", 2 rounds: +8.0 ms a batch, processor time of an event x 1.000")
    fewer = [each | {"config": {"trigger_ms": 1000}} for each in rounds(8.0, 9.0, 10.0)]
    fewer[3] = fewer[3] | {"cpu_s_per_million_events": None}
    assert paired.cost_lines(fewer)[0].endswith(", processor time of an event x 1.000 (2 rounds)")
    table = cost_table.markdown(rounds(8.0, 8.0), [BATCH])
    assert table.splitlines()[3].endswith("| 2      | 1.06x (2 rounds) |")
    assert "~" not in table
    assert not paired.median_interval([0.5]).shows(1.0)


def test_a_single_round_has_figures_and_neither_difference_nor_ratio() -> None:
    assert paired.cost_lines(rounds(8.0)) == []
    assert paired.recovery_lines([killed(1, *paired.BASELINE, 9000.0), killed(1, *OF, 9500.0)]) == []
    (baseline, row) = cost_table.markdown(rounds(8.0), [BATCH]).splitlines()[2:4]
    assert (baseline.split("|")[-2].strip(), row.split("|")[-2].strip()) == ("100", "108")
    priced = [each | {"config": {"trigger_ms": 1000}} for each in rounds(8.0, 9.0)]
    priced[3] = priced[3] | {"cpu_s_per_million_events": None}
    assert paired.cost_lines(priced)[0].endswith(", 2 rounds: +8.5 ms a batch")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"verdict": "unknown"}, "its verdict is unknown"),
        ({"interrupted": True}, "it was interrupted"),
        ({"generator": {"lateness_ms": {"p99": 250.0}}}, "250 ms late"),
        ({"deaths": {"unasked": 2}}, "died 2 times unasked"),
    ],
)
def test_a_run_without_a_meaningful_speed_has_a_reason(changes: dict[str, Any], why: str) -> None:
    wrong = report(**changes)
    assert any(why in reason for reason in why_no_speed(wrong))
    assert figure(wrong, BATCH) is None
    assert figure(wrong, BY_NAME["lost"]) == 0.0
    assert figure(report(generator={"lateness_ms": {"p99": 5.0}}), BATCH) == 100.0


def test_a_deliberately_broken_run_has_a_speed() -> None:
    cell = {**BASE, "sink": "broken-kafka", "guarantee": "exactly-once", "variant": "no-marker"}
    assert figure(report(verdict="broken", cell=cell), BATCH) == 100.0


def test_a_metric_without_its_field_is_none() -> None:
    bare = {"verdict": "kept", "cell": BASE, "rows": {}, "throughput": {}, "latency_ms": {}}
    found = {metric.name: figure(bare, metric) for metric in METRICS}
    assert found.pop("broken") == 0.0
    assert set(found.values()) == {None}


def test_the_cost_table_has_ratios_and_the_baseline_medians() -> None:
    lines = cost_table.markdown(rounds(8.0, 10.0, 12.0, 16.0, 20.0, 24.0), [BATCH]).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[2] == ["kafka", "at-least-once", "acknowledged", "6", "350"]
    assert cells[3] == ["kafka", "exactly-once", "two-phase", "6", "1.04x (1.04 to 1.08)"]
    same = cost_table.markdown(rounds(0.0, 10.0, -12.0, 0.0, 0.0, 0.0), [BATCH])
    assert "~ 1.00x" in same
    made = rounds(8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 28.0)
    made[0]["verdict"] = "unknown"
    assert "7      | 1.04x (1.04 to 1.05), 6 rounds |" in cost_table.markdown(made, [BATCH])
    alone = cost_table.markdown([report()], [BATCH])
    assert alone.splitlines()[2].endswith("| 1      | 100      |")
    assert cost_table.markdown([]) == ""


def test_a_probe_counts_only_if_it_broke_its_promise() -> None:
    probes = [report(probe=True), report(probe=True, verdict="broken")]
    assert paired.settings(probes) == {}
    (row,) = tables.rows([probes[0], report(), probes[1]])
    assert row[4] == "broken (DUP)"
    assert tables.rows(probes[:1]) == []


def killed(seed: int, guarantee: str, variant: str, after_ms: float | None, **changes: Any) -> dict[str, Any]:
    cell = {"sink": "kafka", "guarantee": guarantee, "variant": variant, "faults": ["after-commit:kill"],
            "random_kills": 0}  # fmt: skip
    config = {"guarantee": guarantee, "variant": variant, "seed": seed, "faults": ["after-commit:kill"]}
    return report(cell=cell, config=config, seed=seed, recovery={"first_visible": after_ms}, **changes)


def test_recoveries_are_compared_within_their_round() -> None:
    made = [
        each
        for seed in range(7)
        for each in (
            killed(seed, "at-least-once", "acknowledged", 9000.0 + 1000 * seed),
            killed(seed, "exactly-once", "two-phase", 9500.0 + 1000 * seed, verdict="broken" if seed == 6 else "kept"),
            killed(seed, "exactly-once", "idempotent", None),
        )
    ]
    assert paired.recovery_lines([*made, *rounds(8.0)]) == [
        "kafka, after-commit:kill: exactly-once two-phase versus at-least-once acknowledged, 6 rounds: "
        "+0.5 s until new rows are seen (+0.5 to +0.5)"
    ]
    assert paired.settings(made) == {}


def test_recoveries_under_several_settings_are_separate() -> None:
    made = [
        each | {"config": each["config"] | {"open_sessions": sessions}}
        for sessions in (0, 1_000_000)
        for seed in (1, 2)
        for each in (killed(seed, *paired.BASELINE, 9000.0), killed(seed, *OF, 9500.0))
    ]
    assert [line.split(":")[:2] for line in paired.recovery_lines(made)] == [
        ["kafka, after-commit", f"kill, open sessions {sessions:,}"] for sessions in (0, 1_000_000)
    ]
