"""Faults of one broker of several: it is back when the fault or the run ends.

Only one broker is away. The tests start no broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.faults.context import FaultContext
from oncebench.faults.replicas import one_broker
from oncebench.faults.replicas.roles import OUTPUT_LEADER, Role
from oncebench.run.attempts.supervisor import Supervisor
from tests.unit.faults.fake_pipeline import World, run


@dataclass
class Broker:
    """A broker that obeys at once. `said`: what all brokers of the cluster did."""

    number: int
    said: list[str]
    alive: bool = True

    def _say(self, what: str, alive: bool) -> None:
        self.said.append(f"{what} {self.number}")
        self.alive = alive

    def kill(self) -> None:
        self._say("kill", False)

    def begin_stop(self) -> None:
        self._say("end", False)

    def stop(self) -> None:
        pass

    def pause(self) -> None:
        self._say("pause", True)

    def resume(self) -> None:
        self._say("resume", True)

    def begin_start(self) -> None:
        self._say("start", True)

    serves = True

    def wait_until_serving(self) -> None:
        pass

    def leader(self, *_place: Any, timeout_s: float) -> int | None:
        return None


@dataclass
class Cluster:
    """Three brokers; broker 2 leads until it is away.

    `moves`: whether another broker then takes over.
    """

    moves: bool = True
    synced: bool = True
    disturbed: bool = False
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.brokers = {number: Broker(number, self.said) for number in (1, 2, 3)}

    def in_sync(self, _timeout_s: float) -> bool:
        return self.synced

    def leader(self, *_place: Any, timeout_s: float = 0.0) -> int | None:
        return 3 if self.moves and "2" in "".join(self.said) else 2

    def controller(self) -> int | None:
        return 2

    @property
    def network(self) -> Any:
        return SimpleNamespace(cut=self.cut)

    @contextmanager
    def cut(self, number: int) -> Iterator[None]:
        self.said.append(f"cut {number}")
        try:
            yield
        finally:
            self.said.append(f"mend {number}")

    def leader_without(self, _number: int, *place: Any, timeout_s: float) -> int | None:
        return self.leader(*place, timeout_s=timeout_s)

    def agrees(self, _timeout_s: float) -> bool:
        return self.synced

    def other_than(self, _number: int) -> Any:
        return SimpleNamespace(leader=self.leader)

    def start(self) -> None:
        for broker in self.brokers.values():
            if not broker.alive:
                broker.begin_start()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_broker, "LIMIT_S", 0.0)
    monkeypatch.setattr(one_broker, "_LOOK_S", 0.0)


def context(world: World, cluster: Cluster, fault: str = "kill-output-leader") -> FaultContext:
    return world.context(fault, cluster)


KILL = partial(one_broker.kill_leader, role=OUTPUT_LEADER)
BOUNCE = partial(one_broker.bounce_leader, role=OUTPUT_LEADER)


@pytest.mark.parametrize(
    ("injection", "act", "event"), [(KILL, "kill", "leader-killed"), (BOUNCE, "end", "leader-ends")]
)
def test_the_leader_of_the_moment_goes_and_comes_back(world: World, injection: Any, act: str, event: str) -> None:
    cluster = Cluster()
    run(injection(context(world, cluster), 0.0))
    assert cluster.said == [f"{act} 2", "start 2"]
    assert world.events == [event, "pipeline-continued", "leader-moved", "broker-back"]
    assert world.notes[0] | {"broker": 2, "leads": "out-0", "controller": True} == world.notes[0]
    assert world.notes[2]["broker"] == 3


@pytest.mark.parametrize("injection", [KILL, BOUNCE])
def test_a_leader_that_is_away_is_back_when_the_run_ends(
    world: World, injection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_broker, "LIMIT_S", 3600.0)
    cluster = Cluster(moves=False)
    running = injection(context(world, cluster), 0.0)
    while "pipeline-continued" not in world.events:
        next(running)
    running.close()
    assert cluster.said[-1] == "start 2"


def test_a_stopped_leader_continues_after_its_seconds(world: World) -> None:
    cluster = Cluster()
    run(one_broker.stop_leader(context(world, cluster), 0.001, OUTPUT_LEADER), polls=10**6)
    assert cluster.said == ["pause 2", "resume 2"]
    assert world.events == ["leader-stopped", "pipeline-continued", "leader-continued"]
    assert world.notes[-1]["moved_to"] == 3


ISOLATE = partial(one_broker.isolate_leader, role=OUTPUT_LEADER)


def test_an_isolated_leader_is_reconnected_after_its_seconds(world: World) -> None:
    cluster = Cluster()
    run(ISOLATE(context(world, cluster), 0.001), polls=10**6)
    assert cluster.said == ["cut 2", "mend 2"]
    assert world.events == ["leader-isolated", "pipeline-continued", "leader-reconnected"]
    assert world.notes[0] | {"broker": 2, "leads": "out-0", "controller": True} == world.notes[0]
    assert world.notes[-1]["moved_to"] == 3
    assert not cluster.disturbed


def test_an_isolated_leader_is_reconnected_when_the_run_ends(world: World) -> None:
    cluster = Cluster(moves=False)
    running = ISOLATE(context(world, cluster), 3600.0)
    while "pipeline-continued" not in world.events:
        next(running)
    assert (cluster.said, cluster.disturbed) == (["cut 2"], True)
    running.close()
    assert (cluster.said, cluster.disturbed) == (["cut 2", "mend 2"], False)


def test_brokers_that_do_not_agree_after_a_cut_are_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(moves=False)
    monkeypatch.setattr(Cluster, "agrees", lambda *_: False)
    run(ISOLATE(context(world, cluster), 0.0))
    assert world.whys[-1] == "the brokers did not agree within 0 s"


@pytest.mark.parametrize("injection", [partial(one_broker.stop_leader, role=OUTPUT_LEADER), ISOLATE])
def test_a_broker_that_is_away_too_briefly_to_lose_its_role_tested_nothing(world: World, injection: Any) -> None:
    cluster = Cluster(moves=False)
    run(injection(context(world, cluster), 0.001), polls=10**6)
    assert [note for note in world.notes if "moved_to" in note] == []
    assert world.whys == ["no other broker led within 0.001 s: make the fault longer than a broker's session, 9 s"]
    assert not cluster.disturbed


@pytest.mark.parametrize("injection", [partial(one_broker.stop_leader, role=OUTPUT_LEADER), ISOLATE])
def test_a_look_without_an_answer_hides_no_other_leader(
    world: World, injection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([2, None, 3])  # the leader before the fault, no answer, the other one
    monkeypatch.setattr(Cluster, "leader", lambda *_, **__: next(answers, None))
    run(injection(context(world, Cluster()), 0.2), polls=10**7)
    assert (world.notes[2]["moved_to"], world.whys) == (3, [])


@pytest.mark.parametrize(
    ("cluster", "role", "why"),
    [
        (Cluster(), Role("none", "the broker of nothing", lambda _context: None), "no broker is the broker of nothing"),
        (Cluster(synced=False), OUTPUT_LEADER, "the replicas were not in sync"),
    ],
)
def test_a_fault_without_a_target_is_idle_and_touches_no_broker(
    world: World, cluster: Cluster, role: Role, why: str
) -> None:
    run(one_broker.kill_leader(context(world, cluster), 0.0, role))
    assert (cluster.said, world.events) == ([], ["nemesis-idle", "pipeline-continued"])
    assert world.whys[0].startswith(why)


@pytest.mark.parametrize("injection", [KILL, BOUNCE, ISOLATE, one_broker.rolling_restart])
def test_a_second_fault_waits_for_the_end_of_the_first(world: World, injection: Any) -> None:
    cluster = Cluster(disturbed=True)
    second = injection(context(world, cluster), 0.0)
    for _ in range(5):
        next(second)
    assert (cluster.said, world.events) == ([], [])
    cluster.disturbed = False
    run(second)
    assert len(cluster.said) >= 2
    assert not cluster.disturbed


def test_a_leadership_that_does_not_move_tested_nothing(world: World) -> None:
    cluster = Cluster(moves=False)
    run(KILL(context(world, cluster), 0.0))
    assert cluster.said == ["kill 2", "start 2"]
    assert world.whys == ["partition 0 of out got no other leader"]


def test_a_rolling_restart_waits_for_replicas_before_each_broker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    looks: list[int] = []
    monkeypatch.setattr(Cluster, "in_sync", lambda self, _limit: looks.append(len(self.said)) or True)
    run(one_broker.rolling_restart(context(world, cluster, "rolling-restart"), 0.0))
    assert cluster.said == [f"{act} {number}" for number in (1, 2, 3) for act in ("end", "start")]
    assert {0, 2, 4, 6} <= set(looks)
    assert world.events == ["pipeline-continued", *["broker-ends", "broker-back"] * 3]


def test_replicas_that_were_in_sync_are_not_looked_at_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []

    def every_second_one_is_in_sync(_cluster: Any, _limit: float) -> bool:
        looks.append(not looks or not looks[-1])  # a busy broker may leave the next look without an answer
        return looks[-1]

    monkeypatch.setattr(Cluster, "in_sync", every_second_one_is_in_sync)
    monkeypatch.setattr(one_broker, "LIMIT_S", 30.0)
    run(KILL(context(world, Cluster()), 0.0))
    assert world.events == ["leader-killed", "pipeline-continued", "leader-moved", "broker-back"]


def test_a_rolling_restart_ends_where_replicas_do_not_catch_up(world: World) -> None:
    cluster = Cluster(synced=False)
    run(one_broker.rolling_restart(context(world, cluster, "rolling-restart"), 0.0))
    assert (cluster.said, world.events) == ([], ["pipeline-continued", "nemesis-idle"])


def test_the_run_waits_while_a_leader_is_away_and_still_restarts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_broker, "LIMIT_S", 3600.0)
    cluster = Cluster(moves=False)
    fault = context(world, cluster)
    with Supervisor(fault.config, {}, 0, seed=1) as supervisor:
        fault.hit = {**fault.hit, "action": "kill-output-leader"}
        running = KILL(fault, 0.0)
        supervisor._faults._active = [(fault, running)]
        seen: list[tuple[bool, bool]] = []
        advance: Callable[[], None] = lambda: next(running)  # noqa: E731
        while "pipeline-continued" not in world.events:
            advance()
        seen.append((supervisor.server_down, fault.held))
        cluster.moves = True
        run(running, polls=10**6)
        supervisor._faults._active = []
    assert seen == [(True, False)]
    assert not fault.away
