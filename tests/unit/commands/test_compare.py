"""`oncebench compare`: results survive a failed cell, and each cell fits its purpose."""

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
from oncebench.errors import ExitCode, UserError
from oncebench.experiments.workspace import bytes_needed
from oncebench.report.results import default_work_dir
from oncebench.scenario.cell import Cell
from oncebench.scenario.cell_check import require_possible
from oncebench.scenario.profiles import PAIR_BATCHES, PROFILES
from tests.unit.report import test_paired
from tests.unit.report.test_tables import report

CELLS = ("compare", "--only", "exactly-once")


def test_a_failed_cell_does_not_hide_earlier_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_interrupted_comparison_exits_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "run_series", lambda *_: iter([report(reproduce="again")]))
    done = CliRunner().invoke(cli, CELLS)
    assert done.exit_code == 130
    assert done.stderr.endswith("interrupted: 1 of 4 runs done\n")


@pytest.mark.parametrize(
    ("verdict", "says"),
    [("vacuous", "exit code 1: a run is unknown or vacuous"), ("broken", "exit code 3: a guarantee was broken")],
)
def test_the_last_line_explains_an_exit_code_that_is_not_0(
    verdict: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [report(verdict=verdict, seed=seed, reasons=["not hit"], reproduce="again") for seed in range(4)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "run_series", lambda *_: iter(made))
    done = CliRunner().invoke(cli, CELLS)
    assert says in done.stderr.splitlines()[-1]
    assert done.exit_code == int(says.split()[2].rstrip(":"))


def test_a_selection_without_cells_shows_the_form_of_a_title() -> None:
    refused = CliRunner().invoke(cli, ("compare", "--only", "exactlyonce")).exception
    assert "A title is such as 'kafka at-most-once claim, healthy'" in str(refused)


def test_parallel_commands_have_different_work_dirs() -> None:
    assert default_work_dir("run").name.endswith(f"-{os.getpid()}")


def test_each_of_two_kills_has_a_batch() -> None:
    killed = [
        cell for cell in PROFILES["standard"].select_cells(None) if len(cell.faults) == 2 and "broken" not in cell.sink
    ]
    assert killed
    for cell in killed:
        assert cell.max_events_per_batch is not None
        assert cell.max_events_per_batch * PAIR_BATCHES <= cell.sessions * 100


RATIOS = "as ratios to at-least-once acknowledged of the same sink"


@pytest.mark.parametrize(
    ("rounds", "says"),
    [(1, "figures of single rounds:"), (2, f"{RATIOS}, without intervals:"), (6, f"{RATIOS}, 95 % intervals:")],
)
def test_few_rounds_have_no_intervals(rounds: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = [one | {"reproduce": "again"} for one in test_paired.rounds(*(8.0,) * rounds)]
    monkeypatch.setattr(compare, "run_series", lambda *_: iter(made))
    assert f"\n{says}\n" in CliRunner().invoke(cli, CELLS).output


@pytest.mark.parametrize(
    ("words", "load"),
    [
        ((), (10_000.0, 1600, 6.0)),
        (("--warmup", "2"), (10_000.0, 1600, 2.0)),
        (("--rate", "500", "--duration", "40"), (500.0, 200, 6.0)),
    ],
)
def test_load_and_warm_up_come_from_the_profile_or_the_user(
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
    """Replaces runs: cells whose number is in `fails` fail. Returns the cells and their names."""
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


def test_a_failed_cell_does_not_stop_the_rest_and_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = pretend(monkeypatch, tmp_path, {1})
    done = CliRunner().invoke(cli, CELLS)
    assert (len(ran), done.exit_code) == (4, 1)
    assert "no room for 1" in done.stderr.splitlines()[-2]
    assert "oncebench run --sink kafka" in done.stderr.splitlines()[-1]
    assert "| kafka | exactly-once | two-phase | none   | kept    |" in done.output


def test_if_all_cells_fail_the_command_fails_with_the_last_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, tmp_path, {0, 1, 2, 3})
    failed = CliRunner().invoke(cli, CELLS).exception
    assert isinstance(failed, UserError)
    assert (str(failed), failed.exit_code) == ("no room for 3", 5)


def test_a_sweep_runs_value_by_value_and_only_selects_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = pretend(monkeypatch, tmp_path, set())
    CliRunner().invoke(cli, ("compare", "--profile", "cost", "--sweep", "rate"))
    assert [cell.rate for cell, _ in ran] == [rate for rate in (500, 1000, 3000, 10_000, 30_000) for _ in range(2)]
    assert ran[-1][1] == "kafka exactly-once two-phase, healthy, rate 30,000"
    ran.clear()
    CliRunner().invoke(cli, ("compare", "--profile", "cost", "--sweep", "rate", "--only", "rate 500"))
    assert [cell.rate for cell, _ in ran] == [500, 500]
    none = CliRunner().invoke(cli, ("compare", "--profile", "double", "--sweep", "rate")).exception
    assert str(none) == "profile double has no healthy cell, and a sweep runs healthy cells only"


SCENARIO = 'sink = "kafka"\nguarantee = "exactly-once"\n'


@pytest.mark.parametrize(
    ("more", "sweep", "why"),
    [
        ('workload = "windows"', "open-sessions", "--workload windows: it has no sessions in the state"),
        ('records = "orders.jsonl"', "open-sessions", "--workload records: it has no sessions in the state"),
        ('records = "orders.jsonl"', "record-size", "--workload records: the records have their own sizes"),
        ("observers = 2", "partitions", "--observers 2: the output has 1 partitions"),
    ],
)
def test_a_sweep_is_refused_at_a_value_that_a_run_refuses(
    more: str, sweep: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = pretend(monkeypatch, tmp_path, set())
    (tmp_path / "orders.jsonl").write_text('{"order": 1}\n')
    (tmp_path / "mine.toml").write_text(SCENARIO + more)
    refused = CliRunner().invoke(cli, ("compare", "mine.toml", "--sweep", sweep)).exception
    assert str(refused).startswith(why)
    assert isinstance(refused, UserError)
    assert (refused.exit_code, ran) == (ExitCode.USAGE, [])


@pytest.mark.parametrize("name", PROFILES)
def test_every_cell_of_every_profile_is_possible_on_servers_of_ones_own(name: str) -> None:
    require_possible(PROFILES[name].select_cells(None), frozenset())


def test_a_long_comparison_prints_about_how_long_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, tmp_path, set())
    done = CliRunner().invoke(
        cli, ("compare", "--profile", "cost", "--rate", "1000", "--duration", "44", "--repeat", "5")
    )
    assert done.stderr.splitlines()[0] == "10 runs, about 10 min"
    done = CliRunner().invoke(cli, ("compare", "--profile", "cost"))
    assert "about" not in done.stderr


def test_padding_counts_twice_in_the_required_disk_space() -> None:
    cell = Cell("kafka", "exactly-once", "two-phase", sessions=180)
    more = bytes_needed([replace(cell, record_bytes=10_000)] * 25) - bytes_needed([cell] * 25)
    assert more == 25 * 18_000 * 2 * 10_000


def test_forty_runs_of_the_price_ask_for_the_space_that_they_take() -> None:
    cell = Cell("kafka", "exactly-once", "two-phase", sessions=16_000)
    took = 40 * 1_600_000 * (239 + 143)  # bytes, measured
    assert took < bytes_needed([cell] * 40) < 1.5 * took


def test_each_broker_needs_space_for_its_replica() -> None:
    cell = Cell("kafka", "exactly-once", "two-phase", sessions=180, record_bytes=10_000)
    more = bytes_needed([replace(cell, brokers=3)]) - bytes_needed([cell])
    assert 2 * 18_000 * 10_000 < more < 2 * 18_000 * 10_500


def test_open_sessions_need_space_to_work_and_to_stay() -> None:
    cell = Cell("kafka", "exactly-once", "two-phase", sessions=180)
    more = bytes_needed([replace(cell, open_sessions=1_000_000)]) - bytes_needed([cell])
    assert more > 1_000_000 * (1000 + 239 + 143)
