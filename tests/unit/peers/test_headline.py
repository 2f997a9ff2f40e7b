"""The headline: equal loads for every engine, and each row on its engine."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from oncebench.commands.run import asked_cell, run
from oncebench.commands.shared.options import base_cell
from oncebench.errors import UserError
from oncebench.lab.engine import SPARK, Engine
from oncebench.report import origin
from oncebench.report.configuration import configuration_of
from oncebench.report.tables import engines
from oncebench.report.tables.engines import FLAT_OUT, STEADY
from oncebench.scenario.cell import Cell
from oncebench.site.stored import engines_in
from peers.command import command
from peers.headline.__main__ import code_of, main
from peers.headline.plan import LOADS, ROWS, Row, cells, engine_of
from tests import ROOT
from tests.unit.report.test_engines import report


def test_every_row_gets_the_same_loads_and_seeds() -> None:
    planned = list(cells(ROWS, 2, 7))
    assert len(planned) == 2 * len(ROWS) * len(LOADS)
    loads: dict[str, set[Any]] = {}
    for cell in planned:
        load = (cell.rate, cell.sessions, cell.warmup_s, cell.max_events_per_batch, cell.random_kills, cell.seed)
        loads.setdefault(f"{cell.guarantee} {cell.variant}", set()).add(load)
    assert len(loads) == len(ROWS)
    assert len({frozenset(each) for each in loads.values()}) == 1
    assert {cell.seed for cell in planned} == {7, 8}


def test_every_second_round_runs_backwards() -> None:
    first, second = ([cell.variant for cell in cells(ROWS, 2, 1) if cell.seed == seed][: len(ROWS)] for seed in (1, 2))
    assert second == first[::-1]


@pytest.mark.parametrize(
    ("spark", "flink", "code"),
    [("kept", "kept", 0), ("kept", "broken", 0), ("kept", "unknown", 1), ("kept", "vacuous", 1), ("broken", "kept", 3)],
)
def test_a_peer_may_break_its_guarantee_but_needs_a_verdict(spark: str, flink: str, code: int) -> None:
    runs = [report(STEADY, verdict=spark, anomalies={}), report(STEADY, engine="flink", verdict=flink, anomalies={})]
    assert code_of(runs) == code


def test_a_peer_has_its_own_transaction_timeout() -> None:
    found = {cell.variant: cell.transaction_timeout_ms for cell in cells(ROWS, 1, 1)}
    assert (found["two-phase"], found["flink-hashmap-1000ms"], found["streams-rocksdb-100ms"]) == (
        60_000,
        60_000,
        10_000,
    )


def test_neighbours_in_time_are_different_rows_under_one_load() -> None:
    planned = list(cells(ROWS, 1, 1))[: len(ROWS)]
    assert [(cell.guarantee, cell.variant) for cell in planned] == [(row.guarantee, row.variant) for row in ROWS]
    assert {cell.rate for cell in planned} == {"max"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_runs_on_its_engine(row: Row) -> None:
    cell = next(cells([row], 1, 1))
    if row.peer is None:
        assert engine_of(cell, cast("Any", None)) is SPARK
    else:
        assert row.variant.startswith(row.peer.variants.engine)


@pytest.mark.parametrize("row", [row for row in ROWS if row.peer is not None], ids=lambda row: row.name)
@pytest.mark.parametrize("timeout_ms", [10_000, 20_000, Cell.transaction_timeout_ms])
def test_a_peer_takes_the_published_command_of_each_load(row: Row, timeout_ms: int) -> None:
    assert row.peer is not None
    engine = Engine(row.peer.name, lambda _: [], lambda *_: "", program=row.peer.program)
    for cell in (replace(each, transaction_timeout_ms=timeout_ms) for each in cells([row], 1, 1)):
        words = shlex.split(origin._reproduce(cell, {"engine": engine.as_json()}))
        assert asked_of(row, words) == cell


def test_an_older_run_of_a_peer_has_no_defaults() -> None:
    older = {
        "name": "kafka-streams",
        "settings": {},
        "unused": [],
        "program": ["peer", "--transaction-timeout", "60000"],
    }
    cell = Cell("kafka", "exactly-once", "streams-rocksdb-100ms")
    assert origin._reproduce(cell, {"engine": older}).count("--transaction-timeout 60000") == 1


def asked_of(row: Row, words: list[str]) -> Cell:
    """The cell that a command asks of the program of the row's engine.

    A peer leaves the batch limit out.
    """
    if row.peer is None:
        assert words[:2] == ["oncebench", "run"]
        return asked_cell(run.make_context("run", words[2:]), None)
    assert words[:3] == ["python", "-m", f"peers.{row.peer.name}"]
    made = command(row.peer).make_context("", words[3:]).params
    fields = {name: value for name, value in made.items() if name in Cell.__dataclass_fields__}
    limit = LOADS[FLAT_OUT]["max_events_per_batch"] if fields["rate"] == "max" else None
    return replace(base_cell(duration=made["duration"], **_without_names(fields)), sink=made["sink"],
                   guarantee=made["guarantee"], variant=made["variant"], max_events_per_batch=limit)  # fmt: skip


def _without_names(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in ("sink", "guarantee", "variant")}


def test_a_text_that_matches_no_row_is_refused_with_the_rows() -> None:
    refused = CliRunner().invoke(main, ["--only", "Storm"]).exception
    assert isinstance(refused, UserError)
    assert "Flink exactly-once flink-hashmap-1000ms" in str(refused)


def test_stored_reports_are_printed_without_a_run(tmp_path: Path) -> None:
    published = ROOT / "results" / "engines" / "headline-1.jsonl"
    done = CliRunner().invoke(main, ["--from", str(published), "--only", "Flink"])
    assert (done.exit_code, done.stdout.count("| Flink ")) == (0, 5)
    assert done.stdout.count("python -m peers.flink ") == 5 * len(LOADS)
    spark = tmp_path / "spark.jsonl"
    spark.write_text("".join(line for line in published.open() if '"name":"spark"' in line))
    refused = CliRunner().invoke(main, ["--from", str(spark), "--only", "Flink"]).exception
    assert "is of these rows" in str(refused)
    others = ROOT / "results" / "runs" / "costs-10000-events.jsonl"
    refused = CliRunner().invoke(main, ["--from", str(others)]).exception
    assert "of this command. Give a file headline-*.jsonl" in str(refused)


def test_a_run_that_is_given_twice_counts_once() -> None:
    published = str(ROOT / "results" / "engines" / "headline-1.jsonl")
    once, twice = (
        CliRunner().invoke(main, [*words, "--only", "Flink exactly-once"]).stdout
        for words in (("--from", published), ("--from", published) * 2)
    )
    assert "| 3 times |" in once
    assert twice == once


@pytest.mark.parametrize("words", [["--rounds", "3"], ["--seed", "2"], ["--work-dir", "w"], ["--keep"]])
def test_an_option_of_runs_is_refused_with_stored_reports(words: list[str]) -> None:
    published = str(ROOT / "results" / "engines" / "headline-1.jsonl")
    refused = CliRunner().invoke(main, ["--from", published, *words]).exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, str(refused)) == (2, f"{words[0]} has no effect with --from. Leave it out")


@pytest.mark.parametrize(
    ("page", "heading"),
    [("README.md", "## Next to Flink and Kafka Streams"), ("docs/peers.md", "## One table of all engines")],
)
def test_a_page_states_the_rounds_of_the_published_series_and_has_its_figures(page: str, heading: str) -> None:
    text = (ROOT / page).read_text()
    section = text[text.index(heading) :].split("\n## ")[0]
    reports, *_ = engines.by_place(each.report for each in engines_in(ROOT / "results")).values()
    runs = Counter((engines.load_of(each), engines.engine_of(each), *configuration_of(each)) for each in reports)
    single = set(runs.values()) == {1}
    assert ("One round" in section, single and "%" in section) == (single, False)  # one round bears no percentage
    head, _, *rows = [row for row in map(_cells_of, section.splitlines()) if len(row) > 8]
    found = [dict(zip(engines.headings(reports), line.cells, strict=True)) for line in engines.lines(reports)]
    assert rows == [tuple(row[heading] for heading in head) for row in found]


def _cells_of(line: str) -> tuple[str, ...]:
    return tuple(text.strip() for text in line.strip("|").split("|")) if line.startswith("|") else ()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_named_as_in_the_table(row: Row) -> None:
    engine = "spark" if row.peer is None else row.peer.name.replace("_", "-")
    assert engines.engine_of(report(STEADY, row.variant, engine)) == row.engine
