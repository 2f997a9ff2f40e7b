"""A table shows fields of reports, and no speed where the answer was wrong."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.report.tables import table as tables
from oncebench.site import csv_tables
from oncebench.site.data import data_of
from oncebench.site.stored import Stored
from tests import made_up


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
    }
    return {**made, **changes}


def only_row(*reports: dict[str, Any]) -> dict[str, str]:
    (row,) = tables.rows(reports)
    return dict(zip(tables.HEADINGS, row, strict=True))


def test_a_kept_cell_shows_its_figures() -> None:
    row = only_row(report())
    assert (row["verdict"], row["events/s"], row["p99 ms"], row["recovery s"]) == ("kept", "1,000", "7", "-")


def test_a_run_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    made = made_up.cell_of("kafka", "at-least-once", "acknowledged")
    text = json.dumps(made | {"rows": made["rows"] | {"duplicated": 20}}) + "\n"
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(text)
    words = ["table", "--csv", f"{tmp_path / 'a.jsonl'}"]
    once, twice = (CliRunner().invoke(cli, [*words, *more]).output for more in ([], [f"{tmp_path / 'b.jsonl'}"]))
    assert once == twice


def test_a_column_that_no_row_has_a_figure_in_is_left_out_of_markdown_and_stays_in_csv() -> None:
    busy, with_room = report(), report(seed=2, config={"trigger_ms": 1000})
    assert "CPU s/M events" not in tables.markdown([busy])
    assert "CPU s/M events" in tables.markdown([busy, with_room])
    assert "CPU s/M events" in tables.as_csv([busy])


def test_a_broken_cell_shows_its_counts_and_no_speed() -> None:
    row = only_row(report(verdict="broken"))
    assert (row["verdict"], row["duplicated"], row["events/s"], row["p50 ms"]) == ("broken (DUP)", "2", "-", "-")


def test_one_broken_repeat_breaks_the_cell_and_counts_are_summed() -> None:
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
def test_a_known_limit_has_the_word_of_the_fault_matrix_and_still_no_speed(made: dict[str, Any], word: str) -> None:
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


def test_deaths_that_nobody_asked_for_are_told_beside_the_verdict() -> None:
    died = report(deaths={"asked": 1, "unasked": 2, "each_unasked": []})
    assert only_row(report(), died)["verdict"] == "kept, died 2 more"


def test_repeats_are_put_together_by_their_median() -> None:
    fast, slow = (
        report(latency_ms={"p50": 1.0, "p95": 6.0, "p99": 7.0}),
        report(latency_ms={"p50": 9.0, "p95": 6, "p99": 7}),
    )
    assert only_row(fast, report(), slow)["p50 ms"] == "5"


def test_guarantees_come_in_the_order_of_their_strength_and_healthy_before_broken() -> None:
    def of(guarantee: str, *faults: str) -> dict[str, Any]:
        cell = {"sink": "kafka", "guarantee": guarantee, "variant": "v", "faults": list(faults), "random_kills": 0}
        return report(cell=cell)

    shown = tables.rows(
        [of("exactly-once"), of("at-least-once", "mid-write:kill"), of("at-least-once"), of("at-most-once")]
    )
    assert [(row[1], row[3]) for row in shown] == [
        ("at-most-once", "none"),
        ("at-least-once", "none"),
        ("at-least-once", "killed mid-write"),
        ("exactly-once", "none"),
    ]


def test_markdown_and_csv_hold_the_same_cells() -> None:
    markdown, comma = tables.markdown([report()]), tables.as_csv([report()])
    shown = [cell.strip() for cell in markdown.splitlines()[2].strip("|").split("|")]
    assert shown[:5] == comma.splitlines()[1].split(",")[:5]


def test_markdown_groups_thousands_in_every_column_and_csv_holds_plain_numbers() -> None:
    big = report(
        rows={"lost": 1234, "duplicated": 0},
        throughput={"events_per_s": 12345.6},
        latency_ms={"p50": 1178.4, "p95": 2000.0, "p99": 30000.0},
        cpu_s_per_million_events=1068.0,
        config={"trigger_ms": 1000},
    )
    shown = only_row(big)
    assert [shown[name] for name in ("lost", "events/s", "p50 ms", "p99 ms", "CPU s/M events")] == [
        "1,234", "12,346", "1,178", "30,000", "1,068",
    ]  # fmt: skip
    read = next(csv.DictReader(io.StringIO(tables.as_csv([big]))))
    figures = [read[column.heading] for column in tables.COLUMNS]
    assert [float(text) for text in figures[:-1]] == [1234, 0, 12346, 1178, 2000, 30000, 5, 1068]
    assert figures[-1] == ""


def test_each_fault_is_shown_with_what_it_did() -> None:
    faults = [
        {"point": "mid-write", "hit": True, "lost": 0, "duplicated": 20},
        {"point": "after-commit", "hit": True, "lost": 0, "duplicated": 0},
        {"point": "mid-commit", "hit": False, "lost": 0, "duplicated": 0},
    ]
    shown = tables.fault_markdown([report(faults=faults)]).splitlines()[2]
    assert [cell.strip() for cell in shown.strip("|").split("|")][3:] == ["20 doubled", "nothing", "not hit"]


def test_runs_with_open_sessions_are_cells_of_their_own_and_come_beside_those_without() -> None:
    cell, killed = report()["cell"], {**report()["cell"], "faults": ["mid-write:kill"]}
    reports = [report(cell=killed), report(cell={**cell, "open_sessions": 10_000}), report()]
    faults = [row[3] for row in tables.rows(reports)]
    assert faults == ["none", "none, 10,000 open sessions", "killed mid-write"]


def test_a_run_that_tells_nothing_of_its_speed_adds_none_to_its_cell() -> None:
    late = report(generator={"lateness_ms": {"p99": 4000.0}}, latency_ms={"p50": 900.0, "p95": 900.0, "p99": 900.0})
    assert (only_row(late)["p99 ms"], only_row(late)["events/s"], only_row(late)["lost"]) == ("-", "-", "0")
    assert only_row(late, report())["p99 ms"] == "7"
    died = report(deaths={"unasked": 2})
    assert (only_row(died)["verdict"], only_row(died)["p99 ms"]) == ("kept, died 2 more", "-")


def test_each_value_of_a_sweep_has_a_row_of_its_own() -> None:
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


def test_chains_of_different_faults_are_never_one_row() -> None:
    rows = tables.rows([killed(*KILLS), killed(*EXECUTORS), killed(*KILLS), killed(*BACK)])
    assert [row[3] for row in rows] == [", ".join(BACK), "executor: 3 faults", ", ".join(KILLS)]
    older = [report(cell={**report()["cell"], "faults": list(faults)}) for faults in (KILLS, BACK)]
    assert len(tables.rows(older)) == 2
    assert [row[3] for row in tables.rows([killed(*KILLS)] * 2)] == ["kills: 3 faults"]


def test_faulted_runs_under_different_settings_have_rows_of_their_own() -> None:
    rows = tables.rows([killed(*KILLS), killed(*KILLS, rate=1000.0, sessions=80), killed("mid-write:kill"), report()])
    assert [row[3] for row in rows] == [
        "none", "killed mid-write", "kills: 3 faults, rate 300", "kills: 3 faults, rate 1,000",
    ]  # fmt: skip


def test_where_nothing_but_the_length_of_a_load_differs_rows_tell_it() -> None:
    made = [report(config={"rate": 300.0, "sessions": sessions}) for sessions in (24, 240)]
    assert [row[3] for row in tables.rows(made)] == ["none, sessions 24", "none, sessions 240"]
