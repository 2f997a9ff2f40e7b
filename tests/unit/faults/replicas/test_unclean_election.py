"""The unclean election: brokers, settings and replicas are as before at the end. The tests start no broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from oncebench.faults.replicas import one_broker, unclean_election
from oncebench.faults.replicas.unclean_election import unclean_election as fault
from tests.unit.faults.fake_pipeline import World, run
from tests.unit.faults.replicas.test_too_few import Settable

BEHIND, LEADER = 1, 2


@dataclass
class Electable(Settable):
    """Brokers whose broker 2 leads, and is the controller. `rows`: whether rows are committed while it is alone."""

    rows: bool = True
    shrinks: bool = True
    elects: bool = True
    replicas: tuple[int, ...] = (1, 2, 3)
    ends: list[int] = field(default_factory=lambda: [100])  # before the pipeline continues

    def reassign(self, topic: str, partition: int, replicas: tuple[int, ...]) -> None:
        self.said.append(f"{topic}-{partition} {replicas}")
        self.replicas = replicas

    def in_sync_replicas(self, *_place: Any, timeout_s: float) -> set[int]:
        return {each for each in self.replicas if self.brokers[each].alive or not self.shrinks}

    def committed_end(self, *_place: Any) -> int:
        if self.ends:
            return self.ends.pop()
        return 140 if self.rows and self.brokers[LEADER].alive else 100

    def leader_without(self, _number: int, *_place: Any, timeout_s: float) -> int | None:
        return BEHIND if self.elects else None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (one_broker, unclean_election):
        monkeypatch.setattr(module, "LIMIT_S", 0.01)
    monkeypatch.setattr(one_broker, "_LOOK_S", 0.0)


def as_before(cluster: Electable) -> bool:
    """Whether brokers, replicas and settings are those from before the fault."""
    last = dict(each.split(" ", 1)[1].split("=") for each in cluster.said if "=" in each)
    whole = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    return (
        all(broker.alive for broker in cluster.brokers.values())
        and cluster.replicas == (1, 2, 3)
        and last == whole
        and not cluster.disturbed
    )


def test_a_replica_leads_without_the_rows_of_the_leader(world: World) -> None:
    cluster = Electable()
    run(fault(world.context("unclean-election", cluster), 0.0), polls=10**7)
    acts = [each for each in cluster.said if each.split()[0] in ("kill", "start")]
    assert acts == ["kill 1", "kill 2", "start 1", "start 2"], "the old leader comes back last"
    assert world.events == [
        "replica-killed", "pipeline-continued", "leader-killed", "broker-back", "leader-unclean", "broker-back",
    ]  # fmt: skip
    assert next(each for each in world.notes if each["event"] == "leader-unclean")["lost_offsets"] == 40
    assert world.whys == []
    assert as_before(cluster)


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        (Electable(rows=False), "no row was committed"),
        (Electable(shrinks=False), "the replicas in sync did not become [2]"),
        (Electable(elects=False), "broker 1 did not lead"),
    ],
    ids=["no row", "no smaller set", "no election"],
)
def test_an_election_that_loses_nothing_tested_nothing(world: World, cluster: Electable, why: str) -> None:
    run(fault(world.context("unclean-election", cluster), 0.0), polls=10**7)
    assert [each.startswith(why) for each in world.whys] == [True]
    assert as_before(cluster)


def test_a_run_that_ends_first_leaves_the_cluster_whole(world: World) -> None:
    cluster = Electable(elects=False)
    injection = fault(world.context("unclean-election", cluster), 0.0)
    while "leader-killed" not in world.events:
        next(injection)
    injection.close()
    assert as_before(cluster)
    restored = [at for at, each in enumerate(cluster.said) if each.endswith(("=2", "=false"))]
    assert min(restored) > cluster.said.index("start 2"), "without a quorum of controllers no setting is taken"


def test_the_active_controller_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Electable(rows=False)
    monkeypatch.setattr(cluster, "controller", lambda: 1)
    run(fault(world.context("unclean-election", cluster), 0.0), polls=10**7)
    assert [each for each in cluster.said if each.startswith("kill")] == ["kill 3"]
