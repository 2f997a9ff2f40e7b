"""Published curves, timelines and tables of runs: one run each, as it was measured, and which one it was."""

from __future__ import annotations

from typing import Any

import pytest

from oncebench.audit.python.latency import CURVE
from oncebench.report.comparisons import random_kills
from oncebench.report.configuration import configurations_of
from oncebench.report.tables import recovery_table
from oncebench.report.titles import title
from oncebench.site import curves, timelines
from oncebench.site import recovery as returns
from oncebench.site.pack import Texts
from tests import sample_reports

KAFKA = ("kafka", "exactly-once", "two-phase")


def healthy(*p99: float) -> list[dict[str, Any]]:
    made = [sample_reports.cell_of(*KAFKA, seed=seed) for seed in range(len(p99))]
    return [{**each, "latency_ms": {**each["latency_ms"], "p99": value}} for each, value in zip(made, p99, strict=True)]


def curve(reports: list[dict[str, Any]]) -> dict[str, Any]:
    ((only,),) = curves.as_json(reports, list(configurations_of(reports)))["settings"]
    return dict(only)


def drawn(*reports: dict[str, Any]) -> list[dict[str, Any]]:
    texts = Texts()
    told = timelines.as_json(reports, list(configurations_of(reports)), texts)
    made = texts.as_json()
    return [{**each, "title": " ".join(made["words"][word] for word in made["texts"][each["title"]])} for each in told]


def faulted(number: int = 0) -> dict[str, Any]:
    return [each for each in sample_reports.faulted(1) if len(each["faults"]) > 3 and each["cell"]["faults"]][number]


def test_a_curve_is_that_of_the_run_with_the_median_p99() -> None:
    told = curve(healthy(900.0, 700.0, 800.0))
    assert (told["run"], told["of"], told["n"]) == (2, 3, 14_000)
    assert curve(healthy(900.0, 700.0))["run"] == 1


def test_a_percentile_above_which_no_session_lies_is_not_drawn_but_the_largest_value_is() -> None:
    (made,) = healthy(800.0)
    made["latency_ms"]["n"] = 150 * 20
    told = dict(zip(CURVE, curve([made])["ms"], strict=True))
    assert told[99.0] is not None
    assert told[99.5] is told[99.9] is told[99.99] is None
    assert told[100.0] is not None


def test_a_report_without_a_curve_has_none_and_one_that_tells_nothing_neither() -> None:
    (made,) = healthy(800.0)
    for changed in (sample_reports.older(made), {**made, "verdict": "unknown"}, {**made, "latency_curve_ms": None}):
        assert curves.curve_of(changed) is None
        assert curves.as_json([changed], [KAFKA])["settings"] == [[]]


def test_of_a_faulted_cells_runs_the_first_with_the_worst_verdict_is_drawn() -> None:
    made = faulted()
    assert [each["run"] for each in drawn(made, {**made, "seed": 2})] == [0]
    assert [each["run"] for each in drawn(made, {**made, "verdict": "broken"}, {**made, "verdict": "broken"})] == [1]
    assert [each["run"] for each in drawn({**made, "interrupted": True}, made)] == [1]


def test_faults_and_their_marks_stand_at_seconds_after_the_timelines_start() -> None:
    made = faulted()
    made["faults"][0] |= {"t_us": made["timeline"]["start_us"] + 2_500_000, "lost": 1, "duplicated": 2}
    made["faults"][0]["recovery"] = {"detect": 200.0, "restart": 6000.0, "first_visible": 9000.0, "caught_up": None}
    (told,) = drawn(made)
    at, _, *rest = told["faults"][0]
    assert (at, rest) == (2.5, [1, 2, 0.2, 6.0, 9.0, None])
    assert len(told["faults"]) == sum(fault["hit"] for fault in made["faults"])


def test_a_timeline_that_does_not_say_when_it_starts_has_no_marks() -> None:
    made = faulted()
    made["timeline"] = {name: value for name, value in made["timeline"].items() if name != "start_us"}
    (told,) = drawn(made)
    assert (told["marked"], told["faults"]) == (False, [])


def test_merged_steps_keep_sums_and_peaks_and_silence() -> None:
    assert timelines.merged([1, 2, 3, 4, 5], 2, sum) == [3, 7, 5]
    assert timelines.merged([1.0, None, None, None, 9.0, 2.0], 2, max) == [1.0, None, 9.0]
    made = faulted()
    (told,) = drawn(made)
    each = told["step"] / made["timeline"]["step_s"]
    assert each == 1  # few timelines have room for every step
    assert max(told["lag"]) == max(made["timeline"]["lag"])
    assert told["visible"][0] == pytest.approx(5 * made["timeline"]["visible"][0], rel=0.01)


def test_all_timelines_together_have_no_more_steps_than_there_is_room_for() -> None:
    assert timelines.room([100, 50]) == timelines.MOST_STEPS
    lengths = [500] * 100 + [60] * 100
    most = timelines.room(lengths)
    assert timelines.FEWEST_STEPS < most < timelines.MOST_STEPS
    assert sum(-(-length // -(-length // most)) for length in lengths) <= timelines.ALL_STEPS
    assert timelines.room([10**6] * 10**4) == timelines.FEWEST_STEPS


def test_older_reports_and_healthy_ones_have_no_timeline() -> None:
    assert drawn(sample_reports.older(faulted()), *healthy(800.0)) == []


def test_a_run_is_titled_by_its_family_or_by_its_faults() -> None:
    made = faulted()
    assert title(made) == f"kills: {len(made['faults'])} faults"
    assert title(sample_reports.only(made, faults=["after-commit:kill"])) == "after-commit:kill"
    assert title(sample_reports.only(made, faults=[], random_kills=3)) == "3 random kills"
    assert title(sample_reports.only(made, faults=["after-commit:kill"], open_sessions=9)).endswith("9 open sessions")
    assert title(sample_reports.only(made, faults=[])) == ""


def test_recovery_and_landings_are_the_rows_of_the_tables_with_their_runs() -> None:
    made = list(sample_reports.faulted(1))
    told = returns.as_json(made, ways := list(configurations_of(made)))
    kills = [row for row in told["rows"] if row["family"] == "kills"]
    assert [(*ways[row["way"]], row["nemesis"], *row["cells"]) for row in kills] == recovery_table.table(made, "kills")
    for row in kills:
        assert all(made[run]["cell"]["sink"] == ways[row["way"]][0] for run in row["runs"])
        assert len(row["runs"]) == 1
    landed = told["landings"]["rows"]
    assert [(*ways[row["way"]], *row["cells"]) for row in landed] == random_kills.table(made)
    assert all(made[run]["cell"]["random_kills"] for row in landed for run in row["runs"])
