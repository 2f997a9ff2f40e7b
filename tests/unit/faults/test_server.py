"""What is done to the servers: what a nemesis broke is whole again at its end, also when the run ends before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka.errors import KafkaTimeoutError

from oncebench.errors import UserError
from oncebench.faults import server as servers
from oncebench.run.supervisor import Supervisor
from oncebench.sinks.kafka.coordinator import Transaction
from tests.unit.faults.faults_world import Server, World, run


class Listing:
    """A coordinator that lists transactions in these states; stands in for `Coordinator`."""

    def __init__(self, *states: str) -> None:
        self.states = states

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def listed(self, prefix: str) -> list[Transaction]:
        return [Transaction(f"{prefix}{n}", n, -1, state) for n, state in enumerate(self.states)]


@pytest.mark.parametrize(
    ("states", "fails", "events"),
    [
        (("CompleteCommit", "Ongoing", "PrepareCommit"), False, ["hijacked", "hijacked"]),
        (("CompleteCommit", "Empty", "Dead"), False, ["nemesis-idle"]),
        ((), False, ["nemesis-idle"]),
        (("Ongoing",), True, ["hijack-failed", "nemesis-idle"]),
    ],
)
def test_a_stranger_takes_the_transactions_that_have_not_ended_and_says_when_it_took_none(
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

    monkeypatch.setattr(servers, "Coordinator", lambda _where: Listing(*states))
    monkeypatch.setattr(servers, "Producer", Stranger)
    run(servers.hijack(world.stage("hijack", SimpleNamespace(bootstrap_servers="localhost:1")), 0.0))
    assert world.events == [*events, "pipeline-continued"]
    assert len(taken) == events.count("hijacked")


@pytest.mark.parametrize("when", ["connecting", "asking"])
def test_a_kafka_that_does_not_tell_its_transactions_ends_the_run_with_words_and_no_series(
    world: World, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def fails(*_: object) -> Any:
        raise KafkaTimeoutError("nobody there")

    monkeypatch.setattr(servers, "Coordinator", fails if when == "connecting" else lambda _where: Listing())
    monkeypatch.setattr(Listing, "listed", fails)
    stage = world.stage("after-prepare:hijack", SimpleNamespace(bootstrap_servers="localhost:1"))
    with pytest.raises(UserError, match=r"after-prepare:hijack: Kafka at localhost:1 did not tell .*nobody there"):
        run(servers.hijack(stage, 0.0))


def test_a_session_of_the_pipelines_is_killed_and_where_there_is_none_that_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = SimpleNamespace(pid=11, killed=[], cmdline=lambda: ["postgres: root postgres 127.0.0.1(4711) idle"])
    session.kill = lambda: session.killed.append(True)
    other = SimpleNamespace(pid=12, cmdline=lambda: ["postgres: root postgres 127.0.0.1(4712) idle"])
    monkeypatch.setattr(servers.psutil, "Process", lambda _pid: SimpleNamespace(children=lambda: [other, session]))
    world.all[0].others = (5,)
    back = ["session-killed", "pipeline-continued", "postgres-back"]
    for ports, told in (({4711}, back), ({4713}, ["nemesis-idle", "pipeline-continued"])):
        monkeypatch.setattr(servers, "_ports", lambda _pid, ports=ports: ports)
        run(servers.kill_session(world.stage("kill-session", Server()), 0.0))
        assert world.events == told
        world.events.clear()
    assert session.killed == [True]


def test_a_server_of_which_a_session_was_killed_serves_again_when_the_act_is_over_also_when_the_run_ends_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = SimpleNamespace(pid=11, kill=lambda: None)
    monkeypatch.setattr(servers.psutil, "Process", lambda _pid: SimpleNamespace(children=lambda: [session]))
    monkeypatch.setattr(servers, "_serves", lambda *_: True)
    for cut_short in (False, True):
        server = Server()
        stage = world.stage("kill-session", server)
        acting = servers.kill_session(stage, 0.0)
        next(acting)
        assert (server.said, stage.held, stage.standing) == ([], True, False)
        acting.close() if cut_short else run(acting)
        assert (server.said, stage.held) == (["wait_until_recovered"], False)


@pytest.mark.parametrize("act", [servers.kill_broker, servers.kill_postgres])
def test_a_killed_server_is_started_again_also_when_the_run_ends_before(world: World, act: Any) -> None:
    for cut_short in (False, True):
        server = Server()
        acting = act(world.stage("kill", server), 0.0)
        next(acting)
        assert (server.said, world.all[0].alive) == (["kill"], True)
        acting.close() if cut_short else run(acting)
        assert server.said == ["kill", "start"]


@pytest.mark.parametrize(
    ("action", "held", "breaking"), [("stop-broker", True, True), ("hijack", False, False), ("outage", True, False)]
)
def test_a_server_is_waited_for_only_while_a_nemesis_keeps_it_from_serving(
    world: World, action: str, held: bool, breaking: bool
) -> None:
    stage = world.stage(action)
    stage.hit, stage.held = {**stage.hit, "action": action}, held
    with Supervisor(stage.config, {}, 0, seed=1) as supervisor:
        supervisor._acting = [(stage, (_ for _ in ()))]
        assert supervisor.breaking is breaking


@pytest.mark.parametrize("act", [servers.bounce_broker, servers.bounce_postgres])
def test_a_server_that_was_shut_down_in_good_order_is_started_again_also_when_the_run_ends_before(
    world: World, act: Any
) -> None:
    for cut_short in (False, True):
        server = Server()
        acting = act(world.stage("bounce", server), 0.0)
        next(acting)
        assert (server.said, world.all[0].thawed > 0) == (["stop"], True)
        acting.close() if cut_short else run(acting)
        assert server.said == ["stop", "start"]


@pytest.mark.parametrize("cut_short", [False, True])
def test_a_session_that_stands_still_is_continued_also_when_the_run_ends_before(
    world: World, monkeypatch: pytest.MonkeyPatch, cut_short: bool
) -> None:
    said: list[str] = []
    session = SimpleNamespace(pid=11, suspend=lambda: said.append("suspend"), resume=lambda: said.append("resume"))
    monkeypatch.setattr(servers.psutil, "Process", lambda _pid: SimpleNamespace(children=lambda: [session]))
    monkeypatch.setattr(servers, "_serves", lambda *_: True)
    stage = world.stage("stop-session", Server())
    acting = servers.stop_session(stage, 3600.0 if cut_short else 0.001)
    next(acting)
    assert (said, stage.held, stage.standing) == (["suspend"], True, False)
    acting.close() if cut_short else run(acting, looks=10**6)
    assert (said, stage.held) == (["suspend", "resume"], False)
    assert world.events == ["session-stopped", "pipeline-continued", "session-continued"]


def test_where_the_pipeline_has_no_session_none_stands_still(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers.psutil, "Process", lambda _pid: SimpleNamespace(children=list))
    run(servers.stop_session(world.stage("stop-session", Server()), 0.0))
    assert world.events == ["nemesis-idle", "pipeline-continued"]


@pytest.mark.parametrize("act", [servers.stop_broker, servers.stop_postgres])
def test_a_stopped_server_is_continued_also_when_the_run_ends_before(world: World, act: Any) -> None:
    server = Server()
    stage = world.stage("stop", server)
    acting = act(stage, 3600.0)
    next(acting)
    assert (server.said, world.all[0].thawed, stage.held) == (["pause"], 1, True)
    acting.close()
    assert (server.said, stage.held) == (["pause", "resume"], False)
