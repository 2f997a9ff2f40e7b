"""Every option of every command is also an environment variable.

The name of the variable is that of the option.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from oncebench.cli import COMMANDS, cli
from oncebench.errors import ExitCode, UserError

REFUSED = "is no option of"


def resolved(name: str) -> click.Command:
    """The command as the command line finds it."""
    _, command, _ = cli.resolve_command(click.Context(cli), [name, "--help"])
    assert command is not None
    return command


OPTIONS = [(name, option) for name in COMMANDS for option in resolved(name).params if isinstance(option, click.Option)]


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=[f"{name} {option.opts[0]}" for name, option in OPTIONS])
def test_the_variable_named_like_an_option_sets_it(
    name: str, option: click.Option, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"ONCEBENCH_{name}_{option.opts[0].removeprefix('--')}".upper().replace("-", "_")
    monkeypatch.setenv(variable, "7")
    parent = click.Context(cli, info_name="oncebench", **cli.context_settings)
    context = click.Context(resolved(name), parent=parent, info_name=name)
    assert option.resolve_envvar_value(context) == "7"


def test_a_value_of_a_variable_reaches_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"TRIGGER": "500", "FAULT": "after-commit:kill", "SAVE": "mine.toml"}.items():
        monkeypatch.setenv(f"ONCEBENCH_RUN_{name}", value)
    assert CliRunner().invoke(cli, ["run", "--sink", "kafka", "--guarantee", "exactly-once"]).exit_code == 0
    saved = tomllib.loads((tmp_path / "mine.toml").read_text())
    assert (saved["trigger"], saved["fault"]) == (500, ["after-commit:kill"])


@pytest.mark.parametrize(
    ("command", "variable", "meant"),
    [
        ("run", "ONCEBENCH_RUN_TRIGER", "ONCEBENCH_RUN_TRIGGER"),
        ("run", "ONCEBENCH_RUN_TRIGGER_MS", "ONCEBENCH_RUN_TRIGGER"),
        ("compare", "ONCEBENCH_COMPARE_SINKS", "ONCEBENCH_COMPARE_SINK"),
        ("bench", "ONCEBENCH_BENCH_SINKS", "ONCEBENCH_BENCH_SINK"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest(
    command: str, variable: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "kafka")
    refused = CliRunner().invoke(cli, [command]).exception
    assert isinstance(refused, UserError)
    assert refused.exit_code == ExitCode.USAGE
    assert f"{variable} {REFUSED} `oncebench {command}` (did you mean {meant}?)" in str(refused)
    assert CliRunner().invoke(cli, [command, "--help"]).exit_code == 0


# Variables that the suite or a package of a sink reads or sets.
@pytest.mark.parametrize("variable", [
    "ONCEBENCH_RUN", "ONCEBENCH_OUTPUT", "ONCEBENCH_KAFKA", "ONCEBENCH_POSTGRES", "ONCEBENCH_CACHE",
    "ONCEBENCH_FAILPOINTS", "ONCEBENCH_NEEDED_FILES", "ONCEBENCH_FETCH_JAVA", "ONCEBENCH_JDK_URL",
    "ONCEBENCH_MAVEN_REPOSITORY", "ONCEBENCH_ICEBERG_REST", "ONCEBENCH_ICEBERG_WAREHOUSE", "ONCEBENCH_PRAVEGA",
])  # fmt: skip
def test_no_command_refuses_a_variable_of_the_suite(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "x")
    for name in COMMANDS:
        assert cli.resolve_command(click.Context(cli), [name])[0] == name


def test_a_variable_of_another_command_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEBENCH_RUN_TRIGER", "500")
    shown = CliRunner().invoke(cli, ["list", "--profile", "quick"])
    assert shown.exit_code == 0, shown.output
