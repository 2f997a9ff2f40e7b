"""`oncebench compare`: what it keeps and shows when a cell goes wrong; that its cells can show what they are for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands import compare
from oncebench.commands.run import bytes_needed
from oncebench.errors import UserError
from oncebench.report.results import default_work_dir
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import PAIR_BATCHES, PROFILES
from tests.unit.report import test_paired
from tests.unit.report.test_tables import report

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
    done = CliRunner().invoke(cli, CELLS)
    assert done.exit_code == 130
    assert done.stderr.endswith("interrupted: 1 of 4 runs done\n")


def test_commands_started_in_the_same_second_have_work_dirs_of_their_own() -> None:
    assert default_work_dir("run").name.endswith(f"-{os.getpid()}")


def test_each_of_two_kills_finds_a_batch_however_long_batches_take() -> None:
    killed = [cell for cell in PROFILES["standard"].chosen(None) if len(cell.faults) == 2 and "broken" not in cell.sink]
    assert killed
    for cell in killed:
        assert cell.max_events_per_batch is not None
        assert cell.max_events_per_batch * PAIR_BATCHES <= cell.sessions * 100


@pytest.mark.parametrize(("rounds", "says"), [((8.0,), "of fewer than 5 rounds,"), ((8.0,) * 5, "95 % int")])
def test_a_comparison_of_few_rounds_promises_no_intervals(
    rounds: tuple[float, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = [one | {"reproduce": "again"} for one in test_paired.rounds(*rounds)]
    monkeypatch.setattr(compare, "run_series", lambda *_: iter(made))
    assert (
        f"\nas ratios to at-least-once acknowledged of the same sink, {says}" in CliRunner().invoke(cli, CELLS).output
    )


@pytest.mark.parametrize(
    ("words", "load"),
    [
        ((), (1000.0, 160, 6.0)),
        (("--warmup", "2"), (1000.0, 160, 2.0)),
        (("--rate", "500", "--duration", "40"), (500.0, 200, 6.0)),
    ],
)
def test_the_load_and_the_warm_up_are_the_profiles_unless_the_user_names_others(
    words: tuple[str, ...], load: tuple[float, int, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Cell] = []

    def noted(cells: list[Cell], *_: Any) -> Iterator[dict[str, Any]]:
        ran.extend(cells)
        return iter([report(reproduce="again")])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "run_series", noted)
    CliRunner().invoke(cli, ("compare", "--profile", "full", "--sink", "sqlite", *words))
    assert {(cell.rate, cell.sessions, cell.warmup_s) for cell in ran if not cell.faulted} == {load}


def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: set[int]) -> list[tuple[Cell, str]]:
    """Has cells run without a lab, some of them by their number in vain; what was run, and what it was called."""
    ran: list[tuple[Cell, str]] = []

    def series(cells: list[Cell], *others: Any) -> Iterator[dict[str, Any]]:
        for number, cell in enumerate(cells):
            ran.append((cell, others[-1](cell)))
            if number in fails:
                others[-2](cell, UserError(f"no room for {number}", exit_code=5))
            else:
                yield report(reproduce="again")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "run_series", series)
    return ran


def test_a_cell_that_cannot_be_run_leaves_the_others_to_go_on_and_the_exit_code_tells_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = pretend(monkeypatch, tmp_path, {1})
    done = CliRunner().invoke(cli, CELLS)
    assert (len(ran), done.exit_code) == (4, 1)
    assert "no room for 1" in done.stderr.splitlines()[-2]
    assert "oncebench run --sink kafka" in done.stderr.splitlines()[-1]
    assert "| kafka | exactly-once | two-phase | none   | kept    |" in done.output


def test_cells_that_all_failed_end_a_comparison_with_their_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, tmp_path, {0, 1, 2, 3})
    failed = CliRunner().invoke(cli, CELLS).exception
    assert isinstance(failed, UserError)
    assert (str(failed), failed.exit_code) == ("no room for 3", 5)


def test_a_sweep_goes_value_by_value_tells_each_and_has_one_picked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = pretend(monkeypatch, tmp_path, set())
    CliRunner().invoke(cli, ("compare", "--profile", "cost", "--sweep", "rate"))
    assert [cell.rate for cell, _ in ran] == [rate for rate in (250, 500, 1000, 2000, 4000) for _ in range(2)]
    assert ran[-1][1] == "kafka exactly-once two-phase, healthy, rate 4,000"
    ran.clear()
    CliRunner().invoke(cli, ("compare", "--profile", "cost", "--sweep", "rate", "--only", "rate 500"))
    assert [cell.rate for cell, _ in ran] == [500, 500]
    none = CliRunner().invoke(cli, ("compare", "--profile", "double", "--sweep", "rate")).exception
    assert str(none) == "profile double has no healthy cell, and a sweep runs no others"


def test_before_a_long_comparison_stands_how_long_it_takes_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, tmp_path, set())
    done = CliRunner().invoke(
        cli, ("compare", "--profile", "cost", "--rate", "1000", "--duration", "44", "--repeat", "5")
    )
    assert done.stderr.splitlines()[0] == "10 runs, 10 min at least"
    done = CliRunner().invoke(cli, ("compare", "--profile", "cost"))
    assert "at least" not in done.stderr


def test_room_is_asked_for_what_events_are_padded_with_in_the_topic_and_in_the_record() -> None:
    cell = Cell("kafka", "exactly-once", "two-phase", sessions=180)
    more = bytes_needed([replace(cell, record_bytes=10_000)] * 25) - bytes_needed([cell] * 25)
    assert more == 25 * 18_000 * 2 * 10_000
