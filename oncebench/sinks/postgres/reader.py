"""PostgreSQL's committed reader: returns each row once, as soon as a SELECT can see it.

Rows do not become visible in the order of their ids, nor of their transactions' numbers. Each poll therefore asks for
the rows that the present snapshot sees and the previous one did not: rows of transactions that had not ended then
(column `tx`, indexed). While the snapshot is unchanged, there is nothing to ask for. A row's position is its id, in one
partition.

Promise: a row that is committed late with a smaller id is not missed. A row that an upsert overwrites with itself is
not returned again. What can go wrong: a transaction that stays open or prepared for long makes each poll slower, never
wrong. Without `track_commit_timestamp`, a row's time of commit is the time of the poll that found it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import generators, sql
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from oncebench.delivery.errors import ReadError
from oncebench.sinks.postgres import tables
from oncebench.sinks.postgres.connection import Names, connect, error_text
from oncebench.sinks.reader import NotAnsweredError, Rows, Snapshots, now_us, rows_of

PAGE = 10_000  # rows held in memory at a time: some 10 MB
# How long the reader retries while the server is away: a crash and the replay of its log take seconds.
AWAY_LIMIT_S = 60.0
# The snapshot that has seen no transaction (1 and 2 are the server's own, rows begin at 3).
NOTHING_SEEN = "3:3:"
SNAPSHOT = b"snapshot"  # the name of the statement that returns the present snapshot


class Table:
    """Polls a table that has the suite's columns `id` and `tx`.

    Args:
        names: see `Names`.
        columns: of a row.
        texts: the columns that hold text.
        key: the column that is the key of a row.
    """

    def __init__(self, names: Names, columns: Sequence[str], texts: Sequence[str], key: str) -> None:
        self._names = names
        self._columns, self._texts, self._key = list(columns), list(texts), key
        self._seen = NOTHING_SEEN
        self._pages: Generator[Rows, None, None] | None = None
        self._given: set[int] = set()  # ids that an unfinished poll has returned: the poll may have to begin again
        self._away_since: float | None = None
        try:
            self._connection = self._connect()
            self._connection.execute(sql.SQL("SELECT FROM {} LIMIT 0").format(sql.Identifier(names.table)))
            self._connection.rollback()
        except psycopg.Error as error:
            raise ReadError(f"table {names.table!r} cannot be read: {error_text(error)}") from error

    def fresh(self) -> Rows:
        """Returns the rows that became visible since the last call.

        Raises:
            NotAnsweredError: the server is away, and may come back.
            ReadError: the server has been away for too long, or the table cannot be read.
        """
        try:
            if self._connection.closed:
                self._connection = self._connect()
            rows = self._fresh()
        except psycopg.OperationalError as error:
            self._wait_for(error)
            raise NotAnsweredError from error
        except psycopg.Error as error:
            raise ReadError(f"table {self._names.table!r} cannot be read further: {error_text(error)}") from error
        self._away_since = None
        return rows

    def leftovers(self) -> list[str]:
        """Lists the sink_id's prepared transactions that are neither committed nor rolled back."""
        if self._connection.closed:
            self._connection = self._connect()
        return [f"prepared transaction {gid}" for gid in prepared(self._connection, self._names)]

    def close(self) -> None:
        """Closes the connection, also in the middle of a poll."""
        if self._pages is not None:
            with suppress(psycopg.Error):  # the server may have stopped before
                self._pages.close()
        self._connection.close()

    def _connect(self) -> psycopg.Connection:
        connection = connect(f"oncebench.reader.{self._names.table[:40]}")
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # one snapshot for all pages of a poll
        # The planner has no statistics of a new table, and would read all of it each time.
        connection.execute("SET enable_seqscan = off")
        row = connection.execute("SHOW track_commit_timestamp").fetchone()
        dated = row is not None and row[0] == "on"
        when = "(extract(epoch FROM pg_xact_commit_timestamp(tx::xid)) * 1000)::bigint" if dated else "NULL::bigint"
        self._query = sql.SQL(
            "SELECT {columns}, id, {when} FROM {table} WHERE tx >= pg_snapshot_xmin({seen}::pg_snapshot) "
            "AND NOT pg_visible_in_snapshot(tx, {seen}::pg_snapshot)"
        ).format(
            columns=sql.SQL(", ").join(map(sql.Identifier, self._columns)),
            when=sql.SQL(when),
            table=sql.Identifier(self._names.table),
            seen=sql.Placeholder("seen"),
        )
        _checked(connection.pgconn, connection.pgconn.prepare(SNAPSHOT, b"SELECT pg_current_snapshot()::text"))
        return connection

    def _fresh(self) -> Rows:
        rows = None if self._pages is None else next(self._pages, None)
        if rows is None:
            self._pages = None
            if self._snapshot() == self._seen:
                return Rows()
            self._pages = self._new_pages()
            rows = next(self._pages, None)
        return Rows() if rows is None else rows

    def _new_pages(self) -> Generator[Rows, None, None]:
        with self._connection.transaction():
            now = self._snapshot()
            with self._connection.cursor(name="rows") as cursor:
                cursor.execute(self._query, {"seen": self._seen})
                while page := cursor.fetchmany(PAGE):
                    seen_us = now_us()
                    rows = self._rows([row for row in page if row[-2] not in self._given], seen_us)
                    self._given.update(rows.offset)
                    if len(rows):
                        yield rows
        self._seen = now
        self._given.clear()

    def _rows(self, page: Sequence[tuple[Any, ...]], seen_us: int) -> Rows:
        rows = [dict(zip(self._columns, row, strict=False)) for row in page]
        for row in rows:
            row |= {name: tables.read_back(row[name]) for name in self._texts if row[name] is not None}
        return rows_of(
            [(0, row[-2]) for row in page], [row[-1] or seen_us // 1000 for row in page], rows, self._key, seen_us
        )

    def _snapshot(self) -> str:
        # Called many times a second, so it calls libpq: a cursor's execute and fetch take several times as long.
        # psycopg waits for the answer, because libpq would block signals.
        pgconn = self._connection.pgconn
        pgconn.send_query_prepared(SNAPSHOT, ())
        (result,) = self._connection.wait(generators.execute(pgconn))
        snapshot = _checked(pgconn, result).get_value(0, 0)
        assert snapshot is not None, "a SELECT without FROM gives one row, and a snapshot is never null"
        return snapshot.decode()

    def _wait_for(self, error: psycopg.Error) -> None:
        """Raises ReadError once the server has been away for too long."""
        self._pages = None
        self._connection.close()
        now = time.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        if now - self._away_since > AWAY_LIMIT_S:
            raise ReadError(
                f"table {self._names.table!r} cannot be read: for {AWAY_LIMIT_S:g} s PostgreSQL has not answered "
                f"({error_text(error)}). Check the server, then run again."
            ) from error


def _checked(pgconn: PGconn, result: PGresult) -> PGresult:
    if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        raise psycopg.OperationalError(pgconn.get_error_message())
    return result


def prepared(connection: psycopg.Connection, names: Names) -> list[str]:
    """Returns the gids of this sink_id's prepared transactions in this database, oldest first."""
    rows = connection.execute(
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, %s) "
        "ORDER BY prepared",
        (names.gid_prefix,),
    ).fetchall()
    return [gid for (gid,) in rows]


def read(target: Mapping[str, Any]) -> Snapshots:
    """Returns a committed reader of a target; see `SuiteSink.read`."""
    table = Table(Names(target["sink_id"], 0, target["output"]), target["columns"], target["texts"], target["key"])
    return Snapshots(table.fresh, table.leftovers, table.close)
