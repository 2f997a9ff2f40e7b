"""The supervisor and a fault that a task reaches on the run's own Spark cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from oncebench.live.newest_fault import NewestFault
from oncebench.processes import child as process
from oncebench.run.attempts.supervisor import Supervisor
from oncebench.servers.spark_cluster import SparkCluster
from tests.unit.run.attempts.fake_attempts import FakeChild, World

WORKER = 501  # the session of a Spark worker


class Cluster(SparkCluster):
    """Two fake workers. A worker that is replaced gets another session."""

    def __init__(self, log: Path) -> None:
        super().__init__("spark://127.0.0.1:1", "", log, cast("Any", None), "1g")
        self.fakes = [FakeChild(log, WORKER), FakeChild(log, WORKER + 1)]
        self.workers = cast("Any", self.fakes)

    def restart_worker(self, index: int) -> None:
        self.fakes[index] = FakeChild(self.fakes[index].log, 900 + index)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "log")


@pytest.fixture
def world(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path)
    made.supervisor.__exit__(None, None, None)
    made.supervisor = Supervisor(made.supervisor._config, {}, 0, seed=1, cluster=cluster)
    monkeypatch.setattr(process, "start", made.start)
    with made.supervisor:
        made.supervisor.start()
        yield made


def test_a_killed_spark_worker_is_replaced_and_the_attempt_is_not_killed(world: World, cluster: Cluster) -> None:
    killed = cluster.fakes[0]
    world.hit("kill", session=WORKER)
    world.supervisor.watch()
    world.supervisor.watch()
    assert killed.session_killed
    assert [each.pid for each in cluster.fakes] == [900, WORKER + 1]
    assert world.events() == ["pipeline-started", "spark-worker-replaced"]
    assert world.attempts[0].alive
    assert "restarting" not in NewestFault(world.folder).describe()


def test_a_driver_that_dies_of_a_killed_spark_worker_has_died_by_itself(world: World) -> None:
    world.hit("kill", session=WORKER)
    world.supervisor.watch()
    world.attempts[0].log.write_text("stopped: an executor was lost\n")
    world.attempts[0].dies(1)
    world.supervisor.watch()
    assert world.events()[2:] == ["pipeline-failed", "pipeline-started"]


def test_a_fault_begins_when_the_task_stands_still(world: World, cluster: Cluster) -> None:
    cluster.fakes[0].still = False
    world.hit("stop", 3600.0, session=WORKER)
    world.supervisor.watch()
    assert not world.supervisor._faults._active
    cluster.fakes[0].still = True
    world.supervisor.watch()
    assert world.supervisor._faults._active
    world.supervisor.end_faults()
    assert [each.thawed for each in (*world.attempts, *cluster.fakes)] == [1, 1, 1]
    assert [each.frozen for each in (*world.attempts, *cluster.fakes)] == [1, 1, 1], "the others stand still too"


def test_a_fault_of_a_dead_spark_worker_is_not_exercised(world: World, cluster: Cluster) -> None:
    cluster.fakes[0].alive = False
    world.hit("stop", 3600.0, session=WORKER)
    world.supervisor.watch()
    assert world.events() == ["pipeline-started", "nemesis-idle"]


def test_a_spark_worker_whose_driver_has_died_goes_on(world: World, cluster: Cluster) -> None:
    world.hit("stop", 3600.0, session=WORKER)
    world.attempts[0].dies(-9)
    world.supervisor.watch()
    assert cluster.fakes[0].thawed == 1
    assert "nemesis-idle" in world.events()


def test_a_killed_spark_worker_at_the_end_has_killed_the_attempt(world: World) -> None:
    world.attempts[0].at_stop = lambda: world.hit("kill", session=WORKER)
    world.supervisor.stop()
    assert world.events() == ["pipeline-started", "pipeline-killed"]
