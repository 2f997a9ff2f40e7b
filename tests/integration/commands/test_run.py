"""`oncebench run` as a process: it exits with the code of its verdict.

Ctrl-C ends it with its report.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from oncebench.processes import child as process
from oncebench.processes.child import Child, tail
from tests import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]

LIMIT_S = 600.0


def started(folder: Path, *load: str) -> Child:
    command = [
        sys.executable, "-c", "from oncebench.cli import main; main()", "run", "--sink", "files-jsonl", "--guarantee",
        "exactly-once", "--rate", "200", "--warmup", "0", "--max-events-per-batch", "400", *load,
        "--work-dir", str(folder / "work"), "--json", "report.json",
    ]  # fmt: skip
    return process.start(
        "oncebench run", command, folder / "log", cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


def ended(run: Child) -> str:
    """The output of a run, when it has ended."""
    assert run.wait(LIMIT_S), tail(run.log)
    run.kill_session()
    return run.log.read_text()


def processes_of(folder: Path) -> list[str]:
    """The command lines of all processes that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if str(folder) in command:
            found.append(command)
    return found


def test_a_run_with_kills_in_a_batch_and_in_its_replay_is_kept(tmp_path: Path) -> None:
    with started(tmp_path, "--duration", "2", "--fault", "mid-write", "--fault", "after-prepare") as run:
        output = ended(run)
    assert run.returncode == 0, output
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["verdict"], [fault["hit"] for fault in report["faults"]]) == ("kept", [True, True]), output
    assert "  verdict     kept: the promise was kept" in output
    assert processes_of(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=["Ctrl-C", "a closed terminal"])
def test_an_interrupted_run_prints_its_report_and_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "--duration", "600") as run:
        until = time.monotonic() + LIMIT_S
        while not (tmp_path / "work" / "ledger" / "plan.json").exists():
            assert run.alive and time.monotonic() < until, tail(run.log)
            time.sleep(0.05)
        assert processes_of(tmp_path / "work"), "the pipeline, the load and the observer"
        os.killpg(run.pid, number)
        output = ended(run)
    assert run.returncode == 130, output
    assert json.loads((tmp_path / "report.json").read_text())["interrupted"]
    assert "  verdict     " in output
    assert processes_of(tmp_path) == []
