"""Published curves, timelines and recovery: each is of runs as measured."""

from __future__ import annotations

from typing import Any

import pytest

from oncebench.audit.python.latency import CURVE
from oncebench.report.comparisons import random_kills
from oncebench.report.configuration import configurations_of
from oncebench.report.tables import fault_text, recovery_table
from oncebench.report.titles import title
from oncebench.site import curves, data
from oncebench.site.faults import recovery, timelines
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
    data = timelines.as_json(reports, list(configurations_of(reports)), texts)
    made = texts.as_json()
    return [{**each, "title": " ".join(made["words"][word] for word in made["texts"][each["title"]])} for each in data]


def faulted(number: int = 0) -> dict[str, Any]:
    return [each for each in sample_reports.faulted(1) if len(each["faults"]) > 3 and each["cell"]["faults"]][number]


def test_curve_is_of_the_run_with_the_median_p99() -> None:
    drawn_curve = curve(healthy(900.0, 700.0, 800.0))
    assert (drawn_curve["run"], drawn_curve["of"], drawn_curve["n"]) == (2, 3, 14_000)
    assert curve(healthy(900.0, 700.0))["run"] == 1


def test_the_list_of_runs_says_how_many_processes_a_run_had() -> None:
    (made,) = healthy(800.0)
    several = {**made, "config": {**made.get("config", {}), "generators": 2, "observers": 3}}
    said = [data._test(each, ["generators", "observers"]) for each in (made, several)]  # type: ignore[arg-type]
    assert said == ["healthy", "healthy, 2 generators, 3 observers"]
    killed = {**several, "cell": {**made["cell"], "faults": ["after-commit:kill"]}}
    assert data._test(killed, []).endswith("2 generators, 3 observers")  # type: ignore[arg-type]


def test_percentile_needs_a_session_above_it_but_maximum_does_not() -> None:
    (made,) = healthy(800.0)
    made["latency_ms"]["n"] = 150 * 20
    points = dict(zip(CURVE, curve([made])["ms"], strict=True))
    assert points[99.0] is not None
    assert points[99.5] is points[99.9] is points[99.99] is None
    assert points[100.0] is not None
    made["latency_curve_ms"][-1] = None  # rows that were never seen
    assert curve([made])["ms"][-1] is None


def test_reports_without_usable_latencies_have_no_curve() -> None:
    (made,) = healthy(800.0)
    for changed in (sample_reports.older(made), {**made, "verdict": "unknown"}, {**made, "latency_curve_ms": None}):
        assert curves.curve_of(changed) is None
        assert curves.as_json([changed], [KAFKA])["settings"] == [[]]


def test_timeline_is_the_first_run_with_the_worst_verdict() -> None:
    made = faulted()
    assert [each["run"] for each in drawn(made, {**made, "seed": 2})] == [0]
    assert [each["run"] for each in drawn(made, {**made, "verdict": "broken"}, {**made, "verdict": "broken"})] == [1]
    assert [each["run"] for each in drawn({**made, "interrupted": True}, made)] == [1]


def test_faults_and_marks_are_in_seconds_after_the_start() -> None:
    made = faulted()
    made["faults"][0] |= {"t_us": made["timeline"]["start_us"] + 2_500_000, "lost": 1, "duplicated": 2}
    made["faults"][0]["recovery"] = {"detect": 200.0, "restart": 6000.0, "first_visible": 9000.0, "caught_up": None}
    (timeline,) = drawn(made)
    at, _, *rest = timeline["faults"][0]
    assert (at, rest) == (2.5, [1, 2, 0.2, 6.0, 9.0, None])
    assert len(timeline["faults"]) == sum(fault["hit"] for fault in made["faults"])


@pytest.mark.parametrize(("workload", "times"), [("sessions", 5), ("records", 1), ("windows", None)])
def test_visible_events_are_those_of_the_workload(workload: str, times: int | None) -> None:
    made = faulted()
    made["timeline"] |= {"step_s": 1.0, "sent": [40.0], "visible": [8], "p50_ms": [None], "p99_ms": [None], "lag": [0]}
    (timeline,) = drawn({**made, "config": {**made["config"], "workload": workload}})
    assert timeline["visible"] == [times and 8 * times]


def test_timeline_without_a_start_has_no_marks() -> None:
    made = faulted()
    made["timeline"] = {name: value for name, value in made["timeline"].items() if name != "start_us"}
    (timeline,) = drawn(made)
    assert (timeline["marked"], timeline["faults"]) == (False, [])


def test_merged_steps_keep_sums_peaks_and_gaps() -> None:
    assert timelines.merged([1, 2, 3, 4, 5], 2, sum) == [3, 7, 5]
    assert timelines.merged([1.0, None, None, None, 9.0, 2.0], 2, max) == [1.0, None, 9.0]
    made = faulted()
    (timeline,) = drawn(made)
    each = timeline["step"] / made["timeline"]["step_s"]
    assert each == 1  # few timelines fit with every step
    assert max(timeline["lag"]) == max(made["timeline"]["lag"])
    assert timeline["visible"][0] == pytest.approx(5 * made["timeline"]["visible"][0], rel=0.01)


