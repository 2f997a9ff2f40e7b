"""Whole audited runs on a standalone Spark cluster.

Its workers share no class path with the driver.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oncebench.downloads.java import find_java
from oncebench.home import HOME
from oncebench.processes import child as process
from oncebench.record.json_lines import read_lines
from oncebench.servers.spark_cluster import SparkCluster, start_spark_cluster
from oncebench.sinks.postgres.connection import VARIABLE
from pipeline.spark.cluster.machines import VARIABLE as NEEDED_FILES
from tests import COMMAND
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

# A start of driver and executors takes 20 s on two idle cores, and was seen to take 95 s on busy ones.
STEP_S = 900.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with start_spark_cluster(tmp_path / "cluster", find_java(), 2) as running:
        yield running


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python for executors that has the other packages, and not this project."""
    folder = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    own = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    (own / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # the .pth files in there are not read
    found = folder / "bin" / "python"
    lacks = subprocess.run([found, "-c", "import confluent_kafka, oncebench"], capture_output=True, text=True, cwd="/",
                           env={}, check=False)  # fmt: skip
    assert "No module named 'oncebench'" in lacks.stderr
    return found


def run(folder: Path, cluster: SparkCluster, *options: str) -> process.Child:
    command = [
        *COMMAND, "run", "--guarantee", "exactly-once",
        "--master", cluster.address, "--work-dir", str(folder / "run"), "--start-timeout", "600", *options,
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return process.start("oncebench run", command, folder / "log", env=environment, cwd=HOME)


def batches(folder: Path) -> Sequence[Any]:
    lines = read_lines(folder / "run" / "progress.jsonl").items if (folder / "run").exists() else ()
    return [line for line in lines if line["kind"] == "batch" and not line.get("recovered")]


def goes_on(folder: Path, since_us: int) -> bool:
    return any(line["t_us"] > since_us for line in batches(folder))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sink", ["kafka", "postgres"])
def test_exactly_once_survives_dead_drivers_executors_and_workers(
    cluster: SparkCluster, python: Path, tmp_path: Path, sink: str
) -> None:
    """The driver is killed after a commit, then one executor, then one of the two workers."""
    options = ("--sink", sink, "--rate", "500", "--duration", "10", "--max-events-per-batch", "500", "--fault",
               "after-commit:kill", "--spark-conf", f"spark.pyspark.python={python}")  # fmt: skip
    report = tmp_path / "report.json"
    with run(tmp_path, cluster, *options, "--json", str(report)) as suite:

        def ended_or_goes_on(since_us: int) -> bool:
            return not suite.alive or goes_on(tmp_path, since_us)

        hits = tmp_path / "run" / "hits.jsonl"
        wait_for("the driver is killed", lambda: not suite.alive or hits.exists(), limit_s=STEP_S)
        for kill in ("driver", "executor", "worker"):
            if kill == "executor":
                assert any(str(python) in command for command in cluster.commands()), "the Python of --spark-conf"
                os.kill(cluster.executors()[0], signal.SIGKILL)
            elif kill == "worker":
                cluster.workers[0].send(signal.SIGKILL)
            since_us = time.time_ns() // 1000
            wait_for(f"a batch after the kill of a {kill}", partial(ended_or_goes_on, since_us), limit_s=STEP_S)
            assert suite.alive, (tmp_path / "log").read_text()
        assert suite.wait(STEP_S), (tmp_path / "log").read_text()
        suite.kill_session()
        assert suite.returncode == 0, (tmp_path / "log").read_text()
    found = json.loads(report.read_text())
    assert (found["verdict"], found["faults"][0]["fault"]) == ("kept", "after-commit:kill")
    assert found["config"]["spark_conf"] == [f"spark.pyspark.python={python}"]
    assert found["price"] is None, "the suite cannot measure executors on other machines"


@pytest.mark.timeout(1200)
def test_executors_that_cannot_start_are_named_with_their_cause(cluster: SparkCluster, tmp_path: Path) -> None:
    options = ("--sink", "kafka", "--rate", "500", "--duration", "1")
    broken = ("--spark-conf", "spark.executor.extraJavaOptions=-javaagent:/nowhere/agent.jar")
    with run(tmp_path, cluster, *options, *broken) as suite:
        assert suite.wait(STEP_S), "it waits for executors that will never come"
        suite.kill_session()
    said = (tmp_path / "log").read_text()
    assert suite.returncode == 1
    assert "the executors end before they can work. Executor 0 on 127.0.0.1 logged: " in said
    assert "/nowhere/agent.jar" in said.splitlines()[-1]
    assert "Is the machine busy" not in said


@pytest.mark.timeout(1200)
def test_an_executor_without_the_shared_folder_is_refused_with_its_machine(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    """All machines of the test are one.

    Therefore the executors look for another folder than the driver's.
    """
    other = json.dumps({"mark": "/nowhere/.shared-1"})
    options = ("--sink", "kafka", "--rate", "500", "--duration", "1")
    with run(tmp_path, cluster, *options, "--spark-conf", f"spark.executorEnv.{NEEDED_FILES}={other}") as suite:
        assert suite.wait(STEP_S), "it goes on"
        suite.kill_session()
    said = (tmp_path / "log").read_text()
    assert suite.returncode == 1
    assert "do not share the folder /nowhere with this driver (No such file or directory)" in said.splitlines()[-1]
