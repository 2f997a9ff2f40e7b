"""Every command that starts pipelines takes the option that its messages recommend."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands import compare, faults, plan, profile, run, sustain
from oncebench.commands.shared.kafka import KAFKA_PARAMETERS, kafka_options
from oncebench.commands.shared.workspace import WORKSPACE_PARAMETERS, workspace_options

CELL = ("--sink", "kafka", "--guarantee", "exactly-once")


@pytest.mark.parametrize(
    ("command", "starts", "words"),
    [
        (run, "run_one", CELL),
        (compare, "run_series", ()),
        (compare, "run_series", ("mine.toml",)),
        (faults, "run_series", ("--sink", "kafka", "--only", "two-phase")),
        (sustain, "open_series", ()),
        (plan, "run_series", ("--rate", "500", "--guarantee", "exactly-once", "--p99", "1s", "--measure")),
        (profile, "run_one", CELL),
    ],
    ids=lambda value: value.__name__ if isinstance(value, ModuleType) else None,
)
def test_the_time_for_a_start_reaches_the_runs(
    command: ModuleType, starts: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature, got = inspect.signature(getattr(command, starts)), []

    def start(*arguments: Any, **named: Any) -> None:
        got.append(signature.bind(*arguments, **named).arguments["workspace"].start_timeout_s)
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, starts, start)
    if command is profile:
        monkeypatch.setattr("oncebench.commands.profile.Tools.find", lambda: None)
        monkeypatch.setattr(profile, "Profilers", Nothing)
    (tmp_path / "mine.toml").write_text('sink = "kafka"\nguarantee = "exactly-once"\n')
    done = CliRunner().invoke(cli, (command.__name__.rpartition(".")[2], *words, "--start-timeout", "240"))
    assert got == [240.0], done.output


@pytest.mark.parametrize(
    ("options", "names"), [(kafka_options(), KAFKA_PARAMETERS), (workspace_options, WORKSPACE_PARAMETERS)]
)
def test_the_names_of_shared_parameters_are_those_of_the_options(options: Any, names: tuple[str, ...]) -> None:
    assert tuple(option.name for option in click.command()(options(lambda **_: None)).params) == names


class Nothing:
    """Profilers that need no profiler."""

    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: object) -> None: ...
