"""The first screen: one row by sink, and sentences that only the stored runs decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.delivery.failpoints import POINTS
from oncebench.report.comparisons.paired import Difference
from oncebench.report.configuration import configurations_of
from oncebench.report.tables.batch_series import BatchSeries
from oncebench.site import flat_out
from oncebench.site.answer.headline import Answer, Cost, Kills, _kills, answers_of, as_json
from oncebench.site.answer.prices import load_of, prices_of
from oncebench.site.answer.sentences import listed, of_engines, sentences, subject
from oncebench.site.faults.matrix import matrix_of
from tests import sample_reports
from tests.unit.report.test_batches import batch_series
from tests.unit.report.test_engines import FLAT_OUT, report
from tests.unit.report.test_sweep_selection import series
from tests.unit.scenario.test_fault_matrix import fault
from tests.unit.scenario.test_fault_matrix import report as killed
from tests.unit.site.test_matrix import matrix


def answers(reports: Sequence[Any]) -> list[Answer]:
    return answers_of(reports, matrix_of(reports), configurations_of(reports))


def ratio(median: float, low: float, high: float, rounds: int = 6) -> Cost:
    return Cost(None, None, Difference(median, low, high, (median,) * rounds))


def answer(
    sink: str,
    p99: Cost,
    kills: Mapping[str, tuple[int, int, int]],
    elsewhere: Mapping[str, Cost] = MappingProxyType({}),
) -> Answer:
    counted = {name: Kills((sink, name, "v"), *counts, 9, 9, None) for name, counts in kills.items()}
    there = {letter: cost.ratio for letter, cost in elsewhere.items() if cost.ratio}
    return Answer((sink, EXACTLY_ONCE, "v"), {"p99_ms": p99}, counted, [], there)


def test_full_comparison_gives_the_latency_of_a_sink() -> None:
    full = series("full")
    (only,) = answers(full)
    assert (only.sink, only.exact[2]) == ("kafka", "two-phase")
    others = [*series("t", trigger_ms=100), *series("f", "files-jsonl", rounds=1)]
    assert answers([*full, *others])[-1].costs["p99_ms"] == only.costs["p99_ms"]
    assert answers(others)[-1].costs.get("p99_ms") is None


def test_prices_come_from_one_setting_for_all_sinks() -> None:
    both = [*series("a", rate="max"), *series("b", "files-jsonl", rate="max")]
    alone = series("c", rate="max", sessions=16_000, rounds=9)
    for each in answers([*both, *alone]):
        cost = each.costs["cpu_s"].ratio
        assert cost is not None
        assert len(cost.rounds) == 6


def load_of_prices(schema: int = 4, **changes: Any) -> str:
    made = [{**each, "schema": schema} for each in series("a", rate="max", **changes)]
    return str(as_json(answers(made), [], made, list(configurations_of(made)))["price_load"])


def test_prices_of_a_load_without_a_warm_up_are_called_cold() -> None:
    assert load_of_prices(sessions=100_000, warmup_s=6.0) == "saturated, 100000 sessions, warmup 6 s"
    for made in (load_of_prices(sessions=50, warmup_s=6.0), load_of_prices(3, sessions=100_000, warmup_s=6.0)):
        assert "warmup" not in made
        assert "; cold: all of a load that takes some " in made


def test_figure_without_a_run_is_null() -> None:
    made = series("full", rounds=1)
    (row,) = as_json(answers(made), [], made, list(configurations_of(made)))["rows"]
    assert row["costs"]["cpu_s"] == [None, None, None]
    exact, base, ratio = row["costs"]["p99_ms"]
    assert exact and base and ratio is None  # one round has no ratio
    assert set(row["kills"].values()) == {None}


def test_kills_are_counted_by_guarantee_and_exclude_sinks_broken_on_purpose() -> None:
    made = [*sample_reports.faulted(1), *sample_reports.on_purpose()]
    found = {each.sink: each for each in answers(made)}
    assert not any(sink.startswith("broken") for sink in found)
    kafka = found["kafka"].kills
    assert kafka[AT_MOST_ONCE].lost > 0 == kafka[AT_MOST_ONCE].duplicated
    assert kafka[AT_LEAST_ONCE].duplicated > 0 == kafka[AT_LEAST_ONCE].lost
    assert (kafka[EXACTLY_ONCE].lost, kafka[EXACTLY_ONCE].duplicated) == (0, 0)
    assert kafka[EXACTLY_ONCE].kills == 9


def test_sentence_names_clear_and_unclear_costs_and_what_kills_did() -> None:
    kept = {EXACTLY_ONCE: (9, 0, 0), AT_LEAST_ONCE: (4, 0, 160), AT_MOST_ONCE: (5, 60, 0)}
    made = [
        answer("a", ratio(1.02, 0.9, 1.1), kept),
        answer("b", ratio(1.0, 0.9, 1.1), {}),
        answer("c", ratio(1.634792, 1.39, 1.79), {}),  # 1.64 if it were rounded to four digits first
    ]
    assert sentences(made) == [
        "Exactly-once shows no difference from at-least-once in p99 latency into a and b, but takes 1.63 times "
        "(1.39 to 1.79) the p99 latency into c; in 9 kills (kill -9 of the whole pipeline at its 9 failpoints) it lost "
        "no row and duplicated none.",
        "At-least-once duplicated 160 rows in 4 kills, and at-most-once lost 60 rows in 5 kills.",
    ]


def test_sentence_names_the_cost_that_too_few_rounds_do_not_exclude() -> None:
    made = [answer("a", ratio(1.04, 0.88, 1.95), {}), answer("b", ratio(0.95, 0.5, 1.25), {})]
    assert sentences(made) == [
        "Exactly-once shows no difference from at-least-once in p99 latency into a (could be up to 1.95 times) and b."
    ]


def test_sentence_names_at_least_once_where_every_cost_is_clear() -> None:
    assert sentences([answer("a", ratio(1.5, 1.2, 1.9), {})]) == [
        "Exactly-once takes 1.50 times (1.20 to 1.90) the p99 latency of at-least-once into a."
    ]


def test_sentence_reports_rows_that_exactly_once_lost() -> None:
    (first,) = sentences([answer("a", ratio(1.0, 0.9, 1.1, rounds=2), {EXACTLY_ONCE: (9, 20, 40)})])
    kills = "In 9 kills (kill -9 of the whole pipeline at its 9 failpoints)"
    assert first == f"{kills} exactly-once lost 20 rows and duplicated 40."  # too few rounds: no word about cost
    assert sentences([]) == []


def test_names_are_listed_with_commas_and_and() -> None:
    assert [listed(names) for names in ((), ("a",), ("a", "b"), ("a", "b", "c"))] == ["", "a", "a and b", "a, b and c"]


def test_rows_per_kill_give_each_failpoint_the_same_weight() -> None:
    def run(point: str, duplicated: int) -> Any:
        return killed(fault(f"{point}:kill", duplicated=duplicated), guarantee=AT_LEAST_ONCE)

    once = [run(point, 20) for point in POINTS]
    found = _kills(matrix(*once, *(run("after-commit", 80) for _ in range(3))), ("kafka", AT_LEAST_ONCE, "v"))
    assert found is not None
    assert (found.kills, found.duplicated, found.points, found.all_points) == (12, 420, 9, 9)
    assert found.rows_per_kill == (8 * 20 + (20 + 3 * 80) / 4) / 9, "420 / 12 would weigh after-commit four times"


def test_kills_that_lack_a_failpoint_have_no_rows_per_kill() -> None:
    matrix = matrix_of(made := [*sample_reports.faulted(1)])
    few = {place: entries for place, entries in matrix.items() if place.fault != "mid-write:kill"}
    (kafka,) = (each for each in answers_of(made, few, configurations_of(made)) if each.sink == "kafka")
    found = kafka.kills[AT_MOST_ONCE]
    assert (found.points, found.all_points, found.rows_per_kill) == (8, 9, None)
    (row,) = (
        row for row in as_json([kafka], [], made, list(configurations_of(made)))["rows"] if row["kills"][AT_MOST_ONCE]
    )
    assert row["kills"][AT_MOST_ONCE] == [8, found.lost, 0, 8, 9, None]


def on(machine: str, made: Sequence[Any], **times: float) -> list[Any]:
    """The reports on a machine, with the p99 of exactly-once that many times as high."""
    return [
        {**each, "environment": {"cpu": machine, "cores": 2}, "series": machine,
         "latency_ms": {**each["latency_ms"],
                        "p99": 500.0 * (times["p99"] if each["cell"]["guarantee"] == EXACTLY_ONCE else 1.0)}}
        for each in made
    ]  # fmt: skip


def test_another_machine_that_contradicts_the_latency_is_on_the_first_screen() -> None:
    here, there = on("here", series("full", rounds=9), p99=1.0), on("there", series("x", sessions=180), p99=1.12)
    (kafka,) = answers([*here, *there])
    assert {letter: ratio.median for letter, ratio in kafka.elsewhere.items()} == {"B": 1.12}
    assert sentences([kafka]) == [
        "Exactly-once shows no difference from at-least-once in p99 latency into kafka (1.12 times, 1.12 to 1.12 on "
        "machine B)."
    ]
    made = as_json([kafka], [], [*here, *there], list(configurations_of(here)))
    assert made["load"].endswith(", machine A")
    assert [letter for letter, _ in made["rows"][0]["elsewhere"]] == ["B"]
    agreeing = on("there", series("x", sessions=180), p99=1.0)
    other_load = on("there", series("x", trigger_ms=2000), p99=1.12)
    assert [dict(each.elsewhere) for each in (*answers([*here, *agreeing]), *answers([*here, *other_load]))] == [{}, {}]
    (reverse,) = answers([*on("here", series("full", rounds=9), p99=1.5), *agreeing])
    assert "(no clear difference, 1.00 times, 1.00 to 1.00, on machine B)" in sentences([reverse])[0]


def test_the_first_screen_names_engine_cores_and_other_engines() -> None:
    reports = [{"environment": {"cores": 2}}, {}]
    others = [report(FLAT_OUT, engine=name) for name in ("spark", "flink", "kafka-streams", "flink")]
    assert subject(reports, others) == (
        "Spark Structured Streaming from Kafka into each sink on 2 cores, next to Flink and Kafka Streams."
    )
    assert subject([{}], []) == "Spark Structured Streaming from Kafka into each sink."


def test_the_first_screen_compares_the_processor_time_of_engines() -> None:
    def run(engine: str, variant: str, cpu_us: float) -> Any:
        return report(FLAT_OUT, variant, engine, cpu_s_per_million_events=cpu_us, schema=5)

    spark, flink = [run("spark", "two-phase", 19.2)], [run("flink", "a", 7.3), run("flink", "b", 13.6)]
    weaker = {**run("flink", "a", 1.0), "cell": {**flink[0]["cell"], "guarantee": AT_LEAST_ONCE}}
    assert of_engines([*spark, weaker, *flink]) == (
        "Exactly-once into Kafka took 19.2 µs in Spark and 7.3 to 13.6 µs in Flink: "
        "CPU per event, flat out, one run each."
    )
    assert "one run each" not in of_engines([*spark, *spark, *flink, *flink])
    assert of_engines(spark) == of_engines([]) == ""
    elsewhere = {**flink[0], "environment": {**flink[0]["environment"], "cpu": "another"}}
    assert of_engines([*spark, elsewhere]) == "", "engines of two machines are not compared"


def test_prices_of_batches_in_turns_replace_those_of_runs() -> None:
    runs = series("a", rate="max")
    (of_runs,) = answers(runs)
    batches = [batch_series("batches-1", [1.5] * 6, events=1000), batch_series("batches-2", [1.1] * 6)]
    (only,) = answers_of(runs, matrix_of(runs), configurations_of(runs), batches)
    price = only.costs["s_per_million"]
    assert of_runs.costs["s_per_million"] != price
    assert price.exact is not None and price.base is not None and price.ratio is not None
    assert (price.base.median, round(price.exact.median, 6), round(price.ratio.median, 6)) == (10.0, 11.0, 1.1)
    load = as_json([only], [], runs, list(configurations_of(runs)), batches)["price_load"]
    assert load == "flat out in batches of 50,000 events, 6 rounds in one process, a processor, 2 cores"


def test_batches_of_generated_rows_are_no_price_of_the_pipeline() -> None:
    rows = BatchSeries({"series": "batches-1", "rows": 1000, "partitions": 2}, [])
    assert (prices_of([rows]), load_of([rows])) == ({}, None)


def test_the_price_comes_first_and_names_its_unit_once() -> None:
    made = [
        answer("a", ratio(1.0, 0.9, 1.1), {}),
        answer("b", ratio(1.0, 0.9, 1.1), {}),
        answer("c", ratio(1.0, 0.9, 1.4), {}),
    ]
    prices = [ratio(1.04, 1.02, 1.06), ratio(1.0, 0.97, 1.03), ratio(1.78, 1.75, 1.82)]
    priced = [
        replace(each, costs={**each.costs, "s_per_million": price}) for each, price in zip(made, prices, strict=True)
    ]
    assert sentences(priced) == [
        "Flat out, exactly-once shows no difference from at-least-once in time per event into b, but takes 1.04 times "
        "(1.02 to 1.06) the time per event into a and 1.78 times (1.75 to 1.82) into c.",
        "The p99 latency shows no difference into any sink (c could be up to 1.40 times).",
    ]
    slow = [replace(priced[0], costs={**priced[0].costs, "p99_ms": ratio(1.9, 1.3, 1.9)}), *priced[1:]]
    latency = "1.90 times (1.30 to 1.90) into a, and shows no difference into the others (c could be up to 1.40 times)"
    assert sentences(slow)[1] == f"The p99 latency is {latency}."


def load_with(batches: Sequence[BatchSeries]) -> str:
    runs = series("a", rate="max")
    return str(as_json([], [], runs, list(configurations_of(runs)), batches)["price_load"])


def test_prices_come_from_one_series_for_all_sinks() -> None:
    full = batch_series("batches-1", [1.5] * 7)
    files = [{**line, "arm": line["arm"].replace("kafka.", "files-jsonl.")} for line in full.lines]
    full = BatchSeries(full.about, [*full.lines, *files])
    newer_and_smaller = batch_series("batches-2", [1.1] * 9, events=1000)
    for order in ([full, newer_and_smaller], [newer_and_smaller, full]):
        prices = prices_of(order)
        assert {each[0] for each in prices} == {"kafka", "files-jsonl"}
        ratios = [each["s_per_million"].ratio for each in prices.values()]
        assert {round(ratio.median, 6) for ratio in ratios if ratio} == {1.5}
        assert load_with(order).startswith("flat out in batches of 50,000 events, 7 rounds in one process")


def test_prices_of_runs_are_not_mixed_with_those_of_batches() -> None:
    runs = [*series("a", rate="max"), *series("b", "files-jsonl", rate="max")]
    found = answers_of(runs, matrix_of(runs), configurations_of(runs), [batch_series("batches-1", [1.5] * 6)])
    assert {each.sink: "s_per_million" in each.costs for each in found} == {"files-jsonl": False, "kafka": True}
    assert {each.sink: bool(each.runs) for each in found} == {"files-jsonl": False, "kafka": False}


def test_an_interrupted_series_does_not_replace_the_prices_of_a_full_one() -> None:
    full, interrupted = batch_series("batches-1", [1.5] * 6), batch_series("batches-2", [1.1] * 3, events=1000)
    (price,) = prices_of([full, interrupted]).values()
    assert price["s_per_million"].ratio is not None
    assert len(price["s_per_million"].ratio.rounds) == 6


def test_two_series_of_one_version_and_machine_count_together() -> None:
    one, two = batch_series("batches-1", [1.0, 1.1, 1.2]), batch_series("batches-2", [1.3, 1.4, 1.5])
    (price,) = prices_of([two, one]).values()
    assert price["s_per_million"].ratio is not None
    assert [round(each, 6) for each in price["s_per_million"].ratio.rounds] == [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]
    assert load_of([two, one]) == (
        "flat out in batches of 50,000 events, 6 rounds in 2 processes, a processor, 2 cores"
    )
    (table,) = flat_out.as_json([two, one])
    assert [file for file, _ in table["files"]] == ["batches/batches-1.jsonl", "batches/batches-2.jsonl"]


def test_a_copy_of_a_series_does_not_count_again() -> None:
    one = batch_series("batches-1", [1.0, 1.1, 1.2])
    (price,) = prices_of([one, one]).values()
    assert price["s_per_million"].ratio is not None
    assert len(price["s_per_million"].ratio.rounds) == 3


@pytest.mark.parametrize("other", [{"commit": "def"}, {"cpu": "another"}])
def test_series_of_another_version_or_machine_are_not_merged(other: dict[str, str]) -> None:
    one, two = batch_series("batches-1", [1.0] * 6), batch_series("batches-2", [1.5] * 6)
    two = BatchSeries({**two.about, "environment": {**two.about["environment"], **other}}, two.lines)
    (price,) = prices_of([one, two]).values()
    assert price["s_per_million"].ratio is not None
    assert set(price["s_per_million"].ratio.rounds) == {1.5}
    assert len(flat_out.as_json([one, two])) == 2


def test_a_single_round_of_batches_has_no_ratio_and_replaces_no_price() -> None:
    assert prices_of([batch_series("batches-1", [1.5])]) == {}
    assert load_with([batch_series("batches-1", [1.5])]).startswith("saturated")


def test_cpu_below_the_resolution_of_the_clock_has_no_ratio() -> None:
    made = batch_series("batches-1", [1.5] * 6)
    (price,) = prices_of([BatchSeries(made.about, [{**line, "cpu_ms": 0.0} for line in made.lines])]).values()
    assert price["cpu_s"].ratio is None
    assert price["s_per_million"].ratio is not None


def test_the_load_of_prices_names_servers_of_the_user_and_another_machine() -> None:
    made = batch_series("batches-1", [1.5] * 6)
    theirs = {"own": False, "bootstrap_servers": "kafka.example:9092"}
    elsewhere = BatchSeries({**made.about, "environment": {**made.about["environment"], "kafka": theirs}}, made.lines)
    assert load_of([elsewhere], "a processor, 2 cores") == (
        "flat out in batches of 50,000 events, 6 rounds in one process, kafka kafka.example:9092"
    )
    assert (load_of([made], "another") or "").endswith(", 6 rounds in one process, a processor, 2 cores")
    assert (load_of([made], None) or "").endswith(", 6 rounds in one process, a processor, 2 cores")
    (table,) = flat_out.as_json([elsewhere])
    assert table["machine"] == "a processor, 2 cores, kafka kafka.example:9092"
