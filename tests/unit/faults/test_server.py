"""Faults of servers: a broken server is whole again when the fault or the run ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka.errors import KafkaTimeoutError

from oncebench.errors import UserError
from oncebench.faults import server as server_faults
from oncebench.run.attempts.supervisor import Supervisor
from oncebench.sinks.kafka.coordinator import Transaction
from tests.unit.faults.fake_pipeline import NOBODY, Server, World, run


class Listing:
    """A coordinator that lists transactions in these states; stands in for `Coordinator`."""

    def __init__(self, *states: str) -> None:
        self.states = states

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def listed(self, prefix: str, *, complete: bool) -> list[Transaction]:
        assert complete, "ids of a coordinator that has just come back would be missing"
        return [Transaction(f"{prefix}g2.{n}.x", n, -1, state) for n, state in enumerate(self.states)]


@pytest.mark.parametrize(
    ("states", "names"),
    [
        ({"g10.1.b": "Ongoing", "g10.1.a": "PrepareCommit", "g10.1.c": "CompleteCommit"}, ["g10.1.a", "g10.1.b"]),
        ({"g2.1.a": "PrepareEpochFence", "g9.1.a": "Ongoing", "g10.1.a": "Ongoing"}, ["g10.1.a"]),
        ({"g1.1.a": "Ongoing", "g2.1.a": "CompleteCommit"}, []),
        ({"g1.1.a": "Empty", "other": "Ongoing"}, []),
        ({"0-1": "Ongoing", "0-2": "CompleteCommit"}, ["0-1"]),
        ({}, []),
    ],
)
def test_only_open_transactions_of_the_newest_driver_are_in_hand(states: dict[str, str], names: list[str]) -> None:
    listed = [Transaction(f"id.txn.{name}", n, 0, state) for n, (name, state) in enumerate(states.items())]
    assert server_faults.in_hand(listed, "id") == [f"id.txn.{name}" for name in names]


@pytest.mark.parametrize(
    ("states", "fails", "events"),
    [
        (("CompleteCommit", "Ongoing", "PrepareCommit"), False, ["hijacked", "hijacked"]),
        (("CompleteCommit", "Empty", "Dead"), False, ["nemesis-idle"]),
        ((), False, ["nemesis-idle"]),
        (("Ongoing",), True, ["hijack-failed", "nemesis-idle"]),
    ],
)
def test_hijack_takes_open_transactions_and_is_idle_without_any(
    world: World, monkeypatch: pytest.MonkeyPatch, states: tuple[str, ...], fails: bool, events: list[str]
) -> None:
    taken: list[str] = []

    class Stranger:
        def __init__(self, settings: dict[str, str]) -> None:
            self.name = settings["transactional.id"]

        def init_transactions(self, _limit_s: float) -> None:
            if fails:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            taken.append(self.name)

    monkeypatch.setattr(server_faults, "Coordinator", lambda _where: Listing(*states))
    monkeypatch.setattr(server_faults, "Producer", Stranger)
    run(server_faults.hijack(world.context("hijack", SimpleNamespace(bootstrap_servers="localhost:1")), 0.0))
    assert world.events == [*events, "pipeline-continued"]
    assert len(taken) == events.count("hijacked")


@pytest.mark.parametrize("when", ["connecting", "asking"])
def test_hijack_reports_a_kafka_that_does_not_list_transactions(
    world: World, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def fails(*_: object, **_settings: object) -> Any:
        raise KafkaTimeoutError("no broker")

    monkeypatch.setattr(server_faults, "Coordinator", fails if when == "connecting" else lambda _where: Listing())
    monkeypatch.setattr(Listing, "listed", fails)
    context = world.context("after-prepare:hijack", SimpleNamespace(bootstrap_servers="localhost:1"))
    with pytest.raises(UserError, match=r"after-prepare:hijack: Kafka at localhost:1 did not list .*no broker"):
        run(server_faults.hijack(context, 0.0))


def test_kill_session_kills_a_session_of_the_pipeline_or_is_idle(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = SimpleNamespace(pid=NOBODY, killed=[], cmdline=lambda: ["postgres: root postgres 127.0.0.1(4711) idle"])
    session.kill = lambda: session.killed.append(True)
    other = SimpleNamespace(pid=NOBODY + 1, cmdline=lambda: ["postgres: root postgres 127.0.0.1(4712) idle"])
    monkeypatch.setattr(
        server_faults.psutil, "Process", lambda _pid: SimpleNamespace(children=lambda: [other, session])
    )
    world.attempts[0].others = (5,)
    back = ["session-killed", "pipeline-continued", "postgres-back"]
    for ports, expected in (({4711}, back), ({4713}, ["nemesis-idle", "pipeline-continued"])):
        monkeypatch.setattr(server_faults, "_ports", lambda _pid, ports=ports: ports)
        run(server_faults.kill_session(world.context("kill-session", Server()), 0.0))
        assert world.events == expected
        world.events.clear()
    assert session.killed == [True]


def test_kill_session_ends_when_the_server_has_recovered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = SimpleNamespace(pid=NOBODY, kill=lambda: None)
    monkeypatch.setattr(server_faults.psutil, "Process", lambda _pid: SimpleNamespace(children=lambda: [session]))
    monkeypatch.setattr(server_faults, "_serves", lambda *_: True)
    for cut_short in (False, True):
        server = Server()
        context = world.context("kill-session", server)
        injection = server_faults.kill_session(context, 0.0)
        next(injection)
        assert (server.said, context.held, context.standing) == ([], True, False)
        injection.close() if cut_short else run(injection)
        assert (server.said, context.held) == (["wait_until_recovered"], False)


@pytest.mark.parametrize("injection", [server_faults.kill_broker, server_faults.kill_postgres])
def test_a_killed_server_is_restarted_at_the_end_of_the_run(world: World, injection: Any) -> None:
    for cut_short in (False, True):
        server = Server()
        running = injection(world.context("kill", server), 0.0)
        next(running)
        assert (server.said, world.attempts[0].alive) == (["kill"], True)
        running.close() if cut_short else run(running)
        assert server.said == ["kill", "start"]


@pytest.mark.parametrize(
    ("action", "held", "breaking"), [("stop-broker", True, True), ("hijack", False, False), ("outage", True, False)]
)
def test_only_a_fault_that_breaks_a_server_is_waited_for(world: World, action: str, held: bool, breaking: bool) -> None:
    context = world.context(action)
    context.hit, context.held = {**context.hit, "action": action}, held
    with Supervisor(context.config, {}, 0, seed=1) as supervisor:
        supervisor._faults._active = [(context, (_ for _ in ()))]
        assert supervisor.server_down is breaking


@pytest.mark.parametrize("injection", [server_faults.bounce_broker, server_faults.bounce_postgres])
def test_a_stopped_server_is_restarted_at_the_end_of_the_run(world: World, injection: Any) -> None:
    for cut_short in (False, True):
        server = Server()
        running = injection(world.context("bounce", server), 0.0)
        next(running)
        assert (server.said, world.attempts[0].thawed > 0) == (["stop"], True)
        running.close() if cut_short else run(running)
        assert server.said == ["stop", "start"]


@pytest.mark.parametrize("cut_short", [False, True])
def test_a_stopped_session_is_continued_at_the_end_of_the_run(
    world: World, monkeypatch: pytest.MonkeyPatch, cut_short: bool
) -> None:
    said: list[str] = []
    session = SimpleNamespace(pid=NOBODY, suspend=lambda: said.append("suspend"), resume=lambda: said.append("resume"))
    monkeypatch.setattr(server_faults.psutil, "Process", lambda _pid: SimpleNamespace(children=lambda: [session]))
    monkeypatch.setattr(server_faults, "_serves", lambda *_: True)
    context = world.context("stop-session", Server())
    injection = server_faults.stop_session(context, 3600.0 if cut_short else 0.001)
    next(injection)
    assert (said, context.held, context.standing) == (["suspend"], True, False)
    injection.close() if cut_short else run(injection, polls=10**6)
    assert (said, context.held) == (["suspend", "resume"], False)
    assert world.events == ["session-stopped", "pipeline-continued", "session-continued"]


def test_stop_session_is_idle_without_a_session(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_faults.psutil, "Process", lambda _pid: SimpleNamespace(children=list))
    run(server_faults.stop_session(world.context("stop-session", Server()), 0.0))
    assert world.events == ["nemesis-idle", "pipeline-continued"]


@pytest.mark.parametrize("injection", [server_faults.stop_broker, server_faults.stop_postgres])
def test_a_frozen_server_is_continued_at_the_end_of_the_run(world: World, injection: Any) -> None:
    server = Server()
    context = world.context("stop", server)
    running = injection(context, 3600.0)
    next(running)
    assert (server.said, world.attempts[0].thawed, context.held) == (["pause"], 1, True)
    running.close()
    assert (server.said, context.held) == (["pause", "resume"], False)
