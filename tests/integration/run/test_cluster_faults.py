"""Faults of tasks, executors and Spark workers on a cluster that the run starts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from oncebench.home import HOME
from tests import COMMAND

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

FAULTS = (
    "mid-write:kill",
    "after-prepare:kill-executor@after=2",
    "before-prepare:stop-executor:3@after=2",
    "after-prepare:kill@after=2",
    "after-decision:kill-executor@after=2",
)


@pytest.mark.parametrize("sink", ["kafka", "files-jsonl"])
def test_exactly_once_survives_dead_tasks_executors_and_machines(tmp_path: Path, sink: str) -> None:
    report = tmp_path / "report.json"
    command = [
        *COMMAND, "run", "--sink", sink, "--guarantee",
        "exactly-once", "--cluster", "2", "--rate", "300", "--sessions", "80", "--max-events-per-batch", "300",
        "--work-dir", str(tmp_path / "run"), "--keep", "--json", str(report),
        *(word for fault in FAULTS for word in ("--fault", fault)),
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(report.read_text())
    assert [(fault["fault"], fault["hit"]) for fault in found["faults"]] == [(fault, True) for fault in FAULTS]
    assert found["price"]["by_component"]["executors"]["cpu_s"] > 0
    timeline = [json.loads(line) for line in (tmp_path / "run" / "timeline.jsonl").read_text().splitlines()]
    events = [line["event"] for line in timeline]
    assert events.count("spark-worker-replaced") == 2
    assert events.count("executor-killed") == 2
    assert "nemesis-idle" not in events
    # Killed executors leave native code, and none of it in the system's temporary folder.
    assert list((tmp_path / "run").glob("spark/worker-*/tmp/librocksdbjni*"))
