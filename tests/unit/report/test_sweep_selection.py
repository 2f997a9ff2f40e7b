"""The full comparison and its sweeps, on the page and in lists."""

from __future__ import annotations

import csv
import io
import itertools
from typing import Any

from oncebench.report.comparisons.paired import settings
from oncebench.report.comparisons.repeatability import noise_markdown
from oncebench.report.comparisons.sweep_selection import full_of, groups_of, is_full, sweeps
from oncebench.report.configuration import configurations_of
from oncebench.report.tables import cost_table, table
from oncebench.scenario.profiles import PROFILES
from oncebench.scenario.supports import support_of
from oncebench.site import about, costs, csv_tables
from oncebench.site.data import data_of
from oncebench.site.faults.matrix import matrix_of
from oncebench.site.stored import Stored
from tests import sample_reports

LOAD = {"rate": PROFILES["full"].rate, "sessions": PROFILES["full"].sessions, "warmup_s": PROFILES["full"].warmup_s}
VARIANTS = (("at-least-once", "acknowledged"), ("exactly-once", "two-phase"))


def series(name: str, sink: str = "kafka", rounds: int = 6, **changes: Any) -> list[dict[str, Any]]:
    """Rounds of two variants in one series, by default with the setting of the full comparison."""
    made = []
    for seed, (guarantee, _) in itertools.product(range(rounds), VARIANTS):
        of = sample_reports.cell_of(sink, guarantee, support_of(sink, guarantee, None).variant, seed=seed, **LOAD)
        made.append(of | {"series": name, "config": of["config"] | changes})
    return made


def swept(name: str, field: str, *values: Any, **changes: Any) -> list[dict[str, Any]]:
    return [each for at, value in enumerate(values) for each in series(name, **{**changes, field: value,
                                                                             "sessions": 160 + at})]  # fmt: skip


def groups_and_labels(reports: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (each["group"], each["label"]) for each in costs.as_json(reports, list(configurations_of(reports)))["settings"]
    ]


def values(reports: list[dict[str, Any]], field: str) -> list[list[Any]]:
    found = settings(reports)
    return [[setting.config[field] for setting in each.settings] for each in sweeps(found) if each.field == field]


def test_another_engine_is_not_the_full_comparison() -> None:
    peers = [each | {"environment": {"engine": {"name": "flink"}}} for each in series("full")]
    assert list(map(is_full, settings([*series("full"), *peers]))) == [True, False]


def test_the_full_comparison_is_recognised_by_its_setting() -> None:
    found = settings([*series("full"), *series("rates", rate=4000.0, sessions=720), *series("a", trigger_ms=100)])
    assert [is_full(setting) for setting in found] == [True, False, False]
    assert not any(map(is_full, settings([sample_reports.older(each) for each in series("full")])))


def test_the_full_comparison_comes_before_sweeps() -> None:
    made = [*swept("t", "trigger_ms", 30000, 100, 0, 1000, 5000), *series("full"), *series("x", warmup_s=3.0)]
    assert groups_and_labels(made) == [
        ("", "10,000 events/s, 1600 sessions, warmup 6 s"),
        *(("trigger ms", f"10,000 events/s, {160 + at} sessions{f', trigger {ms:,} ms' if ms else ''}, warmup 6 s")
          for at, ms in ((2, 0), (1, 100), (3, 1000), (4, 5000), (0, 30000))),
        ("other settings", "10,000 events/s, 1600 sessions"),
    ]  # fmt: skip


def test_other_settings_replace_a_missing_full_comparison() -> None:
    assert [group for group, _ in groups_and_labels(series("x", warmup_s=3.0))] == [""]
    assert [group for group, _ in groups_and_labels([sample_reports.older(each) for each in series("x")])] == [""]


def test_series_with_their_own_rates_are_not_a_sweep() -> None:
    one, other = ({"rate": rate, "sessions": round(rate * 0.24)} for rate in (750.0, 2000.0))
    sustained = [*series("sustain-1", **one), *series("sustain-2", **other)]
    assert values([*series("full"), *sustained], "rate") == []
    groups = [group for group, _ in groups_and_labels([*series("full"), *sustained])]
    assert groups == ["", "other settings", "other settings"]
    assert values([*series("rates", **one), *series("rates", **other)], "rate") == [[750.0, 2000.0]]


