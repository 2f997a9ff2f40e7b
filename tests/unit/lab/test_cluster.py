"""A run with `--cluster` gets a Spark cluster of its own.

Every other run gets the master of its cell.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncebench.commands.shared.options import base_cell
from oncebench.errors import ExitCode, MissingEnvironment, UserError
from oncebench.lab.spark.cluster import open_cluster
from oncebench.lab.spark.master import master_for
from oncebench.processes import child as process
from oncebench.processes.child import Child
from oncebench.scenario.cell import Cell
from oncebench.scenario.cell_check import require_possible
from oncebench.servers import spark_cluster
from oncebench.servers.spark_cluster import SparkCluster, Start, start_spark_cluster

CELL = Cell("kafka", "exactly-once", "two-phase", workers=2)


@pytest.mark.parametrize(("workers", "there"), [(0, None), (2, "spark://127.0.0.1:1")])
def test_no_cluster_is_started_without_need(tmp_path: Path, workers: int, there: str | None) -> None:
    lab: Any = SimpleNamespace(cluster=there)
    with open_cluster(replace(CELL, workers=workers), lab, tmp_path, lambda: False) as found:
        assert found is lab
    assert list(tmp_path.iterdir()) == []


def test_the_pipeline_uses_the_runs_cluster() -> None:
    assert master_for(CELL, {"jars": ()}, "spark://127.0.0.1:7077") == {"jars": (), "master": "spark://127.0.0.1:7077"}
    assert master_for(CELL, {"jars": ()}) == {"jars": (), "master": "local[2]"}


def test_a_cell_on_a_cluster_names_it_in_title_and_command() -> None:
    assert CELL.title == "kafka exactly-once two-phase, healthy, cluster of 2"
    assert "--cluster 2" in CELL.reproduce()
    assert CELL.on_cluster
    assert CELL.on_this_machine


def test_a_cluster_and_a_master_exclude_each_other() -> None:
    with pytest.raises(UserError, match="Give one of them"):
        base_cell("100", None, None, "constant", master="spark://host:7077", workers=2)


def test_tasks_and_executors_of_the_runs_own_cluster_can_be_stopped() -> None:
    require_possible([replace(CELL, faults=("mid-write:kill", "after-prepare:kill-executor"))])


def test_no_second_pipeline_runs_on_a_cluster() -> None:
    with pytest.raises(UserError, match="with --cluster 2 the stopped pipeline keeps all cores"):
        require_possible([replace(CELL, faults=("mid-commit:zombie",))])


def test_file_sinks_run_on_a_cluster_of_this_machine() -> None:
    require_possible([replace(CELL, sink="files-jsonl")])


def cluster_of(folder: Path, master: Child) -> SparkCluster:
    return SparkCluster("spark://127.0.0.1:1", "http://127.0.0.1:1", folder, cast("Any", None), master)


def test_the_wait_ends_with_the_log_of_a_master_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkCluster, "_start_worker", lambda self, _: self.master)
    ends = ["sh", "-c", "echo no such option; exit 3"]
    with (
        process.start("Spark's master", ends, tmp_path / "log") as master,
        pytest.raises(MissingEnvironment, match=r"Spark's master ended while starting.*log:\nno such option"),
    ):
        cluster_of(tmp_path, master).start_workers(1, lambda: False)


def test_a_master_whose_port_was_taken_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def start(_java: object, kind: str, arguments: list[str], folder: Path, _how: Start) -> Child:
        if kind == "Master":
            started.append(arguments[arguments.index("--port") + 1])
        taken = "echo java.net.BindException: in use; " if kind == "Master" and len(started) == 1 else ""
        folder.mkdir(parents=True, exist_ok=True)
        return process.start(kind, ["sh", "-c", f"{taken}sleep 600"], folder / "log")

    monkeypatch.setattr(spark_cluster, "start_process", start)
    monkeypatch.setattr(SparkCluster, "alive", lambda _: 1 if len(started) == 2 else 0)
    with start_spark_cluster(tmp_path, cast("Any", None), 1) as cluster:
        assert cluster.address == f"spark://127.0.0.1:{started[1]}"
        assert len(cluster.workers) == 1 and cluster.master.alive
    assert len(started) == 2


def test_ctrl_c_ends_the_wait_for_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkCluster, "_start_worker", lambda *_: None)
    cluster = cluster_of(tmp_path, cast("Any", None))
    with pytest.raises(UserError, match="interrupted") as ended:
        cluster.start_workers(1, lambda: True)
    assert ended.value.exit_code == ExitCode.INTERRUPTED
