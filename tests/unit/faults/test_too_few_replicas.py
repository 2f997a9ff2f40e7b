"""Faults in which too few replicas have a row: brokers and settings are as before at the end. No broker."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from oncebench.faults import replicas, too_few_replicas
from tests.unit.faults.fake_pipeline import World, run
from tests.unit.faults.test_replicas import Cluster

LOOKS = 10**6


class Settable(Cluster):
    """Brokers whose topics' settings are recorded in `said`, between what the brokers did."""

    def existing(self, *topics: str) -> list[str]:
        return list(topics)

    def configure(self, topic: str, name: str, value: str) -> None:
        self.said.append(f"{topic} {name}={value}")

    def reassign(self, topic: str, partition: int, to: list[int]) -> None:
        self.said.append(f"{topic}-{partition} to {to}")

    def replicas(self, *_place: Any) -> set[int]:
        return {2, 1}

    def leader(self, *_place: Any, timeout_s: float = 0.0) -> int | None:
        return 2


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "_LOOK_S", 0.0)


def brokers(cluster: Settable) -> list[str]:
    return [each for each in cluster.said if each.split()[0] in ("kill", "start")]


def settings(cluster: Settable) -> set[str]:
    return {each.split()[1] for each in cluster.said if "=" in each}


@pytest.mark.parametrize("cut_short", [False, True])
def test_writes_are_refused_and_then_taken_again(world: World, cut_short: bool) -> None:
    cluster = Settable()
    fault = too_few_replicas.refuse_writes(world.context("refuse-writes", cluster), 3600.0 if cut_short else 0.001)
    if cut_short:
        while "pipeline-continued" not in world.events:
            next(fault)
        assert (brokers(cluster), settings(cluster)) == (["kill 1"], {"min.insync.replicas=3"})
        fault.close()
    else:
        run(fault, polls=LOOKS)
        assert world.events == ["too-few-replicas", "pipeline-continued", "broker-back"]
    assert brokers(cluster) == ["kill 1", "start 1"], "the controller, 2, stays"
    topics = ("out", "bad", "__transaction_state", "__consumer_offsets")
    assert [f"{topic} min.insync.replicas=2" for topic in topics] == [each for each in cluster.said if "=2" in each]
    assert not cluster.disturbed


def test_the_replica_without_the_newest_rows_becomes_leader(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Settable()
    monkeypatch.setattr("tests.unit.faults.test_replicas.Broker.leader", lambda *_place, timeout_s: 1)
    fault = too_few_replicas.elect_unclean(world.context("elect-unclean", cluster), 0.0)
    while "pipeline-continued" not in world.events:
        next(fault)
    assert cluster.said[-2:] == ["out-0 to [2, 1]", "kill 1"]
    world.done = [{"batch": 8}, {"batch": 9}, {"batch": 10}]
    for _ in range(5):
        next(fault)
    assert brokers(cluster) == ["kill 1"], "the leader has to take some batches alone"
    world.done.append({"batch": 11})
    run(fault, polls=LOOKS)
    assert brokers(cluster) == ["kill 1", "kill 2", "start 1", "start 2"]
    assert settings(cluster) == {"min.insync.replicas=1", "unclean.leader.election.enable=true"}
    assert world.events[-2:] == ["leader-moved", "broker-back"]


@pytest.mark.parametrize(
    "injection", [too_few_replicas.elect_unclean, lambda each, _s: too_few_replicas.refuse_writes(each, 0.0)]
)
def test_without_whole_replicas_no_setting_changes(
    world: World, injection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "LIMIT_S", 0.0)
    cluster = Settable(synced=False)
    fault: Generator[None] = injection(world.context("refuse-writes", cluster), 0.0)
    run(fault)
    assert (cluster.said, world.events) == ([], ["nemesis-idle", "pipeline-continued"])
