"""Times of batches that took turns: compared within a round, warm-up left out."""

from __future__ import annotations

from typing import Any

import pytest

from oncebench.report.tables.batch_series import BatchSeries
from oncebench.report.tables.batches import (
    agreements,
    baseline,
    by_arm,
    extra_ms,
    markdown,
    rate_ratio,
    table,
    whole_table,
)

ACKNOWLEDGED, NATIVE, EXACT = "s.at-least-once.acknowledged", "s.at-least-once.native", "s.exactly-once.two-phase"


def lines(**ms: list[float]) -> list[dict[str, Any]]:
    names = {"ack": ACKNOWLEDGED, "native": NATIVE, "exact": EXACT}
    return [
        {"round": at, "arm": names[arm], "ms": spent} for arm, times in ms.items() for at, spent in enumerate(times, -1)
    ]


def test_warm_up_rounds_are_left_out() -> None:
    assert by_arm(lines(ack=[9000, 100, 102])) == {ACKNOWLEDGED: {0: 100.0, 1: 102.0}}


def test_one_round_has_no_interval() -> None:
    assert "| +10.0 (1 round) " in table(lines(ack=[0, 100], exact=[0, 110]), 1000)


def test_a_slower_machine_moves_both_sides_of_a_difference() -> None:
    times = by_arm(lines(ack=[0, 100, 200, 300], exact=[0, 110, 210, 310]))
    found = extra_ms(times, EXACT, ACKNOWLEDGED)
    assert (found.median, found.low, found.high) == (10, 10, 10)


def test_a_rate_is_a_share_of_the_baseline() -> None:
    found = rate_ratio(by_arm(lines(native=[0, 100, 100], exact=[0, 200, 200])), EXACT, NATIVE)
    assert found.median == pytest.approx(0.5)


def test_the_table_compares_within_one_sink() -> None:
    text = table(lines(ack=[0, *[100] * 6], native=[0, *[50] * 6], exact=[0, *[110] * 6]), rows=1000)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    assert rows == [
        ["s", "at-least-once", "acknowledged", "100.0", "100.0", "", "10,000", "0.500 (0.500 to 0.500)"],
        ["s", "at-least-once", "native", "50.0", "50.0", "-50.0 (-50.0 to -50.0)", "20,000", ""],
        [
            "s",
            "exactly-once",
            "two-phase",
            "110.0",
            "110.0",
            "+10.0 (+10.0 to +10.0)",
            "9,091",
            "0.455 (0.455 to 0.455)",
        ],
    ]


def whole_lines(**ms: list[float]) -> list[dict[str, Any]]:
    return [{**line, "events": 50_000, "cpu_ms": 2 * line["ms"]} for line in lines(**ms)]


def cells(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith(("| s ", "| kafka "))
    ]


def test_whole_batches_have_time_and_cpu_per_event() -> None:
    rows = cells(whole_table(whole_lines(ack=[0, *[500] * 6], exact=[0, *[550] * 6])))
    one = "1.100 (1.100 to 1.100)"
    assert rows == [
        ["s", "at-least-once", "acknowledged", "500", "", "100,000", "", "20.0 µs", ""],
        ["s", "exactly-once", "two-phase", "550", "+50.0 (+50.0 to +50.0)", "90,909", one, "22.0 µs", one],
    ]


def batch_series(name: str, factors: list[float], events: int = 50_000) -> BatchSeries:
    """A stored series into Kafka, in which two-phase takes these multiples of at-least-once."""
    found = whole_lines(ack=[0, *[500] * len(factors)], exact=[0, *(500 * factor for factor in factors)])
    kafka = [{**line, "arm": line["arm"].replace("s.", "kafka.", 1)} for line in found if line["round"] >= 0]
    environment = {"cpu": "a processor", "cores": 2, "commit": "abc"}
    about = {"series": name, "command": "oncebench batches", "environment": environment, "partitions": 2}
    return BatchSeries({**about, "events": events}, kafka)


