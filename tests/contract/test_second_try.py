"""A task that loses its executor: Spark runs it again, and our code never writes twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oncebench.downloads.java import find_java
from oncebench.lab.lab import environment
from tests import ROOT

pytestmark = [pytest.mark.contract, pytest.mark.spark]

LIMIT_S = 540.0


@pytest.mark.slow
def test_a_task_that_spark_runs_again_does_not_write_twice(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.contract.retried", str(tmp_path)]
    own = {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}
    ran = subprocess.run(
        command, cwd=ROOT, env={**environment(find_java()), **own}, capture_output=True, text=True, timeout=LIMIT_S,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["bare"] == [0, 1], "Spark itself runs it again, although spark.task.maxFailures is 1"
    assert (found["ours"], found["said"]) == ([0], "TaskTriedAgain")
