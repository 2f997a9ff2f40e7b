"""The program of every command: how it ends with an error."""

from __future__ import annotations

import click
import pytest

from oncebench.errors import ExitCode, UserError
from oncebench.program import run_program


def ends(error: Exception) -> int:
    """Runs a command that raises this error; returns its exit code."""

    @click.command()
    def fails() -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr("sys.argv", ["fails"])
        patch.setattr("oncebench.program.outlive_readers", lambda: None)
        run_program("fails", fails)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_an_error_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    error = UserError("no answer from https://u:hush@h/?api_key=hush", exit_code=ExitCode.ENVIRONMENT)
    assert ends(error) == ExitCode.ENVIRONMENT
    assert capsys.readouterr().err == "fails: no answer from https://u:***@h/?api_key=***\n"
