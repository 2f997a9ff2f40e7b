"""A table contains fields of reports, and no speed where the answer was wrong."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.report.comparisons.paired import Setting
from oncebench.report.tables import table as tables
from oncebench.site import csv_tables
from oncebench.site.data import data_of
from oncebench.site.stored import Stored
from tests import sample_reports


def report(variant: str = "two-phase", verdict: str = "kept", seed: int = 1, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "cell": {"sink": "kafka", "guarantee": "exactly-once", "variant": variant, "faults": [], "random_kills": 0},
        "verdict": verdict,
        "anomalies": {} if verdict == "kept" else {"DUP": 2},
        "rows": {"lost": 0, "duplicated": 0 if verdict == "kept" else 2},
        "throughput": {"events_per_s": 1000.0},
        "latency_ms": {"p50": 5.0, "p95": 6.0, "p99": 7.0},
        "checkpoint": {"share_of_batch": 0.05, "per_million_events": {"bytes": 5e6}, "per_batch": {"bytes": 5e3}},
        "cpu_s_per_million_events": 3.0,
        "recovery": {"first_visible": None},
        "batches": {"trigger_ms": 100.0},
        "faults": [],
        "seed": seed,
        "series": "compare",
    }
    return {**made, **changes}


def only_row(*reports: dict[str, Any]) -> dict[str, str]:
    (row,) = tables.rows(reports)
    return dict(zip(tables.HEADINGS, row, strict=True))


def test_a_kept_cell_has_its_figures() -> None:
    row = only_row(report())
    assert (row["verdict"], row["events/s"], row["p99 ms"], row["recovery s"]) == ("kept", "1,000", "7", "-")


def test_a_verdict_names_only_what_broke_the_promise() -> None:
    cell = {**report()["cell"], "guarantee": "at-least-once"}
    seen = {"anomalies": {"LOSS": 1, "DUP": 2, "EXPO": 1}, "broken_by": ["LOSS"]}
    assert only_row(report(verdict="broken", cell=cell, **seen))["verdict"] == "broken (LOSS)"


def test_each_row_has_its_number_of_runs() -> None:
    late = report(seed=3, generator={"lateness_ms": {"p99": 340.0}})
    made = [report(), report(seed=2), late, report("idempotent", "broken")]
    assert [(row[2], row[5]) for row in tables.rows(made)] == [("idempotent", "1"), ("two-phase", "3")]
    read = list(csv.DictReader(io.StringIO(tables.as_csv(made))))
    assert [row["runs"] for row in read] == ["1", "3"]
    assert "| runs | lost |" in tables.markdown(made)


def test_runs_of_several_versions_have_a_note() -> None:
    made = [report(environment={"commit": commit}) for commit in ("aaaa", "bbbb-dirty", "aaaa")]
    note = "Runs of 2 versions of oncebench, by commit: aaaa, bbbb-dirty"
    assert tables.markdown(made).endswith(f"\n\n{note}.\n")
    assert tables.markdown([*made, report()]).endswith(f"\n\n{note}, and some that no report names.\n")
    assert "version" not in tables.markdown([made[0], made[2]])


def test_a_repeated_report_counts_once(tmp_path: Path) -> None:
    made = sample_reports.cell_of("kafka", "at-least-once", "acknowledged")
    text = json.dumps(made | {"rows": made["rows"] | {"duplicated": 20}}) + "\n"
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(text)
    words = ["table", "--csv", f"{tmp_path / 'a.jsonl'}"]
    once, twice = (CliRunner().invoke(cli, [*words, *more]).output for more in ([], [f"{tmp_path / 'b.jsonl'}"]))
    assert once == twice


def test_markdown_leaves_empty_columns_out_and_csv_keeps_them() -> None:
    busy, with_room = report(), report(seed=2, config={"trigger_ms": 1000})
    assert "CPU s/M events" not in tables.markdown([busy])
    assert "CPU s/M events" in tables.markdown([busy, with_room])
    assert "CPU s/M events" in tables.as_csv([busy])


BEHIND = {"lag_slope": 0.12, "lag_slope_error": 0.01, "latency_rise": 0.8}


def test_a_cell_that_mostly_fell_behind_is_marked_with_a_note_below() -> None:
    behind = report(steadiness=BEHIND)
    assert only_row(behind, report(), behind)["verdict"] == "kept, fell behind"
    assert only_row(behind, report())["verdict"] == "kept"
    *_, note = tables.markdown([behind]).splitlines()
    assert note.startswith("fell behind: the pipeline fell behind its load, so the latencies of this row include")
    assert "fell behind" not in tables.markdown([report(steadiness=BEHIND, config={"rate": "max"})])
    killed = report(steadiness=BEHIND, cell={**report()["cell"], "faults": ["mid-write:kill"]})
    assert "fell behind" not in tables.markdown([killed])


def test_latencies_of_a_row_with_a_fault_are_marked_as_including_the_outage() -> None:
    kills = {**report()["cell"], "random_kills": 3}
    for faulted in (killed("after-commit:kill"), report(cell=kills)):
        row = only_row(faulted)
        assert (row["p50 ms"], row["p99 ms"], row["events/s"]) == ("5*", "7*", "1,000")
        assert tables.markdown([report(), faulted]).splitlines()[-1] == (
            "*: the latency includes the outage of each fault. Compare guarantees by the rows without a fault."
        )
        assert "*" not in tables.as_csv([faulted])
    assert "*" not in tables.markdown([report()])


def test_a_missing_percentile_has_its_reason_below_the_table() -> None:
    few = report(latency_ms={"p50": 5.0, "p95": 6.0, "p99": 7.0, "n": 45 * 20})
    table, notes = tables.markdown([few]).split("\n\n")
    assert "p95 ms" in table and "p99 ms" not in table
    assert notes == "p99 is missing for 1 run: it needs 100 sessions after the warm-up (give more load).\n"
    assert "p99 is missing for 2 runs: " in tables.markdown([few, report(), few])
    windows = {**few, "latency_ms": {**few["latency_ms"], "n": 99}, "config": {"workload": "windows"}}
    assert "it needs 100 windows after" in tables.markdown([windows])
    assert "missing" not in tables.markdown([report()])
    assert "missing" not in tables.markdown([{**few, "verdict": "broken"}])
    flat_out = tables.markdown([report(config={"rate": "max"})])
    assert flat_out.endswith("\nlatency is missing with --rate max: the load is complete before the pipeline starts.\n")


def test_a_broken_cell_has_counts_and_no_speed() -> None:
    row = only_row(report(verdict="broken"))
    assert (row["verdict"], row["duplicated"], row["events/s"], row["p50 ms"]) == ("broken (DUP)", "2", "-", "-")


def test_one_broken_repeat_breaks_the_cell() -> None:
    row = only_row(report(), report(verdict="broken"), report(verdict="broken"))
    assert (row["verdict"], row["duplicated"], row["events/s"]) == ("broken (DUP)", "4", "-")


def on_old_checkpoint(guarantee: str, *faults: str, codes: tuple[str, ...] = ("DUP",)) -> dict[str, Any]:
    cell = {"sink": "kafka", "guarantee": guarantee, "variant": "claim", "faults": list(faults), "random_kills": 0}
    did = [{"fault": each, "point": "after-commit", "hit": True, "lost": 0, "duplicated": 2} for each in faults]
    return report(verdict="broken", cell=cell, faults=did, broken_by=list(codes), anomalies=dict.fromkeys(codes, 2))


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (on_old_checkpoint("at-most-once", "after-commit:roll-back"), "limit (DUP)"),
        (on_old_checkpoint("at-most-once", "after-commit:lose-checkpoint"), "limit (DUP)"),
        (on_old_checkpoint("exactly-once", "after-commit:roll-back"), "broken (DUP)"),
        (on_old_checkpoint("at-most-once", "after-commit:kill"), "broken (DUP)"),
        (on_old_checkpoint("at-most-once", "after-commit:roll-back", "after-commit:kill@after=2"), "broken (DUP)"),
        (on_old_checkpoint("at-most-once", "after-commit:roll-back", codes=("CORR", "DUP")), "broken (CORR DUP)"),
    ],
)
def test_a_known_limit_has_no_speed(made: dict[str, Any], word: str) -> None:
    row = only_row(made)
    assert (row["verdict"], row["events/s"]) == (word, "-")
    listed = next(csv.DictReader(io.StringIO(csv_tables.runs([Stored(made, "a.jsonl", 1)]))))
    assert f"{listed['verdict']} ({listed['codes']})" == word
    runs = data_of([Stored({**made, "reasons": [], "reproduce": "again"}, "a.jsonl", 1)])["runs"]
    assert word.startswith(runs["outcomes"][runs["outcome"][0]])


def test_a_limit_is_worse_than_kept_and_better_than_broken() -> None:
    cell = {"sink": "kafka", "guarantee": "at-most-once", "variant": "claim", "faults": ["after-commit:roll-back"]}
    kept = report(cell={**cell, "random_kills": 0})
    limit = on_old_checkpoint("at-most-once", "after-commit:roll-back")
    assert only_row(kept, limit)["verdict"] == "limit (DUP)"
    assert only_row(kept, limit, {**kept, "verdict": "broken", "anomalies": {"LOSS": 1}})["verdict"] == "broken (LOSS)"


def test_unasked_deaths_follow_the_verdict() -> None:
    died = report(deaths={"asked": 1, "unasked": 2, "each_unasked": []})
    assert only_row(report(), died)["verdict"] == "kept, died 2 more"


def test_repeats_become_their_median() -> None:
    fast, slow = (
        report(latency_ms={"p50": 1.0, "p95": 6.0, "p99": 7.0}),
        report(latency_ms={"p50": 9.0, "p95": 6, "p99": 7}),
    )
    assert only_row(fast, report(), slow)["p50 ms"] == "5"


def test_guarantees_are_sorted_by_strength() -> None:
    def of(guarantee: str, *faults: str) -> dict[str, Any]:
        cell = {"sink": "kafka", "guarantee": guarantee, "variant": "v", "faults": list(faults), "random_kills": 0}
        return report(cell=cell)

    displayed = tables.rows(
        [of("exactly-once"), of("at-least-once", "mid-write:kill"), of("at-least-once"), of("at-most-once")]
    )
    assert [(row[1], row[3]) for row in displayed] == [
        ("at-most-once", "none"),
        ("at-least-once", "none"),
        ("at-least-once", "killed mid-write"),
        ("exactly-once", "none"),
    ]


def test_markdown_and_csv_hold_the_same_cells() -> None:
    markdown, comma = tables.markdown([report()]), tables.as_csv([report()])
    displayed = [cell.strip() for cell in markdown.splitlines()[2].strip("|").split("|")]
    assert displayed[:5] == comma.splitlines()[1].split(",")[:5]


def test_markdown_groups_thousands_and_csv_does_not() -> None:
    big = report(
        rows={"lost": 1234, "duplicated": 0},
        throughput={"events_per_s": 12345.6},
        latency_ms={"p50": 1178.4, "p95": 2000.0, "p99": 30000.0},
        cpu_s_per_million_events=1068.0,
        config={"trigger_ms": 1000},
    )
    displayed = only_row(big)
    assert [displayed[name] for name in ("lost", "events/s", "p50 ms", "p99 ms", "CPU s/M events")] == [
        "1,234", "12,346", "1,178", "30,000", "1,068",
    ]  # fmt: skip
    read = next(csv.DictReader(io.StringIO(tables.as_csv([big]))))
    figures = [read[column.heading] for column in tables.COLUMNS]
    assert [float(text) for text in figures[:-1]] == [1234, 0, 12346, 1178, 2000, 30000, 5, 1068]
    assert figures[-1] == ""


def test_the_damage_of_a_fault_without_a_batch_is_absent() -> None:
    killed = {"point": None, "hit": True, "lost": None, "duplicated": None}
    assert tables.fault_markdown([report(faults=[killed])]).splitlines()[2].split("|")[-2].strip() == "-"


def test_each_fault_has_its_damage() -> None:
    faults = [
        {"point": "mid-write", "hit": True, "lost": 0, "duplicated": 20},
        {"point": "after-commit", "hit": True, "lost": 0, "duplicated": 0},
        {"point": "mid-commit", "hit": False, "lost": 0, "duplicated": 0},
    ]
    displayed = tables.fault_markdown([report(faults=faults)]).splitlines()[2]
    assert [cell.strip() for cell in displayed.strip("|").split("|")][3:] == ["20 duplicated", "nothing", "not hit"]


def test_runs_with_open_sessions_have_their_own_rows() -> None:
    cell, killed = report()["cell"], {**report()["cell"], "faults": ["mid-write:kill"]}
    reports = [report(cell=killed), report(cell={**cell, "open_sessions": 10_000}), report()]
    faults = [row[3] for row in tables.rows(reports)]
    assert faults == ["none", "none, 10,000 open sessions", "killed mid-write"]


def test_a_run_without_a_meaningful_speed_adds_no_figures() -> None:
    late = report(generator={"lateness_ms": {"p99": 4000.0}}, latency_ms={"p50": 900.0, "p95": 900.0, "p99": 900.0})
    assert (only_row(late)["p99 ms"], only_row(late)["events/s"], only_row(late)["lost"]) == ("-", "-", "0")
    assert only_row(late, report())["p99 ms"] == "7"
    died = report(deaths={"unasked": 2})
    assert (only_row(died)["verdict"], only_row(died)["p99 ms"]) == ("kept, died 2 more", "-")


def test_each_value_of_a_sweep_has_a_row() -> None:
    made = [
        report(config={"trigger_ms": trigger, "sessions": sessions, "seed": seed}, seed=seed)
        for trigger, sessions in ((0, 100), (1000, 200))
        for seed in (1, 2)
    ]
    found = [dict(zip(tables.HEADINGS, row, strict=True)) for row in tables.rows(made)]
    assert [row["faults"] for row in found] == ["none, trigger 0 ms", "none, trigger 1,000 ms"]
    assert only_row(*made[:2])["faults"] == "none"


def killed(*faults: str, **config: Any) -> dict[str, Any]:
    cell = {**report()["cell"], "faults": list(faults)}
    return report(cell=cell, config={"rate": 300.0, "sessions": 24, **config, "faults": list(faults)})


KILLS = ("mid-write:kill", "after-prepare:kill@after=2", "after-commit:kill@after=2")
BACK = ("after-commit:kill", "after-prepare:kill@after=2", "mid-write:kill@after=2")
EXECUTORS = tuple(fault.replace(":kill", ":kill-executor") for fault in KILLS)


def test_different_chains_have_different_rows() -> None:
    rows = tables.rows([killed(*KILLS), killed(*EXECUTORS), killed(*KILLS), killed(*BACK)])
    assert [row[3] for row in rows] == [", ".join(BACK), "executor: 3 faults", ", ".join(KILLS)]
    older = [report(cell={**report()["cell"], "faults": list(faults)}) for faults in (KILLS, BACK)]
    assert len(tables.rows(older)) == 2
    assert [row[3] for row in tables.rows([killed(*KILLS)] * 2)] == ["kills: 3 faults"]


def test_faulted_runs_with_different_settings_have_their_own_rows() -> None:
    rows = tables.rows([killed(*KILLS), killed(*KILLS, rate=1000.0, sessions=80), killed("mid-write:kill"), report()])
    assert [row[3] for row in rows] == [
        "none", "killed mid-write", "kills: 3 faults, rate 300", "kills: 3 faults, rate 1,000",
    ]  # fmt: skip


def test_rows_name_the_length_of_a_load_if_only_that_differs() -> None:
    made = [report(config={"rate": 300.0, "sessions": sessions}) for sessions in (24, 240)]
    assert [row[3] for row in tables.rows(made)] == ["none, sessions 24", "none, sessions 240"]


def replicated(replicas: int, in_sync: int, **changes: Any) -> dict[str, Any]:
    kafka = {"replicas": str(replicas), "min.insync.replicas": str(in_sync)}
    brokers = {"config": {"brokers": replicas}}
    return report(**{**brokers, "environment": {"durability": {"kafka": kafka}}, **changes})


def test_a_table_says_the_replication_of_its_figures() -> None:
    alone, three = replicated(1, 1), replicated(3, 2, seed=2)
    assert [row[3] for row in tables.rows([alone, three])] == ["none", "none, 3 replicas"]
    text = tables.markdown([alone, three])
    assert "3 replicas of each topic, min.insync.replicas 2.\nWhere no number of replicas is given: one." in text
    assert "is given" not in tables.markdown([three])
    assert "replicas" not in tables.markdown([alone])


def several(max_ms: float, **changes: Any) -> dict[str, Any]:
    """The report of a run with two generators and four observers, one of each kind of lateness."""
    each = [{"lateness_ms": {"p99": 1.0, "max": ms}} for ms in (max_ms, 3.0)]
    config = {"generators": 2, "observers": 4}
    return report(config=config, generator={**each[0], "processes": each, "slowest": 1}, **changes)


def test_a_generator_that_is_late_beside_a_small_latency_has_a_note() -> None:
    fast = {"latency_ms": {"p50": 10.0, "p95": 80.0, "p99": 85.0}}
    late = [report(seed=ms, generator={"lateness_ms": {"p99": float(ms)}}, **fast) for ms in (21, 22, 60)]
    said = (
        "The latencies of 2 runs include a late generator: up to 60 ms for one event in a hundred, above 25% of the p99"
    )
    assert f"{said}." in tables.markdown(late).splitlines()
    assert "late generator" not in tables.markdown(late[:1])
    spark = report(generator={"lateness_ms": {"p99": 60.0}}, latency_ms={"p50": 400.0, "p95": 500.0, "p99": 600.0})
    assert "late generator" not in tables.markdown([spark])
    assert "late generator" not in tables.markdown([{**late[2], "config": {"rate": "max"}}])


def test_a_table_says_how_many_generators_and_observers_there_were() -> None:
    said = "2 generators, 4 observers; the slowest generator was at most 40 ms late."
    text = tables.markdown([several(40.0), several(20.0, seed=2), report(seed=3)])
    assert said in text.splitlines()
    assert "generators 2" in text, "the row of several is not that of one"
    one = report(config={"rate": 5.0, "generators": 1, "observers": 1})
    assert "generator" not in tables.markdown([one, report(seed=2)])
    assert Setting.of(one) == Setting.of(report(config={"rate": 5.0}))


def test_one_broker_is_the_setting_of_reports_without_a_number() -> None:
    older, one, three = ({"rate": 5.0, **more} for more in ({}, {"brokers": 1, "replication": None}, {"brokers": 3}))
    settings = [Setting.of(report(config=config)) for config in (older, one, three)]  # type: ignore[arg-type]
    assert settings[0] == settings[1] != settings[2]
