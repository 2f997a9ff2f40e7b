"""Kills, stops or restarts the servers that the suite started: Kafka and PostgreSQL.

Promise: the server is back when the fault ends, with the same data and on the same port. A kill is SIGKILL: the server
flushes nothing and notifies no client.

Failure modes: a server does not come back, or does not answer (`UserError`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress

import psutil
from confluent_kafka import KafkaException, Producer
from kafka.errors import KafkaError

from oncebench.errors import UserError
from oncebench.faults.context import FaultContext, pausing
from oncebench.processes import child
from oncebench.record import events
from oncebench.sinks.kafka.coordinator import Coordinator, Transaction
from oncebench.sinks.kafka.names import generation_of
from oncebench.sinks.registry import suite_sinks

KAFKA, POSTGRES = "kafka", "postgres"
# The first request of a new producer to a healthy broker takes some milliseconds, except on a starved machine.
HIJACK_LIMIT_S = 30.0
# States of a transaction that has not ended (ListTransactions, KIP-664).
IN_HAND = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


def kill_broker(context: FaultContext, _seconds: float) -> Generator[None]:
    """Kills the broker while the pipeline runs, and starts it again."""
    yield from _restart_server(context, KAFKA, events.BROKER_KILLED, events.BROKER_BACK)


def kill_postgres(context: FaultContext, _seconds: float) -> Generator[None]:
    """Kills PostgreSQL with all its sessions while the pipeline runs, and starts it again."""
    yield from _restart_server(context, POSTGRES, events.POSTGRES_KILLED, events.POSTGRES_BACK)


def bounce_broker(context: FaultContext, _seconds: float) -> Generator[None]:
    """Shuts the broker down cleanly while the pipeline runs, and starts it again."""
    yield from _restart_server(context, KAFKA, events.BROKER_ENDED, events.BROKER_BACK, clean=True)


def bounce_postgres(context: FaultContext, _seconds: float) -> Generator[None]:
    """Shuts PostgreSQL down cleanly while the pipeline runs, and starts it again."""
    yield from _restart_server(context, POSTGRES, events.POSTGRES_ENDED, events.POSTGRES_BACK, clean=True)


def stop_broker(context: FaultContext, seconds: float) -> Generator[None]:
    """Stops the broker for `seconds`: connections stay open, and nothing answers."""
    yield from _stop_server(context, KAFKA, seconds, events.BROKER_STOPPED, events.BROKER_CONTINUED)


def stop_postgres(context: FaultContext, seconds: float) -> Generator[None]:
    """Stops PostgreSQL with all its sessions for `seconds`."""
    yield from _stop_server(context, POSTGRES, seconds, events.POSTGRES_STOPPED, events.POSTGRES_CONTINUED)


def kill_session(context: FaultContext, _seconds: float) -> Generator[None]:
    """Kills one PostgreSQL session of the pipeline.

    The postmaster then ends all sessions and recovers.
    """
    server = context.servers[POSTGRES]
    before = psutil.Process(server.pid).children()
    if (session := _session(context, before)) is None:
        context.resume_pipeline()
        return
    with context.without_restarts():
        session.kill()
        try:
            context.note(events.SESSION_KILLED, pid=session.pid)
            context.resume_pipeline()
            yield
        finally:
            server.wait_until_recovered(before)
            context.note(events.POSTGRES_BACK)


def stop_session(context: FaultContext, seconds: float) -> Generator[None]:
    """Stops one PostgreSQL session of the pipeline, with its locks, for `seconds`."""
    session = _session(context, psutil.Process(context.servers[POSTGRES].pid).children())
    if session is None:
        context.resume_pipeline()
        return
    with context.without_restarts():
        try:
            child.suspend(session)
            context.note(events.SESSION_STOPPED, pid=session.pid)
            context.resume_pipeline()
            yield from pausing(seconds)
        finally:
            with suppress(psutil.NoSuchProcess):  # if the postmaster ended meanwhile, it has ended the session
                child.resume(session)
            context.note(events.SESSION_CONTINUED, pid=session.pid)


def hijack(context: FaultContext, _seconds: float) -> Generator[None]:
    """Another producer takes over the transactional ids of the open transactions.

    Kafka fences the pipeline's producers and aborts every transaction that is not prepared to commit.
    """
    where = context.servers[KAFKA].bootstrap_servers
    prefix = suite_sinks()[context.config.sink].transactional_ids
    assert prefix is not None, "why_not_applicable excludes sinks without Kafka transactions"
    try:
        with Coordinator({"bootstrap_servers": where}) as coordinator:
            names = in_hand(coordinator.listed(prefix(context.config.sink_id), complete=True), context.config.sink_id)
    except KafkaError as error:  # of kafka-python, not of confluent_kafka
        raise UserError(f"{context.hit['fault']}: Kafka at {where} did not list its transactions ({error})") from error
    taken = 0
    for name in names:
        try:
            other = Producer({"bootstrap.servers": where, "transactional.id": name, "log_level": 0})
            other.init_transactions(HIJACK_LIMIT_S)
        except KafkaException as error:
            context.note(events.HIJACK_FAILED, transactional_id=name, why=error.args[0].str())
        else:
            context.note(events.HIJACKED, transactional_id=name)
            taken += 1
    if not taken:
        context.idle("no open transaction could be taken")
    context.resume_pipeline()
    yield


def in_hand(transactions: Sequence[Transaction], sink_id: str) -> list[str]:
    """Returns the newest driver's transactional ids whose transaction has not ended.

    Kafka also lists the ids of older drivers: a start fences them, and no producer uses them again. Ids of other
    engines have no generation, and count as those of one driver.
    """
    generations = {each: generation_of(sink_id, each.transactional_id) or 0 for each in transactions}
    newest = max(generations.values(), default=0)
    return sorted(
        each.transactional_id
        for each, generation in generations.items()
        if generation == newest and each.state in IN_HAND
    )


def _stop_server(context: FaultContext, name: str, seconds: float, stopped: str, continued: str) -> Generator[None]:
    server = context.servers[name]
    with context.without_restarts():
        try:
            server.pause()
            context.note(stopped)
            context.resume_pipeline()
            yield from pausing(seconds)
        finally:
            server.resume()
            context.note(continued)


def _restart_server(context: FaultContext, name: str, ended: str, back: str, clean: bool = False) -> Generator[None]:
    server = context.servers[name]
    with context.without_restarts():
        if clean:
            server.stop()
        else:
            server.kill()
        try:
            context.note(ended)
            context.resume_pipeline()
            yield
        finally:
            server.start()
            context.note(back)


def _session(context: FaultContext, sessions: Sequence[psutil.Process]) -> psutil.Process | None:
    """A PostgreSQL session that the pipeline uses; idle and None without one."""
    ports = {port for pid in context.members() for port in _ports(pid)}
    found = [each for each in sessions if _serves(each, ports)]
    if not found:
        context.idle("the pipeline had no session open")
    return found[0] if found else None


def _ports(pid: int) -> set[int]:
    """The local ports of a process's TCP connections."""
    try:
        return {connection.laddr.port for connection in psutil.Process(pid).net_connections(kind="tcp")}
    except psutil.Error:
        return set()


def _serves(session: psutil.Process, ports: set[int]) -> bool:
    """Whether a PostgreSQL process serves a client at one of these ports.

    The process title contains the client's port.
    """
    try:
        return any(f"({port})" in " ".join(session.cmdline()) for port in ports)
    except psutil.Error:
        return False
