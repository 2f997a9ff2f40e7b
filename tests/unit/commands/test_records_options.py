"""`oncebench run --records`: the file gives workload and length.

A saved or printed command runs the same cell.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands.run import asked_cell, run
from oncebench.errors import ExitCode, UserError
from oncebench.experiments.workspace import bytes_needed
from oncebench.scenario.cell import Cell

GOOD = ("--sink", "files-jsonl", "--guarantee", "exactly-once", "--records", "orders.jsonl")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.jsonl").write_text('{"customer":"anna"}\n' * 250)
    return tmp_path


def cell_of(*words: str) -> Cell:
    context = run.make_context("run", list(words))
    try:
        return asked_cell(context, None)
    finally:
        context.close()


def oncebench(*words: str) -> Any:
    return CliRunner().invoke(cli, list(words))


def test_the_file_gives_the_workload_and_the_length() -> None:
    cell = cell_of(*GOOD, "--key", "customer", "--passes", "3")
    assert (cell.workload, cell.records, cell.records_key, cell.passes) == ("records", "orders.jsonl", "customer", 3)
    assert cell.sessions == 8, "750 records, in hundreds"
    assert cell.title.endswith(", records")


def test_the_printed_command_runs_the_same_cell() -> None:
    cell = cell_of(*GOOD, "--key", "customer", "--passes", "2", "--rate", "100")
    words = shlex.split(cell.reproduce())
    assert "--sessions" not in words
    assert cell_of(*words[2:]) == cell


def test_a_saved_run_finds_its_file_from_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "kept").mkdir()
    words = (*GOOD, "--key", "customer", "--passes", "2")
    assert oncebench("run", *words, "--save", "kept/s.toml").exit_code == 0
    assert cell_of("kept/s.toml") == cell_of(*words)
    monkeypatch.chdir(folder / "kept")
    assert cell_of("s.toml").records == "../orders.jsonl"


def test_a_file_on_the_command_line_replaces_the_length_of_a_scenario(folder: Path) -> None:
    (folder / "s.toml").write_text('sink = "kafka"\nguarantee = "exactly-once"\nduration = 10\n')
    assert cell_of("s.toml", "--records", "orders.jsonl").sessions == 3


def test_a_run_needs_room_for_the_records_of_its_file(folder: Path) -> None:
    small = bytes_needed([cell_of(*GOOD, "--passes", "2")])
    (folder / "orders.jsonl").write_text(('{"customer":"anna"' + " " * 80_000 + "}\n") * 250)
    assert bytes_needed([cell_of(*GOOD, "--passes", "2")]) - small == 2 * 5 * 250 * 80_000, "2 passes, 5 copies"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*GOOD, "--duration", "9"), "--records FILE gives the length of the load. Leave out --duration, or send"),
        ((*GOOD, "--sessions", "9"), "--records FILE gives the length of the load. Leave out --sessions, or send"),
        ((*GOOD, "--workload", "windows"), "--records FILE is a workload of its own. Leave out --workload windows"),
        ((*GOOD, "--workload", "sessions"), "--records FILE is a workload of its own. Leave out --workload sessions"),
        ((*GOOD, "--generators", "4"), "Give fewer generators, or more records"),
        ((*GOOD, "--record-bytes", "900"), "the records have their own sizes. Leave out --record-bytes"),
        ((*GOOD, "--skew", "1"), "the records are spread by their own keys. Leave out --skew, and give --key FIELD"),
        ((*GOOD, "--open-sessions", "9"), "it has no sessions in the state. Leave out --open-sessions"),
        ((*GOOD, "--key", "custmer"), "--records: no record of orders.jsonl has the field 'custmer'. The fields of"),
        ((*GOOD[:4], "--key", "customer"), "--key has no effect without --records FILE"),
        ((*GOOD[:4], "--passes", "2"), "--passes has no effect without --records FILE"),
        ((*GOOD[:4], "--workload", "records"), "it needs a file. Give --records FILE"),
        ((*GOOD[:4], "--records", "nowhere.jsonl"), "--records: nowhere.jsonl cannot be read: No such file"),
        ((*GOOD[:4], "--records", "bad.jsonl"), "--records: line 2 of bad.jsonl is not JSON: oops. Correct or remove"),
        ((*GOOD[:4], "--records", "empty.jsonl"), "--records: empty.jsonl has no record. Give a file"),
    ],
)
def test_what_cannot_be_replayed_is_refused(words: tuple[str, ...], says: str, folder: Path) -> None:
    (folder / "bad.jsonl").write_text('{"a":1}\noops\n')
    (folder / "empty.jsonl").touch()
    refused = oncebench("run", *words).exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, says in str(refused)) == (ExitCode.USAGE, True), refused
    assert not (folder / "results").exists(), "nothing was started"
