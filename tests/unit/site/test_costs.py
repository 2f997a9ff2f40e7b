"""Published costs: ratios within rounds only, and never two sinks compared."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from oncebench.report.comparisons.paired import Setting
from oncebench.report.configuration import configurations_of
from oncebench.report.report import SCHEMA
from oncebench.scenario.cell import Cell
from oncebench.site import costs, csv_tables
from oncebench.site.pack import short
from oncebench.site.stored import Stored
from tests import sample_reports
from tests.unit.report.test_paired import BASE, rounds
from tests.unit.report.test_tables import report

BATCH = "batch_ms"


def published(reports: list[dict[str, Any]]) -> dict[str, Any]:
    return costs.as_json(reports, list(configurations_of(reports)))


def rows(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the only setting, their figures by metric."""
    page = published(reports)
    (setting,) = page["settings"]
    names = [metric["name"] for metric in page["metrics"]]
    return [
        {**row, **{part: dict(zip(names, row[part], strict=True)) for part in ("absolute", "ratio", "difference")}}
        for row in setting["rows"]
    ]


def test_ratio_and_difference_have_interval_rounds_and_clarity() -> None:
    base, of = rows(rounds(8.0, 10.0, 12.0, 10.0, 10.0, 12.0))
    assert of["ratio"][BATCH] == [1.0325, 1.02, 1.08, 6, 1]
    assert of["difference"][BATCH] == [10, 8, 12, 6, 1]
    assert of["absolute"][BATCH] == [361, 108, 612, 6]
    assert (of["runs"], base["runs"]) == ([1, 3, 5, 7, 9, 11], [0, 2, 4, 6, 8, 10])


def test_interval_across_one_is_no_clear_difference() -> None:
    _, of = rows(rounds(-8.0, 10.0, 12.0, -10.0, 10.0, 10.0))
    assert of["ratio"][BATCH][1] is not None
    assert of["ratio"][BATCH][4] == of["difference"][BATCH][4] == 0


def test_two_rounds_have_no_interval() -> None:
    _, of = rows(rounds(8.0, 8.0))
    assert of["ratio"][BATCH] == [1.06, None, None, 2, 0]
    assert of["absolute"][BATCH] == [158, None, None, 2]


def test_one_round_has_figures_and_no_ratio() -> None:
    _, of = rows(rounds(8.0))
    assert (of["ratio"][BATCH], of["difference"][BATCH]) == (None, None)
    assert of["absolute"][BATCH] == [108, None, None, 1]


def test_a_ratio_is_rounded_once() -> None:
    _, of = rows(rounds(63.4792, 126.9584))
    assert f"{of['ratio'][BATCH][0]:.2f}" == "1.63"  # from 1.635 it would be 1.64


def test_baseline_is_not_compared() -> None:
    base, _ = rows(rounds(8.0, 10.0))
    assert set(base["ratio"].values()) == set(base["difference"].values()) == {None}


def test_sink_without_baseline_has_medians_only() -> None:
    (only,) = rows([report(seed=seed) for seed in range(6)])
    assert set(only["ratio"].values()) == {None}
    assert only["absolute"][BATCH] == [100, 100, 100, 6]


def test_sinks_and_settings_are_never_mixed() -> None:
    slow = {"config": {"rate": 500.0, "sessions": 50}}
    other = {"cell": {**BASE, "sink": "delta"}}
    settings = published([*rounds(8.0), report(**slow), report(**other)])["settings"]
    assert [(each["sink"], len(each["rows"])) for each in settings] == [("delta", 1), ("kafka", 2), ("kafka", 1)]


def test_unknown_run_has_no_figure_and_interrupted_run_no_row() -> None:
    (only,) = rows([report(verdict="unknown")])
    assert only["absolute"] == {}
    assert published([report(interrupted=True)])["settings"] == []


def test_metrics_without_figures_are_left_out() -> None:
    here = [report(seed=seed) for seed in range(2)]
    names = [metric["name"] for metric in published(here)["metrics"]]
    assert BATCH in names
    assert "s_per_million" not in names  # only saturated runs have it
    fast = [report(seed=seed, config={"rate": "max", "sessions": 50}) for seed in range(2)]
    assert "s_per_million" in [metric["name"] for metric in published(fast)["metrics"]]


