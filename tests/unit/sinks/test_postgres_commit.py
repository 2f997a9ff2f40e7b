"""A COMMIT without an answer, over a server in memory.

A task returns only if its rows are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pyarrow as pa
import pytest

from oncebench.delivery.contract import Mark, Writer
from oncebench.delivery.errors import DeliveryFailed
from oncebench.sinks.postgres import tables, writers
from oncebench.sinks.postgres.connection import Names
from oncebench.sinks.postgres.writers import Appender, Marked, Upserter

NAMES = Names("s", 1, "rows")
WRITERS: dict[str, Writer] = {
    "claim": Appender(NAMES, durable=False),
    "acknowledged": Appender(NAMES),
    "upsert": Upserter(NAMES, row_id=("key",), id_index='"key"'),
    "idempotent": Marked(NAMES),
}


@dataclass
class Server:
    """What outlives a connection.

    Attributes:
        takes_effect: whether the COMMIT whose answer is lost does.
        away: how many connections fail after it.
        failure: how they fail.
    """

    takes_effect: bool
    away: int = 0
    failure: psycopg.Error = field(default_factory=lambda: psycopg.OperationalError("the system is starting up"))
    visible: int = 0
    marks: list[Mark] = field(default_factory=list)
    lost: bool = False

    def connect(self, _names: Names) -> Session:
        if self.lost and self.away:
            self.away -= 1
            raise self.failure
        return Session(self)


class Session:
    """One connection, with one open transaction."""

    def __init__(self, server: Server) -> None:
        self.server, self.closed, self.rows, self.marks = server, False, 0, list[Mark]()
        self.rowcount = 1

    def execute(self, statement: Any, _values: Any = None, **_: Any) -> Session:
        if statement == "COMMIT" and not self.server.lost:
            self.server.lost = self.closed = True
            if self.server.takes_effect:
                self.server.visible += self.rows
                self.server.marks += self.marks
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        assert statement != "COMMIT", "a second COMMIT"
        return self

    def close(self) -> None:
        self.closed = True

    @contextmanager
    def cursor(self) -> Iterator[Session]:
        yield self

    @contextmanager
    def copy(self, _statement: Any) -> Iterator[Session]:
        yield self

    def write(self, _text: Any) -> None:
        self.rows += 1


def put_in_ledger(session: Any, _sink_id: str, _partition: int, mark: Mark) -> bool:
    session.marks.append(mark)
    return mark not in session.server.marks


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server(takes_effect=False)
    monkeypatch.setattr(writers, "connect_again", made.connect)
    monkeypatch.setattr(writers, "_connections", {})
    monkeypatch.setattr(writers, "SETTLE_PAUSE_S", 0.0)
    monkeypatch.setattr(tables, "newest_epoch", lambda *_: NAMES.epoch)
    monkeypatch.setattr(tables, "put_in_ledger", put_in_ledger)
    return made


def write(variant: str) -> None:
    task = SimpleNamespace(batch=7, partition=1, reach=lambda _point: None, counted=lambda: (1, 5))
    WRITERS[variant].write(cast("Any", task), iter([pa.record_batch({"key": ["k"]})]))


@pytest.mark.parametrize("away", [0, 1, 3])
@pytest.mark.parametrize("variant", WRITERS)
def test_a_commit_that_did_not_take_effect_fails_the_task(server: Server, variant: str, away: int) -> None:
    server.away = away
    with pytest.raises(DeliveryFailed, match=r"^batch 7, partition 1: PostgreSQL did not take the rows: "):
        write(variant)
    assert (server.lost, server.visible) == (True, 0)


@pytest.mark.parametrize("away", [0, 1, 3])
def test_only_a_mark_shows_that_a_commit_took_effect(server: Server, away: int) -> None:
    server.takes_effect, server.away = True, away
    write("idempotent")
    assert (server.visible, len(server.marks)) == (1, 1)


@pytest.mark.parametrize("variant", ["claim", "acknowledged", "upsert"])
def test_a_commit_that_took_effect_fails_a_task_that_has_no_mark(server: Server, variant: str) -> None:
    """At-least-once then writes again; at-most-once drains."""
    server.takes_effect = True
    with pytest.raises(DeliveryFailed):
        write(variant)


def test_a_standby_that_is_promoted_late_does_not_end_the_wait_for_a_commit(server: Server) -> None:
    server.takes_effect, server.away = True, 3
    server.failure = psycopg.errors.ReadOnlySqlTransaction("the server is a standby")
    write("idempotent")
    assert (server.visible, len(server.marks)) == (1, 1)


def test_a_server_that_stays_away_fails_the_task(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "SETTLE_LIMIT_S", 0.0)
    server.takes_effect, server.away = True, 10**6
    with pytest.raises(DeliveryFailed, match="starting up"):
        write("idempotent")
