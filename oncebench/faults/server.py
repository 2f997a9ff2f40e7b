"""What is done to the servers beneath the pipeline: Kafka's broker and PostgreSQL, those that the suite started.

Promise: a server is back, with the same data and on the same port, when the act is over. A kill is SIGKILL: nothing is
flushed, nobody is told. What can go wrong: a server does not come back, or does not answer (`UserError`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress

import psutil
from confluent_kafka import KafkaException, Producer
from kafka.errors import KafkaError

from oncebench.errors import UserError
from oncebench.faults.context import Stage, pausing
from oncebench.sinks.kafka.coordinator import Coordinator
from oncebench.sinks.registry import suite_sinks

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


def bounce_broker(stage: Stage, _seconds: float) -> Generator[None]:
    """The broker is shut down in good order under a pipeline that goes on, and started again."""
    yield from _bounce(stage, KAFKA, "broker", clean=True)


def bounce_postgres(stage: Stage, _seconds: float) -> Generator[None]:
    """PostgreSQL is shut down in good order, with its sessions, under a pipeline that goes on, and started again."""
    yield from _bounce(stage, POSTGRES, "postgres", clean=True)


def stop_broker(stage: Stage, seconds: float) -> Generator[None]:
    """The broker stands still for so long: connections stay open, and nothing answers."""
    yield from _stopped(stage, KAFKA, "broker", seconds)


def stop_postgres(stage: Stage, seconds: float) -> Generator[None]:
    """PostgreSQL stands still for so long, with all its sessions."""
    yield from _stopped(stage, POSTGRES, "postgres", seconds)


def kill_session(stage: Stage, _seconds: float) -> Generator[None]:
    """One of PostgreSQL's sessions that the pipeline uses is killed; the postmaster then ends all and recovers."""
    server = stage.servers[POSTGRES]
    before = psutil.Process(server.pid).children()
    if (session := _session(stage, before)) is None:
        stage.go_on()
        return
    with stage.holding():
        session.kill()
        stage.note("session-killed", pid=session.pid)
        try:
            stage.go_on()
            yield
        finally:
            server.wait_until_recovered(before)
            stage.note("postgres-back")


def stop_session(stage: Stage, seconds: float) -> Generator[None]:
    """One of PostgreSQL's sessions that the pipeline uses stands still for so long, with its locks."""
    session = _session(stage, psutil.Process(stage.servers[POSTGRES].pid).children())
    if session is None:
        stage.go_on()
        return
    with stage.holding():
        session.suspend()
        stage.note("session-stopped", pid=session.pid)
        try:
            stage.go_on()
            yield from pausing(seconds)
        finally:
            with suppress(psutil.NoSuchProcess):  # a postmaster that ended meanwhile has ended it
                session.resume()
            stage.note("session-continued", pid=session.pid)


def hijack(stage: Stage, _seconds: float) -> Generator[None]:
    """A stranger takes the transactional ids of the open transactions: what is not prepared to commit is aborted, their
    producers are fenced."""
    where = stage.servers[KAFKA].bootstrap_servers
    prefix = suite_sinks()[stage.config.sink].transactional_ids
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


def _stopped(stage: Stage, name: str, told: str, seconds: float) -> Generator[None]:
    server = stage.servers[name]
    with stage.holding():
        server.pause()
        stage.note(f"{told}-stopped")
        try:
            stage.go_on()
            yield from pausing(seconds)
        finally:
            server.resume()
            stage.note(f"{told}-continued")


def _bounce(stage: Stage, name: str, told: str, clean: bool = False) -> Generator[None]:
    server = stage.servers[name]
    with stage.holding():
        if clean:
            server.stop()
        else:
            server.kill()
        stage.note(f"{told}-{'ended' if clean else 'killed'}")
        try:
            stage.go_on()
            yield
        finally:
            server.start()
            stage.note(f"{told}-back")


def _session(stage: Stage, sessions: Sequence[psutil.Process]) -> psutil.Process | None:
    """Of PostgreSQL's sessions one that the pipeline uses; None, and the act is idle, if it uses none."""
    ports = {port for pid in stage.child.members() for port in _ports(pid)}
    found = [each for each in sessions if _serves(each, ports)]
    if not found:
        stage.idle("the pipeline had no session open")
    return found[0] if found else None


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
