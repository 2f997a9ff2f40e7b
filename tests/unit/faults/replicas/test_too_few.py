"""Faults in which too few replicas have a row.

Brokers and settings are as before at the end. The tests start no broker.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from oncebench.errors import UserError
from oncebench.faults.replicas import one_broker, too_few
from tests.unit.faults.fake_pipeline import World, run
from tests.unit.faults.replicas.test_one_broker import Cluster

LOOKS = 10**6


class Settable(Cluster):
    """Brokers whose topics' settings are recorded in `said`, between what the brokers did."""

    def existing(self, *topics: str) -> list[str]:
        return list(topics)

    def configure(self, topic: str, name: str, value: str) -> None:
        self.said.append(f"{topic} {name}={value}")

    def leader(self, *_place: Any, timeout_s: float = 0.0) -> int | None:
        return 2


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_broker, "_LOOK_S", 0.0)


def brokers(cluster: Settable) -> list[str]:
    return [each for each in cluster.said if each.split()[0] in ("kill", "start")]


def settings(cluster: Settable) -> set[str]:
    return {each.split()[1] for each in cluster.said if "=" in each}


def plan(world: World, batch: int, ago_s: float) -> None:
    """Spark has planned a batch; it is open until it is in the commit log."""
    first = json.dumps({"batchTimestampMs": round((time.time() - ago_s) * 1000)})
    (world.folder / "checkpoint" / "offsets" / str(batch)).write_text(f"v1\n{first}\n{{}}\n")


@pytest.mark.parametrize(
    ("ago_s", "done", "exercised"),
    [(60.0, False, True), (60.0, True, False), (0.0, False, False)],
    ids=["a batch waits", "nothing to write", "a batch has just begun"],
)
def test_an_outage_without_a_write_tested_nothing(world: World, ago_s: float, done: bool, exercised: bool) -> None:
    plan(world, 11, ago_s)
    if done:
        (world.folder / "checkpoint" / "commits" / "11").write_text("v1\n{}\n")
    run(too_few.refuse_writes(world.context("refuse-writes", Settable()), 0.001), polls=LOOKS)
    assert world.whys == ([] if exercised else [
        "no batch waited to be written after 0.001 s: make the fault longer than the trigger"
    ])  # fmt: skip


@pytest.mark.parametrize("cut_short", [False, True])
def test_writes_are_refused_and_then_taken_again(world: World, cut_short: bool) -> None:
    cluster = Settable()
    plan(world, 11, ago_s=60.0)
    fault = too_few.refuse_writes(world.context("refuse-writes", cluster), 3600.0 if cut_short else 0.001)
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
    assert {f"{topic} min.insync.replicas=2" for topic in topics} == {each for each in cluster.said if "=2" in each}
    assert not cluster.disturbed


def test_a_topic_that_takes_no_setting_does_not_keep_the_others_as_they_are(world: World) -> None:
    class Deaf(Settable):
        def configure(self, topic: str, name: str, value: str) -> None:
            super().configure(topic, name, value)
            if (topic, value) == ("__transaction_state", "2"):
                raise UserError("Kafka does not answer")

    cluster = Deaf()
    with pytest.raises(UserError, match="Kafka does not answer"):
        run(too_few.refuse_writes(world.context("refuse-writes", cluster), 0.001), polls=LOOKS)
    assert len([each for each in cluster.said if "=2" in each]) == 4
    assert not cluster.disturbed


def test_without_whole_replicas_no_setting_changes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_broker, "LIMIT_S", 0.0)
    cluster = Settable(synced=False)
    run(too_few.refuse_writes(world.context("refuse-writes", cluster), 0.0))
    assert (cluster.said, world.events) == ([], ["nemesis-idle", "pipeline-continued"])