@pytest.mark.parametrize(
    ("config", "label"),
    [
        ({}, "settings not recorded"),
        ({"rate": 500.0, "sessions": 50}, "500 events/s, 50 sessions"),
        ({"rate": "max", "sessions": 50}, "saturated, 50 sessions"),
        ({"rate": 2000.0, "sessions": 9, "open_sessions": 7}, "2,000 events/s, 9 sessions, open sessions 7"),
    ],
)
def test_label_names_load_and_non_default_options(config: dict[str, Any], label: str) -> None:
    assert costs.label(Setting.of({"schema": SCHEMA, "cell": {"sink": "kafka"}, "config": config})) == label


def test_label_of_default_setting_is_its_load() -> None:
    made = sample_reports.cell_of("kafka", "exactly-once", "two-phase")
    assert costs.label(Setting.of(made)) == "2,000 events/s, 200 sessions"


def test_figures_have_four_digits_and_no_empty_fraction() -> None:
    assert [short(value) for value in (None, 1.0, 1234.56, 0.0123456, 2.5)] == [None, 1, 1235, 0.01235, 2.5]


def test_csv_costs_of_one_round_have_no_ratio() -> None:
    one = [line.split(",") for line in csv_tables.costs(rounds(8.0)).splitlines() if ",batch_ms," in line]
    assert [line[-7:] for line in one] == [
        ["1", "100.0", "", "", "", "", ""],
        ["1", "108.0", "", "", "", "", ""],
    ]
    two = [line.split(",") for line in csv_tables.costs(rounds(8.0, 8.0)).splitlines() if ",batch_ms," in line]
    assert two[1][-7:] == ["2", "158.0", "", "", "1.06", "", ""]


def test_csv_costs_name_the_machine_where_it_differs() -> None:
    here, there = ({"environment": {"cpu": cpu, "cores": 2}} for cpu in ("one", "another"))
    both = [{**report, **where} for where in (here, there) for report in rounds(8.0)]
    listed = {row["setting"] for row in csv.DictReader(io.StringIO(csv_tables.costs(both)))}
    assert {each.rsplit("machine ", 1)[-1] for each in listed} == {"one, 2 cores", "another, 2 cores"}
    (alone,) = {row["setting"] for row in csv.DictReader(io.StringIO(csv_tables.costs(rounds(8.0))))}
    assert "machine" not in alone


def test_csv_runs_and_costs_use_the_same_setting_labels() -> None:
    made = [{**each, "environment": {"cpu": "one", "cores": 2}} for each in sample_reports.healthy(1)]
    faulted = [{**each, "environment": {"cpu": "another", "cores": 2}} for each in sample_reports.faulted(1)]
    stored = [Stored(each, "f", at) for at, each in enumerate([*made, *faulted], 1)]
    listed = {row["setting"] for row in csv.DictReader(io.StringIO(csv_tables.runs(stored))) if row["faults"] == "none"}
    costed = {row["setting"] for row in csv.DictReader(io.StringIO(csv_tables.costs([*made, *faulted])))}
    assert listed == costed


def titles(reports: list[dict[str, Any]]) -> tuple[str, list[str]]:
    page = published(reports)
    return page["common"], [each["title"] for each in page["settings"]]


def test_titles_leave_out_what_full_comparisons_share() -> None:
    made = [
        sample_reports.cell_of(sink, "exactly-once", "idempotent", rate=500.0, sessions=50, warmup_s=6.0)
        for sink in ("delta", "kafka")
    ]
    assert titles(made) == ("500 events/s, 50 sessions, warmup 6 s", ["", ""])


def test_title_names_a_shared_option_that_is_at_its_default() -> None:
    full = sample_reports.cell_of("kafka", "exactly-once", "two-phase", rate=10_000.0, sessions=1600, warmup_s=6.0)
    other = sample_reports.cell_of("kafka", "exactly-once", "two-phase", rate=10_000.0, sessions=1600)
    default = Cell("", "", "").warmup_s
    assert titles([full, other]) == ("10,000 events/s, 1600 sessions, warmup 6 s", ["", f"warmup {default:g} s"])
