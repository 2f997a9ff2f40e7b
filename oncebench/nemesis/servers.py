"""What is done to the servers beneath the pipeline: Kafka's broker and PostgreSQL, those that the suite started.

Promise: a server is back, with the same data and on the same port, when the act is over. A kill is SIGKILL: nothing is
flushed, nobody is told. What can go wrong: a server does not come back, or does not answer (`UserError`).
"""

from __future__ import annotations

from collections.abc import Generator

import psutil
from confluent_kafka import KafkaException, Producer
from kafka.errors import KafkaError

from oncebench.errors import UserError
from oncebench.nemesis.stage import Stage, pausing
from pipeline.sinks.registry import SINKS
from pipeline.wire import Coordinator

KAFKA, POSTGRES = "kafka", "postgres"
# A stranger's first request to a broker that serves: only a starved machine needs more than some ms.
HIJACK_LIMIT_S = 30.0
# States of a transaction that has not ended (ListTransactions, KIP-664).
IN_HAND = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


def kill_broker(stage: Stage, _seconds: float) -> Generator[None]:
    """The broker is killed under a pipeline that goes on, and started again."""
    yield from _bounce(stage, KAFKA, "broker")


def kill_postgres(stage: Stage, _seconds: float) -> Generator[None]:
    """PostgreSQL (the postmaster and all sessions) is killed under a pipeline that goes on, and started again."""
    yield from _bounce(stage, POSTGRES, "postgres")


def stop_broker(stage: Stage, seconds: float) -> Generator[None]:
    """The broker stands still for so long: connections stay open, and nothing answers."""
    broker = stage.servers[KAFKA]
    with stage.holding():
        broker.pause()
        stage.note("broker-stopped")
        try:
            stage.go_on()
            yield from pausing(seconds)
        finally:
            broker.resume()
            stage.note("broker-continued")


def kill_session(stage: Stage, _seconds: float) -> Generator[None]:
    """One of PostgreSQL's sessions that the pipeline uses is killed; the postmaster then ends all and recovers."""
    server = stage.servers[POSTGRES]
    ports = {port for pid in stage.child.members() for port in _ports(pid)}
    before = psutil.Process(server.pid).children()
    found = [each for each in before if _serves(each, ports)]
    if not found:
        stage.idle("the pipeline had no session open")
        stage.go_on()
        return
    with stage.holding():
        found[0].kill()
        stage.note("session-killed", pid=found[0].pid)
        try:
            stage.go_on()
            yield
        finally:
            server.wait_until_recovered(before)
            stage.note("postgres-back")


def hijack(stage: Stage, _seconds: float) -> Generator[None]:
    """A stranger takes the transactional ids of the open transactions: what is not prepared to commit is aborted, their
    producers are fenced."""
    where = stage.servers[KAFKA].bootstrap_servers
    prefix = SINKS[stage.config.sink].transactional_ids
    assert prefix is not None, "asked of sinks alone that hold Kafka transactions"
    try:
        with Coordinator({"bootstrap_servers": where}) as coordinator:
            listed = coordinator.listed(prefix(stage.config.sink_id))
    except KafkaError as error:  # kafka-python's own
        raise UserError(f"{stage.hit['fault']}: Kafka at {where} did not tell its transactions ({error})") from error
    taken = 0
    for name in (each.transactional_id for each in listed if each.state in IN_HAND):
        try:
            Producer({"bootstrap.servers": where, "transactional.id": name}).init_transactions(HIJACK_LIMIT_S)
        except KafkaException as error:
            stage.note("hijack-failed", transactional_id=name, why=error.args[0].str())
        else:
            stage.note("hijacked", transactional_id=name)
            taken += 1
    if not taken:
        stage.idle("no open transaction could be taken")
    stage.go_on()
    yield


def _bounce(stage: Stage, name: str, told: str) -> Generator[None]:
    server = stage.servers[name]
    with stage.holding():
        server.kill()
        stage.note(f"{told}-killed")
        try:
            stage.go_on()
            yield
        finally:
            server.start()
            stage.note(f"{told}-back")


def _ports(pid: int) -> set[int]:
    """The local ends of a process's TCP connections."""
    try:
        return {connection.laddr.port for connection in psutil.Process(pid).net_connections(kind="tcp")}
    except psutil.Error:
        return set()


def _serves(session: psutil.Process, ports: set[int]) -> bool:
    """Whether a process of PostgreSQL is the other end of one of these ports; its title says whose it is."""
    try:
        return any(f"({port})" in " ".join(session.cmdline()) for port in ports)
    except psutil.Error:
        return False
