"""`oncebench compare`: what it keeps and shows when a cell goes wrong; that its cells can show what they are for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands import compare
from oncebench.errors import UserError
from oncebench.reports.results import default_work_dir
from oncebench.scenario import PAIR_BATCHES, PROFILES
from tests.unit.test_tables import report

CELLS = ("compare", "--only", "exactly-once")


def test_what_was_measured_is_shown_although_a_later_cell_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_in_the_second(*_: Any) -> Iterator[dict[str, Any]]:
        yield report(reproduce="oncebench run --sink kafka")
        raise UserError("the disk is full")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "run_series", fail_in_the_second)
    done = CliRunner().invoke(cli, CELLS)
    assert isinstance(done.exception, UserError)
    assert str(done.exception) == "the disk is full"
    assert "| kafka | exactly-once | two-phase | none   | kept    |" in done.output
    assert "  oncebench run --sink kafka\n" in done.output
    (table,) = tmp_path.glob("results/local/tables/*.md")
    assert table.read_text() in done.output


def test_a_comparison_that_was_cut_short_does_not_end_as_if_it_were_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "run_series", lambda *_: iter([report(reproduce="again")]))
    assert CliRunner().invoke(cli, CELLS).exit_code == 130


def test_commands_started_in_the_same_second_have_work_dirs_of_their_own() -> None:
    assert default_work_dir("run").name.endswith(f"-{os.getpid()}")


def test_each_of_two_kills_finds_a_batch_however_long_batches_take() -> None:
    killed = [cell for cell in PROFILES["standard"].chosen(None) if len(cell.faults) == 2 and "broken" not in cell.sink]
    assert killed
    for cell in killed:
        assert cell.max_events_per_batch is not None
        assert cell.max_events_per_batch * PAIR_BATCHES <= cell.sessions * 100
