"""A foreign program in the foreground: it leaves no process and no temporary file, however the command ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from oncebench.errors import ExitCode
from oncebench.processes import foreground
from tests import ROOT

# Makes a temporary file and a descendant in a session of its own, as a benchmark does with its servers.
PROGRAM = """
import subprocess, sys, tempfile
made = tempfile.mkdtemp()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(made, child.pid, flush=True)
{then}
"""
COMMAND = f"""
import os, sys
import click
from oncebench.processes import foreground
from oncebench.program import run_program

@click.command()
def runs():
    foreground.run([sys.executable, "-c", {PROGRAM.format(then="child.wait()")!r}], os.environ)

run_program("runs", runs)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_an_interruption_leaves_no_process_and_no_file(number: signal.Signals, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        start_new_session=True,
    ) as command:  # fmt: skip
        assert command.stdout is not None and command.stderr is not None
        made, pid = command.stdout.readline().split()
        assert Path(made).is_relative_to(tmp_path)
        descendant = psutil.Process(int(pid))
        os.killpg(command.pid, number)  # as a terminal does
        assert (command.wait(60), command.stderr.read().strip()) == (ExitCode.INTERRUPTED, "interrupted")
    assert not descendant.is_running()
    assert list(tmp_path.iterdir()) == []


def test_the_exit_code_is_that_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreground.tempfile, "tempdir", str(tmp_path))
    source = "import sys, tempfile; tempfile.mkdtemp(); sys.exit(7)"
    assert foreground.run([sys.executable, "-c", source], os.environ) == 7
    assert list(tmp_path.iterdir()) == []
