"""Every command that runs cells refuses the same, before it starts anything."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench import commands
from oncebench.cli import cli
from oncebench.commands import batches, compare, faults, plan, profile, run, sustain
from oncebench.errors import ExitCode, UserError
from oncebench.scenario.cell import Cell
from peers import command as peer
from peers.flink.__main__ import main as flink
from peers.headline import __main__ as headline

# What starts runs. A module that imports one of these also imports `refuse`.
STARTERS = {"run_one", "run_series", "open_series", "open_lab"}
CELL = ("--sink", "kafka", "--guarantee", "exactly-once")
PLAN = ("--rate", "500", "--guarantee", "exactly-once", "--p99", "1s")
RUNS = [
    (run, "run_one", CELL),
    (compare, "run_series", ()),
    (compare, "run_series", ("mine.toml",)),
    (faults, "run_series", ("--sink", "kafka", "--only", "two-phase")),
    (sustain, "open_series", ()),
    (plan, "run_series", (*PLAN, "--measure")),
    (profile, "run_one", CELL),
    (batches, "open_lab", ("--sink", "kafka")),
    (peer, "run_one", ("--guarantee", "exactly-once")),
]


def oncebench(command: ModuleType, *words: str) -> Any:
    """Calls the command of a module; returns what ended it, or its result."""
    name = command.__name__.rpartition(".")[2]
    own = {peer: flink, headline: headline.main}.get(command)
    done = CliRunner().invoke(cli, (name, *words)) if own is None else CliRunner().invoke(own, words)
    return done.exception or done


def test_a_command_that_starts_runs_refuses_cells() -> None:
    found = [import_module(each.name) for each in pkgutil.walk_packages(commands.__path__, f"{commands.__name__}.")]
    starting = [module for module in found if STARTERS & vars(module).keys()]
    assert len(starting) == len({command for command, *_ in RUNS} - {peer})
    assert [module.__name__ for module in starting if "refuse" not in vars(module)] == []


@pytest.mark.parametrize(("command", "starter", "words"), RUNS, ids=lambda value: getattr(value, "__name__", None))
def test_every_cell_is_checked_before_anything_starts(
    command: ModuleType, starter: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = inspect.signature(getattr(command, starter))
    checked: list[Cell] = []
    started: list[Any] = []

    def start(*arguments: Any, **named: Any) -> None:
        assert checked
        first = next(iter(signature.bind(*arguments, **named).arguments.values()))
        started.extend([first] if isinstance(first, Cell) else first if isinstance(first, list) else [])
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "refuse", lambda cells, _kafka: checked.extend(cells))
    monkeypatch.setattr(command, starter, start)
    monkeypatch.setattr("oncebench.commands.profile.Tools.find", lambda: None)
    monkeypatch.setattr("oncebench.commands.profile.Profilers.__enter__", lambda _: None)
    monkeypatch.setattr("oncebench.commands.profile.Profilers.__exit__", lambda *_: None)
    (tmp_path / "mine.toml").write_text('sink = "kafka"\nguarantee = "exactly-once"\n')
    oncebench(command, *words)
    assert checked
    assert set(started) <= set(checked)


@pytest.mark.parametrize(
    ("command", "starter", "words"),
    [each for each in RUNS if each[0] is not peer],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_server_that_no_cell_uses_is_refused(
    command: ModuleType, starter: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, starter, lambda *_, **__: pytest.fail("a run was started"))
    (tmp_path / "mine.toml").write_text('sink = "kafka"\nguarantee = "exactly-once"\n')
    refused = oncebench(command, *words, "--postgres", "host=db1")
    assert isinstance(refused, UserError), refused
    assert "--postgres has no effect here. Only these sinks use such a server: " in str(refused)
    assert refused.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    "words",
    [("--postgres", "host=db1"), ("--work-dir", "there"), ("--keep",), ("--start-timeout", "300")],
    ids=lambda words: words[0],
)
def test_a_plan_without_runs_refuses_the_options_of_runs(words: tuple[str, ...]) -> None:
    refused = oncebench(plan, *PLAN, "--sink", "postgres", *words)
    assert str(refused) == f"{words[0]} is used by --measure only. Add --measure"
    refused = oncebench(plan, *PLAN, "--bootstrap-servers", "b:1")
    assert str(refused) == "a Kafka is used by --measure only. Add --measure"


@pytest.mark.parametrize(
    ("command", "starter", "words"),
    [each for each in RUNS if each[0] not in (profile, batches)] + [(headline, "run_series", ())],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_results_that_cannot_be_written_are_refused_before_a_run(
    command: ModuleType, starter: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, starter, lambda *_, **__: pytest.fail("a run was started"))
    (tmp_path / "mine.toml").write_text('sink = "kafka"\nguarantee = "exactly-once"\n')
    (tmp_path / "results").touch()
    refused = oncebench(command, *words)
    assert isinstance(refused, UserError), refused
    assert str(refused).startswith("the results in results/local: results cannot be written (it is a file). ")
    assert refused.exit_code == ExitCode.USAGE


def test_a_resumed_series_is_refused_if_its_file_takes_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(faults, "run_series", lambda *_, **__: pytest.fail("a run was started"))
    Path("reports.jsonl").symlink_to("/proc/sys/kernel/ostype")  # not even root may write this file
    refused = oncebench(faults, "--sink", "kafka", "--resume", "reports.jsonl")
    assert str(refused).startswith("--resume reports.jsonl: it cannot be written (")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sink", "kafka"], "Choose from: at-most-once, at-least-once, exactly-once"),
        (["--guarantee", "exactly-once"], "`oncebench list` shows all sinks, for example kafka"),
    ],
)
def test_a_missing_option_names_its_values(words: list[str], message: str) -> None:
    refused = CliRunner().invoke(cli, ["run", *words])
    assert (refused.exit_code, message in refused.stderr) == (ExitCode.USAGE, True)
