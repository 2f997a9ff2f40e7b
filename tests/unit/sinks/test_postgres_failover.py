"""A server that is replaced, falls silent, or refuses a login or a fence.

The tests use servers in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pyarrow as pa
import pytest

from oncebench.delivery.errors import CommitUncertain, DeliveryFailed, NoPostgres, RefusedStart
from oncebench.sinks.postgres import connection as connections
from oncebench.sinks.postgres import fencing, tables, writers
from oncebench.sinks.postgres import sink as driver
from oncebench.sinks.postgres.connection import SILENCE_LIMIT_MS, VARIABLE, Names, connect
from oncebench.sinks.postgres.sink import PostgresSink
from oncebench.sinks.postgres.starting.refusals import unusable
from oncebench.sinks.postgres.writers import Marked

NAMES = Names("s", 1, "rows", server="71:00000001")


@dataclass
class Server:
    """One server.

    Attributes:
        lineage: its system identifier and timeline; empty: no role may read it.
        standby: whether it takes no writes yet.
        dead: whether each statement fails.
    """

    lineage: str = "71:00000001"
    standby: bool = False
    dead: bool = False
    statements: list[str] = field(default_factory=list)


class Session:
    """A connection to one server."""

    def __init__(self, server: Server) -> None:
        self.server, self.closed, self.rowcount, self._row = server, False, 1, (None,)

    def execute(self, statement: Any, _values: Any = None, **_: Any) -> Session:
        if self.server.dead:
            self.closed = True
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        system, _, timeline = self.server.lineage.partition(":")
        text = str(statement)
        answers: dict[str, Any] = {
            "recovery": self.server.standby, "system_identifier": system, "walfile": timeline,
        }  # fmt: skip
        asked = next((answer for word, answer in answers.items() if word in text), None)
        if asked is None:
            self.server.statements.append(text)
        if asked == "":
            raise psycopg.errors.InsufficientPrivilege("permission denied for function")
        self._row = (asked,)
        return self

    def fetchone(self) -> tuple[Any]:
        return self._row

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None: ...

    def cursor(self) -> Session:
        return self

    def copy(self, _statement: Any) -> Session:
        return self

    def write(self, _text: Any) -> None: ...

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    """The servers behind one address; the last one answers."""
    servers = [Server()]
    monkeypatch.setattr(connections, "connect", lambda _application: Session(servers[-1]))
    monkeypatch.setattr(writers, "_connections", {})
    monkeypatch.setattr(driver, "COMMIT_PAUSE_S", 0.0)
    monkeypatch.setattr(driver, "COMMIT_LIMIT_S", 0.05)
    monkeypatch.setattr(Marked, "_newest_epoch", lambda self, session: session.execute("BEGIN") and self.names.epoch)
    monkeypatch.setattr(tables, "put_in_ledger", lambda *_: True)
    return servers


def write(batch: int, names: Names = NAMES) -> None:
    task = SimpleNamespace(batch=batch, partition=0, reach=lambda _point: None, counted=lambda: (1, 5))
    Marked(names).write(cast("Any", task), iter([pa.record_batch({"key": ["k"]})]))


def committing(names: Names = NAMES) -> PostgresSink:
    sink = PostgresSink("rows", "s", 1)
    sink._names = names
    return sink


def take_over(address: list[Server], by: Server) -> None:
    address[-1].dead = True
    address.append(by)


@pytest.mark.parametrize("lineage", ["71:00000002", "72:00000001", ":00000002"])
def test_a_job_writes_nothing_to_a_server_that_took_over(address: list[Server], lineage: str) -> None:
    write(1)
    assert "COMMIT" in address[0].statements
    take_over(address, Server(lineage))
    with pytest.raises(DeliveryFailed, match=rf"\(was 71:00000001, now {lineage}\).* Start again: ") as failed:
        write(2)
    assert failed.value.restart_helps
    with pytest.raises(DeliveryFailed, match="a standby took over"):
        committing().commit(2, {0: {"gid": "g"}})
    assert address[-1].statements == []


@pytest.mark.parametrize("lineage", ["71:00000001", "71:", ":00000001", ":"])
def test_a_job_goes_on_with_the_server_that_comes_back(address: list[Server], lineage: str) -> None:
    """A crash alone begins no timeline, and a part that cannot be read is not compared."""
    write(1)
    take_over(address, Server(lineage))
    write(2)
    assert committing().commit(2, {0: {"gid": "g"}}) == set()
    assert "COMMIT" in address[-1].statements


def test_at_most_once_goes_on_because_its_batch_would_be_dropped(address: list[Server]) -> None:
    names = replace(NAMES, server="")
    write(1, names)
    take_over(address, Server("71:00000002"))
    write(2, names)
    assert "COMMIT" in address[-1].statements


def test_a_session_of_a_standby_is_not_used_because_it_outlives_the_promotion(address: list[Server]) -> None:
    take_over(address, Server(standby=True))
    with pytest.raises(DeliveryFailed, match="a standby"):
        write(1)
    with pytest.raises(CommitUncertain, match="the server is a standby"):
        committing().commit(1, {0: {"gid": "g"}})
    assert address[-1].statements == []


def test_a_commit_that_waited_for_a_cut_network_is_tried_once_more(
    address: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    clock, healthy = [0.0], Session(Server())

    class Silent(Session):
        def execute(self, *_: Any, **__: Any) -> Session:
            clock[0] += SILENCE_LIMIT_MS / 1000 + 0.02
            self.closed = True
            raise psycopg.OperationalError("could not receive data from server: Connection timed out")

    sessions = iter([Silent(Server()), healthy])
    monkeypatch.setattr(connections, "connect", lambda _: next(sessions))
    monkeypatch.setattr(driver, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda _: None))
    assert committing(replace(NAMES, server="")).commit(7, {0: {"gid": "g"}}) == set()
    assert len(healthy.server.statements) == 1


def test_idle_connections_are_kept_alive_as_the_dsn_says_or_each_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(psycopg, "connect", lambda _dsn, **more: given.update(more) or Session(Server()))
    connect("test", "host=db1 keepalives_count=5")
    assert (given["keepalives_idle"], given["keepalives_interval"]) == (30, 10)
    assert "keepalives_count" not in given


def test_a_worker_keeps_one_connection_however_often_its_job_starts_again(address: list[Server]) -> None:
    other = replace(NAMES, sink_id="other")
    for names in (NAMES, other, replace(NAMES, epoch=2), replace(NAMES, epoch=3)):
        write(1, names)
    assert list(writers._connections) == [other.application, replace(NAMES, epoch=3).application]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('FATAL:  password authentication failed for user "u"', RefusedStart),
        ("SSL error: certificate verify failed", RefusedStart),
        ('server certificate for "db" does not match host name "db1"', RefusedStart),
        ("server does not support SSL, but SSL was required", RefusedStart),
        ("FATAL:  Passwort-Authentifizierung für Benutzer »u« fehlgeschlagen", NoPostgres),
        ("FATAL:  the database system is starting up", NoPostgres),
        ("connection refused", NoPostgres),
    ],
)
def test_a_login_that_never_succeeds_is_refused_and_one_in_another_language_names_the_role(
    monkeypatch: pytest.MonkeyPatch, text: str, kind: type[Exception]
) -> None:
    monkeypatch.setenv(VARIABLE, "host=db1")
    error = unusable(psycopg.OperationalError(f"connection failed: {text}"))
    assert type(error) is kind
    assert ("pg_hba.conf" in str(error)) == (kind is RefusedStart or "FATAL" in text)


def test_a_session_that_is_slow_to_end_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that replays its log, or whose disk stalls, ends it later.

    A missing right stays missing.
    """
    monkeypatch.setattr(fencing, "FENCE_LIMIT_S", 0.0)
    monkeypatch.setattr(fencing, "FENCE_PAUSE_S", 0.0)
    monkeypatch.setattr(fencing, "sessions", lambda *_: [(7, replace(NAMES, epoch=1).application, "")])
    newer = replace(NAMES, epoch=2)
    with pytest.raises(NoPostgres, match=r"\(pid 7\).* then start again"):
        fencing.end_older(cast("Any", SimpleNamespace(execute=lambda *_: None)), newer)

    def refuse(*_: Any) -> None:
        raise psycopg.errors.InsufficientPrivilege("permission denied to terminate process")

    with pytest.raises(RefusedStart, match=r"\(pid 7\).*pg_signal_backend"):
        fencing.end_older(cast("Any", SimpleNamespace(execute=refuse)), newer)