def test_all_timelines_together_fit_the_limit_of_steps() -> None:
    assert timelines.room([100, 50]) == timelines.MOST_STEPS
    lengths = [500] * 100 + [60] * 100
    most = timelines.room(lengths)
    assert timelines.FEWEST_STEPS < most < timelines.MOST_STEPS
    assert sum(-(-length // -(-length // most)) for length in lengths) <= timelines.ALL_STEPS
    assert timelines.room([10**6] * 10**4) == timelines.FEWEST_STEPS


def test_older_and_healthy_reports_have_no_timeline() -> None:
    assert drawn(sample_reports.older(faulted()), *healthy(800.0)) == []


def test_title_is_the_family_or_the_faults() -> None:
    made = faulted()
    assert title(made) == f"kills: {len(made['faults'])} faults"
    assert title(sample_reports.only(made, faults=["after-commit:kill"])) == "after-commit:kill"
    assert title(sample_reports.only(made, faults=[], random_kills=3)) == "3 random kills"
    assert title(sample_reports.only(made, faults=["after-commit:kill"], open_sessions=9)).endswith("9 open sessions")
    assert title(sample_reports.only(made, faults=[])) == ""


def test_frequent_words_have_the_smallest_numbers() -> None:
    texts = Texts()
    given = ["rare --seed 1", "--seed 2", "--seed  2"]
    assert [texts.add(each) for each in given] == [0, 1, 2]
    packed = texts.as_json()
    assert packed["words"][:2] == ["--seed", "2"]
    assert [" ".join(packed["words"][word] for word in each) for each in packed["texts"]] == given


def test_recovery_and_random_kills_are_the_rows_of_the_tables() -> None:
    made = list(sample_reports.faulted(1))
    data = recovery.as_json(made, rows := list(configurations_of(made)))
    kills = [row for rows in data["rows"] for row in rows if row["family"] == "kills"]
    (of_machine,) = recovery_table.tables(recovery_table.outages_of(made), "kills").values()
    assert [(*rows[row["configuration"]], row["action"], *row["cells"]) for row in kills] == of_machine
    for row in kills:
        assert all(made[run]["cell"]["sink"] == rows[row["configuration"]][0] for run in row["runs"])
        assert len(row["runs"]) == 1
    random, first = data["random_kills"]["rows"], ["kills", "rows lost", "rows duplicated", "rate at most"]
    assert data["random_kills"]["headings"] == first, "the rate is what the text explains, so it is no last column"
    head = [each.removeprefix("rows ") for each in first] + data["random_kills"]["points"]
    for row, expected in zip(random, random_kills.table(made), strict=True):
        named = dict(zip(random_kills.HEADINGS, expected, strict=True))
        assert rows[row["configuration"]] == expected[:3]
        assert dict(zip(head, [*row["cells"], *row["points"]], strict=True)) == {
            name: text for name, text in named.items() if name in head
        }
    assert {*random_kills.HEADINGS[3:]} - {*head} == {"runs"}
    assert all(made[run]["cell"]["random_kills"] for row in random for run in row["runs"])


def test_recovery_mark_that_no_fault_has_is_left_out() -> None:
    made = list(sample_reports.faulted(1))
    for report in made:
        for fault in report["faults"]:
            if fault.get("recovery"):
                fault["recovery"]["caught_up"] = None
    (rows,) = recovery.as_json(made, list(configurations_of(made)))["overall"]["rows"]
    assert rows
    assert all(row[1] != "0" for row in rows)


def test_recovery_on_each_machine_is_a_row_with_its_own_runs() -> None:
    first = list(sample_reports.faulted(1))
    other = [{**each, "environment": {**each["environment"], "cores": 64}} for each in first]
    data = recovery.as_json(first + other, list(configurations_of(first)))
    assert data["machines"] == ["a processor, 2 cores", "a processor, 64 cores"]
    assert len(data["overall"]["rows"]) == 2
    for machine, reports in enumerate((first, other)):
        (alone,) = recovery.as_json(reports, list(configurations_of(first)))["rows"]
        assert [row["cells"] for row in data["rows"][machine]] == [row["cells"] for row in alone]
        assert all(run // len(first) == machine for row in data["rows"][machine] for run in row["runs"])


def on_a_cluster(reports: list[Any]) -> list[Any]:
    return [{**report, "config": {**report.get("config", {}), "workers": 2}} for report in reports]


def test_recovery_of_a_cluster_is_not_added_to_that_of_local_runs() -> None:
    made = list(sample_reports.faulted(1))
    rows = list(configurations_of(made))
    local = recovery.as_json(made, rows)
    assert recovery.as_json(made + on_a_cluster(made), rows) == local


def test_a_timeline_of_a_cluster_does_not_take_the_place_of_a_local_one() -> None:
    made = list(sample_reports.faulted(1))
    rows = list(configurations_of(made))
    local = timelines.as_json(made, rows, Texts())
    both = timelines.as_json(made + on_a_cluster(made), rows, Texts())
    assert len(local) > 0
    assert len(both) == 2 * len(local)


def test_random_kills_of_a_cluster_have_a_table_of_their_own() -> None:
    made = list(sample_reports.faulted(1))
    text = fault_text.markdown(made + on_a_cluster(made), [])
    alone = fault_text.markdown(made, [])
    assert "where the random kills landed:" in alone
    assert alone.partition("where the random kills landed:")[2].split("\n\n")[1] in text
    assert "where the random kills landed, cluster of 2:" in text
