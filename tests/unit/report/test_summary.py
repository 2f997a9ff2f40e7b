"""The summary of a run: counts always, a speed only if the promise was kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.audit.anomalies import CATALOGUE
from oncebench.report.faults import faults_of
from oncebench.report.summary import summary

KILL = {"point": "after-commit", "batch": 6, "hit": True, "fault": "after-commit:kill"}
RANDOM = {"point": "mid-write", "batch": 8, "hit": True, "fault": "random:kill"}
ROWS = {"expected": 1500, "visible": 1480, "lost": 0, "duplicated": 0}
SPEEDS = ("throughput", "latency", "batch", "CPU", "recovery")


def report(verdict: str = "kept", **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "cell": {"sink": "kafka", "guarantee": "exactly-once", "variant": "v", "faults": [], "random_kills": 0},
        "verdict": verdict,
        "reasons": [],
        "anomalies": {},
        "sessions": {"acknowledged": 400, "finished": 400},
        "rows": {"expected": 8000, "visible": 8000, "lost": 0, "duplicated": 0},
        "throughput": {"events_per_s": 1800.0},
        "latency_ms": {"p50": 5.0, "p95": 6.0, "p99": 7.0, "p999": 8.0, "max": 9.0, "n": 300},
        "batches": {"trigger_ms": 100.0},
        "checkpoint": {"share_of_batch": 0.04, "per_million_events": {"bytes": 2e7}, "per_batch": {"bytes": 4e3}},
        "sink_ms": {"prepare": 20.0, "decide": None, "commit": 12.0, "total": 40.0},
        "cpu_s_per_million_events": 900.0,
        "deaths": {"asked": 1, "unasked": 0, "each_unasked": []},
        "faults": [KILL],
        "recovery": {
            "detect": 40.0, "restart": 9000.0, "first_visible": 12000.0, "caught_up": None, "longest_gap": 12000.0
        },
        "reproduce": "oncebench run",
    }  # fmt: skip
    return {**made, **changes}


def lines(made: dict[str, Any]) -> dict[str, str]:
    found = {}
    for line in summary(made).splitlines()[1:]:
        found[line[2:14].strip()] = line[14:]
    return found


def test_a_kept_run_has_its_cost() -> None:
    reported = lines(report())
    assert reported.keys() >= set(SPEEDS)
    assert reported["batch"] == "100 ms: checkpoint 4.0%, sink prepare 20  commit 12  total 40 ms"


def test_a_late_generator_beside_a_small_latency_is_named() -> None:
    many = {"latency_ms": {**report()["latency_ms"], "n": 2000}}
    late, punctual = (summary(report(generator={"lateness_ms": {"p99": ms}}, **many)) for ms in (2.0, 1.0))
    assert "              includes that the generator was 2 ms late for one event in a hundred\n" in late
    assert "includes that" not in punctual


BEHIND = {"lag_slope": 0.12, "lag_slope_error": 0.01, "latency_rise": 0.8}
HEALTHY = {**report()["cell"], "faults": []}


def test_a_run_that_fell_behind_says_so_first() -> None:
    text = summary(report(cell=HEALTHY, faults=[], steadiness=BEHIND)).splitlines()
    assert text[1].split(maxsplit=1) == [
        "LOAD", "the pipeline fell behind its load: the latencies below include the backlog"
    ]  # fmt: skip
    assert "12.0% of the load" in text[2]
    assert "backlog" not in summary(report("broken", cell=HEALTHY, faults=[], steadiness=BEHIND))


@pytest.mark.parametrize(
    "changes",
    [
        {"steadiness": {**BEHIND, "lag_slope": 0.02, "lag_slope_error": 0.01}},
        {"steadiness": {**BEHIND, "lag_slope": None}},
        {"steadiness": BEHIND, "config": {"rate": "max"}},
        {"steadiness": BEHIND, "cell": {**HEALTHY, "faults": ["after-commit:kill"]}},
    ],
)
def test_only_a_healthy_run_with_a_surely_growing_lag_fell_behind(changes: dict[str, Any]) -> None:
    assert "fell behind" not in summary(report(**changes))


@pytest.mark.parametrize("primed", [{}, {"primed": 30}])
def test_priming_is_not_counted_as_load(primed: dict[str, int]) -> None:
    counts = lines(report(sessions={"acknowledged": 45, "finished": 75, **primed}, rows=ROWS | {"lost": 20}))
    assert counts["sessions"] == "45 of 45 finished, after 30 for warm-up"
    assert counts["rows"] == "900 expected + 600 from warm-up, 1,480 visible in all, 20 lost, 0 duplicated"
    alone = lines(report(sessions={"acknowledged": 45, "finished": 44}, rows=ROWS | {"expected": 880}))
    assert alone["sessions"] == "44 of 45 finished"
    assert alone["rows"] == "880 expected, 1,480 visible, 0 lost, 0 duplicated"


def test_a_latency_names_the_rows_that_were_never_seen() -> None:
    figures = {"p50": 5.0, "p95": 6.0, "p99": 7.0, "p999": None, "max": None, "n": 3000, "unseen": 4}
    assert lines(report(latency_ms=figures))["latency"].startswith(
        "p50 5  p95 6  p99 7 ms, 3,000 rows after the warm-up, and 4 never seen ("
    )


def test_a_flat_out_load_has_no_latency() -> None:
    reported = lines(report(config={"rate": "max"}))
    assert "latency" not in reported and reported["throughput"] == "1,800 events/s"
    assert reported["CPU"].endswith("s per million events (pipeline and servers, with restarts)")


def test_open_sessions_are_in_the_first_line() -> None:
    cell = report()["cell"] | {"open_sessions": 10_000}
    assert summary(report(cell=cell)).splitlines()[0] == "kafka  exactly-once  v  healthy, 10,000 open sessions"


@pytest.mark.parametrize("verdict", ["broken", "unknown", "vacuous"])
def test_a_run_that_was_not_kept_has_counts_and_no_speed(verdict: str) -> None:
    reported = lines(report(verdict))
    assert reported.keys().isdisjoint(SPEEDS)
    assert reported.keys() >= {"sessions", "rows", "fault", "speed"}


def test_a_fault_that_was_not_hit_has_a_next_step() -> None:
    text = summary(report("vacuous", reasons=["the fault after-prepare:kill was not hit"]))
    assert "was not hit\n              run it again; if the fault was not hit, with a longer --duration" in text
    assert "--duration" not in summary(report("unknown", reasons=["no"]))


def test_each_code_has_its_count_kinds_and_meaning_and_no_formula() -> None:
    splits = {"DUP": {"same-partition": 0, "other-partition": 3}, "INCO": {"changed": 4, "vanished": 1}}
    rules = {code: CATALOGUE[code].rule for code in ("TORN", "DUP", "INCO")}
    text = summary(report("broken", anomalies={"TORN": 2, "DUP": 3, "INCO": 5}, rules=rules, splits=splits))
    assert text.split("  auditors")[0].split("  seen        ")[1].split("\n  sessions")[0].splitlines() == [
        "TORN 2: sessions with only some of their rows",
        "              DUP 3 (other-partition 3): rows visible more than once",
        "              INCO 5 (changed 4, vanished 1): reads that disagree",
        "              exact rules: docs/anomalies.md",
    ]
    assert "m(x)" not in text


def test_a_report_of_another_version_has_the_count_of_its_code_alone() -> None:
    text = summary(report("broken", anomalies={"LOSS": 2, "NEW": 3}))
    assert "  seen        LOSS 2: rows lost\n              NEW 3\n" in text


def test_a_latency_with_a_fault_is_marked_as_including_the_outage() -> None:
    marked = "includes the outage of each fault"
    healthy = report()["cell"]
    for cell in ({**healthy, "faults": ["after-commit:kill"]}, {**healthy, "random_kills": 3}):
        after = summary(report(cell=cell)).split("  latency ")[1].splitlines()[1]
        assert after.strip().startswith(marked)
    assert marked not in summary(report(cell=healthy))
    assert marked not in summary(report("broken", cell={**healthy, "faults": ["after-commit:kill"]}))


def test_an_unmeasured_figure_has_no_line() -> None:
    nothing = dict.fromkeys(("p50", "p95", "p99", "p999", "max"))
    text = summary(
        report(
            throughput={"events_per_s": None},
            config={"rate": "max"},
            latency_ms={**nothing, "n": 0},
            batches={"trigger_ms": None},
            checkpoint={"share_of_batch": None},
            sink_ms=dict.fromkeys(("prepare", "decide", "commit", "total")),
            cpu_s_per_million_events=None,
            recovery=dict.fromkeys(("detect", "restart", "first_visible", "caught_up", "longest_gap")),
        )
    )
    assert not any(f"  {name} " in text for name in SPEEDS)
    assert " - " not in text


@pytest.mark.parametrize(
    ("workload", "what"),
    [("sessions", "session ended"), ("windows", "window ended"), ("records", "record was sent")],
)
def test_a_load_within_its_warm_up_says_why_it_has_no_latency(workload: str, what: str) -> None:
    nothing = {**dict.fromkeys(("p50", "p95", "p99", "p999", "max")), "n": 0}
    reported = lines(report(config={"warmup_s": 3.0, "workload": workload}, latency_ms=nothing))
    expected = f"not measured: no {what} after the warm-up of 3 s (give more load, or --warmup 0)"
    assert reported["latency"] == expected


def test_a_sink_without_times_has_no_dashes() -> None:
    reported = lines(report(sink_ms=dict.fromkeys(("prepare", "decide", "commit", "total"))))
    assert reported["batch"] == "100 ms: checkpoint 4.0%"


def test_each_fault_has_its_place() -> None:
    early, missed = {**RANDOM, "point": None, "batch": None}, {**KILL, "hit": False, "batch": None}
    text = summary(report(faults=[RANDOM, KILL, early, missed]))
    assert [line for line in text.splitlines() if line.startswith("  fault ")] == [
        "  fault       random:kill: landed in batch 8, past mid-write",
        "  fault       after-commit:kill: hit in batch 6",
        "  fault       random:kill: landed before the first step of a batch",
        "  fault       after-commit:kill: NOT hit",
    ]


def test_a_kill_of_an_engine_without_batches_has_no_batch() -> None:
    text = summary(report(faults=[{**RANDOM, "point": None, "batch": None}], batches={"n": None, "trigger_ms": None}))
    assert "  fault       random:kill: at a random time\n" in text


def test_a_recovery_that_never_caught_up_has_a_reason() -> None:
    said = "caught up is unknown: it needs 10 s of load and no fault after the recovery"
    assert said in summary(report())
    assert said not in summary(report(recovery=report()["recovery"] | {"caught_up": 14_000.0}))


def test_a_recovery_without_a_new_row_has_a_reason() -> None:
    reported = summary(report(recovery=report()["recovery"] | {"first_visible": None, "caught_up": None}))
    assert "no new row came after the fault: the load was too short" in reported
    assert "no new row" not in summary(report())
    assert "process back" in reported


def test_several_recoveries_have_a_median_and_a_longest() -> None:
    marks = report()["recovery"] | {"replayed_rows": 1200}
    assert lines(report(recovery=marks))["recovery"].endswith(
        "(from the first fault; longest gap 12.0 s, 1,200 replayed rows)"
    )
    several = [{**KILL, "recovery": {"first_visible": ms}} for ms in (3000.0, None, 4000.0, 9000.0)]
    text = summary(report(faults=several))
    assert "after 3 of 4 faults: first row 4.0 s (median), 9.0 s (longest); after the others no new row" in text
    assert "of 3 faults: first row 4.0 s" in summary(report(faults=[several[0], *several[2:]]))
    assert "of 1 faults" not in summary(report(faults=several[:1]))


def test_faults_are_sorted_by_time_and_missed_ones_come_last() -> None:
    kills = [
        {"event": "random-kill", "t_us": t_us, "landed": landed}
        for t_us, landed in ((10, {"point": "mid-write", "batch": 3}), (30, None))
    ]
    record: Any = SimpleNamespace(
        hits=SimpleNamespace(items=[{**KILL, "t_us": 20, "action": "kill"}]),
        timeline=SimpleNamespace(items=[*kills, {"event": "drained", "t_us": 40}]),
        progress=SimpleNamespace(items=[]),
        path=Path("run"),
        cell={"cell": {"faults": ["after-commit:kill", "mid-commit:kill"]}},
    )
    assert [(fault["fault"], fault["point"], fault["batch"]) for fault in faults_of(record)] == [
        ("random:kill", "mid-write", 3),
        ("after-commit:kill", "after-commit", 6),
        ("random:kill", None, None),
        ("mid-commit:kill", "mid-commit", None),
    ]


def test_an_unasked_death_is_reported_without_speed() -> None:
    death = {"exit_code": None, "signal": 11, "why": "", "after_start_s": 0.9}
    reported = lines(report(deaths={"asked": 0, "unasked": 1, "each_unasked": [death]}))
    assert reported["died"] == "1 x unasked (signal 11, 0.9 s after its start); see logs/pipeline.log"
    assert reported["speed"] == "left out: the pipeline died 1 time unasked" and reported.keys().isdisjoint(SPEEDS)


def test_a_late_generator_is_the_reason_for_no_speed() -> None:
    reported = lines(report(generator={"lateness_ms": {"p99": 340.0}}))
    late = "the generator was 340 ms late for one event in a hundred (the machine was busy: run it again)"
    assert reported["speed"] == f"left out: {late}"
    assert reported.keys().isdisjoint(SPEEDS)


def test_a_generator_that_waited_for_kafka_does_not_blame_the_machine() -> None:
    reported = lines(report(generator={"lateness_ms": {"p99": 340.0}, "queue_full_s": 3.2}))
    late = "the generator was 340 ms late for one event in a hundred"
    assert reported["speed"] == f"left out: {late} (Kafka's acknowledgements were too slow: lower the rate)"
    limit = {"limit": "acknowledgements", "part": "the generator", "share": None, "cores_busy": 0.4}
    assert (
        lines(report(bottleneck=limit))["bottleneck"]
        == "Kafka's acknowledgements: the generator waited for them; cores 40% busy"
    )


def test_a_percentile_without_a_session_above_it_is_left_out() -> None:
    of = report()["latency_ms"]
    assert "p95 6  p99 7  max 9 ms" in lines(report(latency_ms={**of, "n": 2000}))["latency"]
    assert "p50 5  p95 6  max 9 ms" in lines(report(latency_ms={**of, "n": 1000}))["latency"]
    assert "p99 7  p999 8  max 9 ms" in lines(report(latency_ms={**of, "n": 20_000}))["latency"]


def test_an_older_report_without_deaths_is_readable() -> None:
    old = report()
    del old["deaths"]
    assert summary(old) == summary(report())


def test_the_last_line_has_the_folder_of_the_files() -> None:
    assert summary(report(), Path("results/local/work/x")).splitlines()[-1] == "  files       results/local/work/x"
    assert "files" not in lines(report())


def test_what_was_switched_off_in_kafkas_security_is_printed() -> None:
    weak = {"security": {"weaknesses": ["the host names of Kafka's brokers are not checked"]}}
    assert "  INSECURE    the host names of Kafka's brokers" in summary(report(environment={"kafka": weak}))
    for kafka in (None, {}, {"security": {"weaknesses": []}}):
        assert "INSECURE" not in summary(report(environment={"kafka": kafka}))