def test_series_agree_if_their_intervals_overlap() -> None:
    wide, near, far = [0.98, 1.0, 1.02, 1.04, 1.01, 1.03], [1.03] * 6, [1.2] * 6
    assert [row[-1] for row in cells(agreements([batch_series("a", wide), batch_series("b", near)]))] == ["yes"]
    assert [row[-1] for row in cells(agreements([batch_series("a", wide), batch_series("b", far)]))] == ["**no**"]
    assert [row[-1] for row in cells(agreements([batch_series("a", wide), batch_series("b", [1.0])]))] == [
        "too few rounds"
    ]


def test_both_series_together_have_an_interval_of_their_own() -> None:
    low, high = [0.98, 0.99, 1.0, 1.0, 1.01, 1.02], [1.02, 1.02, 1.03, 1.03, 1.04, 1.05]
    ((*_, both, agree),) = cells(agreements([batch_series("a", low), batch_series("b", high)]))
    assert (both, agree) == ("~ 1.020 (1.000 to 1.030)", "yes")


def test_series_of_other_batches_are_not_compared() -> None:
    assert agreements([batch_series("a", [1.0] * 6), batch_series("b", [1.0] * 6, events=100_000)]) == ""


def test_arms_without_a_common_round_or_with_no_cpu_time_have_no_ratio() -> None:
    apart = [line for line in whole_lines(ack=[0, 500, 500], exact=[0, 550, 550])
             if (line["round"] == 0) == (line["arm"] == ACKNOWLEDGED)]  # fmt: skip
    assert [row[4] for row in cells(whole_table(apart))] == ["", ""]
    assert [row[5] for row in cells(table(apart, rows=1000))] == ["", ""]
    idle = [{**line, "cpu_ms": 0.0} for line in whole_lines(ack=[0, 500, 500], exact=[0, 550, 550])]
    assert [row[-1] for row in cells(whole_table(idle))] == ["", ""]


def on_other(series: BatchSeries, **environment: Any) -> BatchSeries:
    return BatchSeries({**series.about, "environment": {**series.about["environment"], **environment}}, series.lines)


def test_series_of_other_machines_or_servers_are_not_compared() -> None:
    first, second = batch_series("a", [1.0] * 6), batch_series("b", [1.0] * 6)
    theirs = {"own": False, "bootstrap_servers": "kafka.example:9092"}
    assert agreements([first, on_other(second, kafka={"own": True}, theirs={})])
    for other in ({"cpu": "another"}, {"cores": 64}, {"kafka": theirs}, {"theirs": {"ONCEBENCH_POSTGRES": "x"}}):
        assert agreements([first, on_other(second, **other)]) == ""
    assert ", 2 cores, kafka kafka.example:9092, version abc, `" in markdown([on_other(first, kafka=theirs)])


def test_a_series_does_not_agree_with_itself() -> None:
    assert agreements([batch_series("a", [1.0] * 6)] * 2) == ""


def test_series_without_a_common_configuration_have_no_table_of_agreement() -> None:
    first = batch_series("a", [1.0] * 6)
    files = [{**line, "arm": line["arm"].replace("kafka", "files")} for line in first.lines]
    assert agreements([first, BatchSeries({**first.about, "series": "b"}, files)]) == ""


def test_a_machine_and_a_version_that_a_series_lacks_are_unknown() -> None:
    found = markdown([on_other(batch_series("a", [1.0] * 6), cpu=None, commit=None)])
    assert found.startswith("a: unknown machine, unknown version, `oncebench batches`")


def test_the_baseline_is_acknowledged_and_never_native() -> None:
    names = ["alternative.at-least-once.native", "alternative.at-least-once.acknowledged"]
    assert baseline("alternative", names) == names[1]
    assert baseline("s", ["s.at-least-once.aaa", "s.at-least-once.acknowledged"]) == "s.at-least-once.acknowledged"
    assert baseline("s", ["s.at-least-once.plain", NATIVE]) == "s.at-least-once.plain"
    assert baseline("s", [NATIVE, EXACT]) is None
