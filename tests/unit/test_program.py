"""The program of every command: how it ends with an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from oncebench.errors import ExitCode, UserError
from oncebench.program import run_program
from tests import ROOT


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


def run(source: str, folder: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the command line with a folder of the user first on PYTHONPATH."""
    return subprocess.run(
        [sys.executable, "-P", "-c", source, *words], capture_output=True, text=True, check=False,
        cwd=cwd or folder.parent, env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["pipeline", "loadgen"])
def test_a_users_package_with_a_name_of_ours_is_refused_before_its_code_runs(name: str, tmp_path: Path) -> None:
    (tmp_path / "src" / name).mkdir(parents=True)
    (tmp_path / "src" / name / "__init__.py").write_text("print('it ran')\n")
    done = run("from oncebench.cli import main; main()", tmp_path / "src", "certify", f"{name}.a:b", "--reader", "a:c")
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert done.stderr == (
        f"oncebench: {tmp_path}/src/{name} has the name of oncebench's package {name}, and would be imported in its "
        f"place. Rename it, or take {tmp_path}/src out of PYTHONPATH.\n"
    )


def test_a_users_module_that_hides_a_package_is_named_when_an_import_fails(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "kafka.py").touch()
    source = """
import click
from oncebench.program import run_program

@click.command()
def fails():
    import kafka.errors

run_program("fails", fails)
"""
    done = run(source, tmp_path / "src")
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.startswith(f"fails: {tmp_path}/src/kafka.py has the name of the package kafka-python, which")


def test_a_process_in_another_folder_imports_from_the_same_folders(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "src" / "mine.py").write_text("print('imported')\n")
    source = f"""
import sys
from pathlib import Path

import click
from oncebench.processes.child import start
from oncebench.program import run_program

log, elsewhere = Path({str(tmp_path / "log")!r}), Path({str(tmp_path / "elsewhere")!r})

@click.command()
def imports():
    with start("a child", [sys.executable, "-c", "import mine"], log, cwd=elsewhere) as child:
        child.wait(60)
    print(log.read_text(), end="")

run_program("imports", imports)
"""
    done = run(source, Path("src"), cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("imported\n", 0), done.stderr


def test_an_error_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    error = UserError("no answer from https://u:hush@h/?api_key=hush", exit_code=ExitCode.ENVIRONMENT)
    assert ends(error) == ExitCode.ENVIRONMENT
    assert capsys.readouterr().err == "fails: no answer from https://u:***@h/?api_key=***\n"
