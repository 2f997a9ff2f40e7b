"""Published costs: pairs of rounds only, no difference where none is shown, and never one sink beside another."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from oncebench.report.comparisons.paired import Setting
from oncebench.report.configuration import configurations_of
from oncebench.report.report import SCHEMA
from oncebench.site import costs, lists
from oncebench.site.pack import short
from oncebench.site.stored import Stored
from tests import sample_reports
from tests.unit.report.test_paired import BASE, rounds
from tests.unit.report.test_tables import report

BATCH = "batch_ms"


def told(reports: list[dict[str, Any]]) -> dict[str, Any]:
    return costs.as_json(reports, list(configurations_of(reports)))


def rows(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the only setting, their figures by metric."""
    page = told(reports)
    (setting,) = page["settings"]
    names = [metric["name"] for metric in page["metrics"]]
    return [
        {**row, **{part: dict(zip(names, row[part], strict=True)) for part in ("absolute", "ratio", "difference")}}
        for row in setting["rows"]
    ]


def test_a_ratio_and_a_difference_come_with_interval_rounds_and_whether_they_show_anything() -> None:
    base, of = rows(rounds(8.0, 10.0, 12.0, 10.0, 10.0))
    assert of["ratio"][BATCH] == [1.04, 1.02, 1.08, 5, 1]
    assert of["difference"][BATCH] == [10, 8, 12, 5, 1]
    assert of["absolute"][BATCH] == [312, 108, 510, 5]
    assert (of["runs"], base["runs"]) == ([1, 3, 5, 7, 9], [0, 2, 4, 6, 8])


def test_an_interval_that_crosses_one_shows_no_difference() -> None:
    _, of = rows(rounds(-8.0, 10.0, 12.0, -10.0, 10.0))
    assert of["ratio"][BATCH][1] is not None
    assert of["ratio"][BATCH][4] == of["difference"][BATCH][4] == 0


def test_one_round_has_no_interval_and_shows_nothing() -> None:
    _, of = rows(rounds(8.0))
    assert of["ratio"][BATCH] == [1.08, None, None, 1, 0]
    assert of["absolute"][BATCH] == [108, None, None, 1]


def test_the_row_that_others_are_compared_with_is_compared_with_nothing() -> None:
    base, _ = rows(rounds(8.0, 10.0))
    assert set(base["ratio"].values()) == set(base["difference"].values()) == {None}


def test_a_sink_without_that_row_has_medians_and_no_ratio() -> None:
    (only,) = rows([report(seed=seed) for seed in range(5)])
    assert set(only["ratio"].values()) == {None}
    assert only["absolute"][BATCH] == [100, 100, 100, 5]


def test_sinks_and_settings_are_apart() -> None:
    slow = {"config": {"rate": 500.0, "sessions": 50}}
    other = {"cell": {**BASE, "sink": "delta"}}
    settings = told([*rounds(8.0), report(**slow), report(**other)])["settings"]
    assert [(each["sink"], len(each["rows"])) for each in settings] == [("delta", 1), ("kafka", 2), ("kafka", 1)]


def test_what_tells_nothing_has_no_figure_and_what_was_interrupted_no_row() -> None:
    (only,) = rows([report(verdict="unknown")])
    assert only["absolute"] == {}
    assert told([report(interrupted=True)])["settings"] == []


def test_only_metrics_of_which_a_run_has_a_figure_can_be_chosen() -> None:
    here = [report(seed=seed) for seed in range(2)]
    names = [metric["name"] for metric in told(here)["metrics"]]
    assert BATCH in names
    assert "s_per_million" not in names  # of runs as fast as they can go alone
    fast = [report(seed=seed, config={"rate": "max", "sessions": 50}) for seed in range(2)]
    assert "s_per_million" in [metric["name"] for metric in told(fast)["metrics"]]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "settings not recorded"),
        ({"rate": 500.0, "sessions": 50}, "500 events/s, 50 sessions"),
        ({"rate": "max", "sessions": 50}, "as fast as it can, 50 sessions"),
        ({"rate": 2000.0, "sessions": 9, "open_sessions": 7}, "2,000 events/s, 9 sessions, open sessions 7"),
    ],
)
def test_a_setting_is_told_by_its_load_and_what_is_not_at_its_default(config: dict[str, Any], says: str) -> None:
    assert costs.label(Setting.of({"schema": SCHEMA, "cell": {"sink": "kafka"}, "config": config})) == says


def test_a_default_setting_says_no_more_than_its_load() -> None:
    made = sample_reports.cell_of("kafka", "exactly-once", "two-phase")
    assert costs.label(Setting.of(made)) == "2,000 events/s, 200 sessions"


def test_figures_have_four_digits_and_no_empty_fraction() -> None:
    assert [short(value) for value in (None, 1.0, 1234.56, 0.0123456, 2.5)] == [None, 1, 1235, 0.01235, 2.5]


def test_the_list_of_costs_has_no_interval_of_one_round() -> None:
    one = [line.split(",") for line in lists.costs(rounds(8.0)).splitlines() if ",batch_ms," in line]
    assert [line[-7:] for line in one] == [
        ["1", "100.0", "", "", "", "", ""],
        ["1", "108.0", "", "", "1.08", "", ""],
    ]


def test_in_the_list_of_costs_settings_of_two_machines_are_told_apart() -> None:
    here, there = ({"environment": {"cpu": cpu, "cores": 2}} for cpu in ("one", "another"))
    both = [{**report, **where} for where in (here, there) for report in rounds(8.0)]
    told = {row["setting"] for row in csv.DictReader(io.StringIO(lists.costs(both)))}
    assert {each.rsplit("machine ", 1)[-1] for each in told} == {"one, 2 cores", "another, 2 cores"}
    (alone,) = {row["setting"] for row in csv.DictReader(io.StringIO(lists.costs(rounds(8.0))))}
    assert "machine" not in alone


def test_a_run_is_listed_under_the_setting_of_its_costs_though_others_were_made_elsewhere() -> None:
    made = [{**each, "environment": {"cpu": "one", "cores": 2}} for each in sample_reports.healthy(1)]
    faulted = [{**each, "environment": {"cpu": "another", "cores": 2}} for each in sample_reports.faulted(1)]
    stored = [Stored(each, "f", at) for at, each in enumerate([*made, *faulted], 1)]
    listed = {row["setting"] for row in csv.DictReader(io.StringIO(lists.runs(stored))) if row["faults"] == "none"}
    costed = {row["setting"] for row in csv.DictReader(io.StringIO(lists.costs([*made, *faulted])))}
    assert listed == costed