def test_a_sweep_around_the_full_comparison_may_use_any_series() -> None:
    slow = {"trigger_ms": 30_000, "sessions": 18_000}
    made = [*series("full"), *series("a", open_sessions=1000), *series("b", **slow), *series("c", trigger_ms=1000)]
    assert values(made, "open_sessions") == [[0, 1000]]
    assert values(made, "trigger_ms") == [[0, 1000, 30_000]]


def test_the_full_comparison_is_the_one_with_newer_rules() -> None:
    old = [each | {"schema": 1} for each in series("old", rounds=9)]
    new = [each | {"schema": 3} for each in series("new")]
    found = settings([*new, *old])
    (chosen,) = full_of(found).values()
    assert {series for series, _, _ in found[chosen]} == {"new"}
    assert [group for group, _ in groups_and_labels([*old, *new])] == ["", "other settings"]


def test_text_values_come_after_numbers_in_a_sweep() -> None:
    made = [*swept("r", "rate", "max", 500.0, 1000.0), *swept("s", "state_store", "snapshots", "changelog")]
    assert values(made, "rate") == [[500.0, 1000.0, "max"]]
    assert values(made, "state_store") == [["changelog", "snapshots"]]
    assert cost_table.markdown(made)


def test_tables_sort_a_sweep_by_size() -> None:
    rows = table.rows(swept("t", "trigger_ms", 0, 1000, 500, 10_000))
    assert [row[3] for row in rows if row[2] == "two-phase"] == [
        f"none, trigger {value:,} ms" for value in (0, 500, 1000, 10_000)
    ]


def test_a_setting_is_named_by_its_difference_from_the_full_comparison() -> None:
    made = [*series("full"), *swept("t", "trigger_ms", 100, 5000), *series("r", rate=500.0)]
    rows = table.rows(made)
    assert [row[3] for row in rows if row[2] == "two-phase"] == [
        "none", "none, rate 500", "none, trigger 100 ms", "none, trigger 5,000 ms"
    ]  # fmt: skip
    noise = [line.split("|")[4].strip() for line in noise_markdown(made).splitlines()[2:]]
    assert noise[::2] == ["-", "trigger 100 ms", "trigger 5,000 ms", "rate 500"]


def test_repeats_share_a_setting_and_exclude_probes() -> None:
    made = [*series("full"), *series("r", rate=500.0), *(each | {"probe": True} for each in series("s", rounds=3))]
    reported = about.as_json(made, matrix_of(made), configurations_of(made))
    assert (reported["repeats"], reported["rate_probes"], reported["verdicts"]) == ("6", 6, {"kept": 24})


def test_every_run_has_its_setting_on_the_page_and_in_the_list() -> None:
    made = [*series("full", rounds=1), *series("t", rounds=1, trigger_ms=500)]
    stored = [Stored(each, "a.jsonl", line) for line, each in enumerate(made, 1)]
    data = data_of(stored)
    words, texts = data["text"]["words"], data["text"]["texts"]
    done = [" ".join(words[word] for word in texts[number]) for number in data["runs"]["test"]]
    assert done == ["healthy, trigger 0 ms"] * 2 + ["healthy, trigger 500 ms"] * 2
    read = [row["setting"] for row in csv.DictReader(io.StringIO(csv_tables.runs(stored)))]
    assert len(set(read)) == 2
    assert read[2].startswith("10,000 events/s, 1600 sessions, trigger 500 ms")


def test_groups_do_not_depend_on_the_order_of_runs() -> None:
    parts = [series("full"), swept("t", "trigger_ms", 0, 100), series("x", warmup_s=3.0)]
    reported = [
        groups_of(settings([each for part in order for each in part])) for order in itertools.permutations(parts)
    ]  # fmt: skip
    assert all(each == reported[0] for each in reported)
