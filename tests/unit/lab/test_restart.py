"""A shared server that has ended is started again before the next run that needs it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from oncebench.errors import UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.lab import Lab
from oncebench.lab.restart import start_dead_servers
from oncebench.run import cell as module
from oncebench.scenario.cell import Cell
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.servers.kafka.cluster import KafkaCluster
from oncebench.servers.kafka.topics import Kafka

CELL = Cell("postgres", "exactly-once", "two-phase")


class Server:
    log = Path("server.log")

    def __init__(self, alive: bool = False) -> None:
        self.alive, self.starts = alive, 0

    def start(self) -> None:
        self.alive, self.starts = True, self.starts + 1


def lab(**servers: Any) -> Lab:
    return Lab(Kafka(KafkaAccess("127.0.0.1:1")), cast("Any", None), (), servers=servers)


def test_only_dead_servers_that_the_run_needs_are_started(caplog: pytest.LogCaptureFixture) -> None:
    dead, lives, unused = Server(), Server(alive=True), Server()
    start_dead_servers(CELL, lab(kafka=dead, postgres=lives, pravega=unused))
    assert (dead.starts, lives.starts, unused.starts) == (1, 0, 0)
    assert caplog.messages == ["the server kafka has ended and is started again. See server.log"]
    start_dead_servers(CELL, lab(kafka=lives, postgres=Server(), pravega=unused))
    start_dead_servers(CELL, lab(postgres=object()))  # of a package, and cannot be started again


def test_a_run_starts_dead_servers_before_it_makes_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, database = Server(), Server()

    class Reached(Exception):
        pass

    def made(*_: object) -> None:
        assert broker.alive and database.alive
        raise Reached

    monkeypatch.setattr(module, "_made", made)
    with pytest.raises(Reached):
        module.run_cell(
            CELL, lab(kafka=broker, postgres=database), tmp_path, lambda _status: None, threading.Event()
        )  # fmt: skip


class Broker(Server):
    bootstrap_servers = "127.0.0.1:1"

    def serves_at_the_second_start(self) -> None:
        if self.starts == 1:
            raise UserError("it did not serve in time")

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.alive = False


class Network:
    closed = False

    def close(self) -> None:
        self.closed = True


def test_a_cluster_that_did_not_start_keeps_its_network_for_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, network = Broker(), Network()
    monkeypatch.setattr(KafkaBroker, "begin_start", Broker.start)
    monkeypatch.setattr(KafkaBroker, "wait_until_serving", Broker.serves_at_the_second_start)
    with KafkaCluster({1: cast(KafkaBroker, broker)}, cast("Any", network)) as cluster:
        with pytest.raises(UserError, match="did not serve"):
            cluster.start()
        assert (cluster.alive, network.closed) == (False, False)
        start_dead_servers(CELL, lab(kafka=cluster))
        assert (cluster.alive, network.closed) == (True, False)
    assert (broker.alive, network.closed) == (False, True)
