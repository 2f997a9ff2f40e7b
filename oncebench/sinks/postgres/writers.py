"""PostgreSQL, the task's side: the writers that run inside Python workers. Each partition is one transaction.

Promise: rows go in by COPY, and what makes them exactly-once (the ledger row, the gid) in the same transaction. A
connection lives as long as its worker process; one that saw any error is closed, which rolls back what it had begun. At
its beginning each transaction looks whether a younger driver has taken an epoch. It takes no lock for that: a prepared
transaction would go on holding it, and its own successor would wait for it; instead a driver that starts ends the
sessions of older epochs before it looks at what they prepared.

What can go wrong: the answer to a COMMIT is lost; then the ledger says whether it was committed, where there is one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from oncebench.delivery.contract import Mark, TaskView
from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, NondeterministicReplay
from oncebench.sinks.postgres import tables
from oncebench.sinks.postgres.connection import Names, connect, error_text, missing

# After a lost answer to COMMIT: a server that crashed replays its log first, which takes seconds.
SETTLE_LIMIT_S = 60.0
SETTLE_PAUSE_S = 0.1
_STAGED = sql.Identifier("pg_temp", "oncebench_staged")

# One per worker process and application_name; processes are reused from batch to batch.
_connections: dict[str, psycopg.Connection] = {}


def _connection(names: Names) -> psycopg.Connection:
    known = _connections.get(names.application)
    if known is None or known.closed:
        known = _connections[names.application] = connect(names.application)
    return known


def _drop(names: Names) -> None:
    """Closes this process's connection: the server rolls back what was open in it."""
    known = _connections.pop(names.application, None)
    if known is not None:
        known.close()


def _commit(connection: psycopg.Connection) -> None:
    """COMMIT, in one message each time.

    psycopg would prepare what it has said five times: COMMIT then travels once as a text that commits nothing, and
    never again. Who listens between us and the server, as the suite's proxy does, would take the one for the deed.
    """
    connection.execute("COMMIT", prepare=False)


def _listed(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


@dataclass(frozen=True)
class Appender:
    """COPY and COMMIT, with no mark: at-most-once and at-least-once.

    Args:
        names: see `Names`.
        durable: whether COMMIT waits for the disk.
    """

    names: Names
    durable: bool = True

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        first = next(rows, None)
        if first is None:
            return {}, {}
        try:
            return self._write(task, first, rows)
        except psycopg.Error as error:
            _drop(self.names)
            raise DeliveryFailed(self._error_text(task, error)) from error
        except BaseException:
            _drop(self.names)
            raise

    def _write(
        self, task: TaskView, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        timings: dict[str, float] = {}
        started = time.perf_counter()
        connection = self._begin()
        timings["begin"] = (time.perf_counter() - started) * 1000
        names = first.schema.names
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(self._target(connection, names), _listed(names))
        with connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                copy.write(tables.copy_text(first))
                for batch in rest:
                    copy.write(tables.copy_text(batch))
                task.reach("before-prepare")
                started = time.perf_counter()
            taken = cursor.rowcount
        if taken != task.counted()[0]:
            raise DeliveryFailed(
                f"batch {task.batch}, partition {task.partition}: the table took {taken} of "
                f"{task.counted()[0]} rows. Something there keeps rows out, a trigger or a rule: remove it. Nothing of "
                "this partition was committed."
            )
        timings["copy"] = (time.perf_counter() - started) * 1000
        prepared = self._end(connection, task, names)
        timings["prepare"] = (time.perf_counter() - started) * 1000
        task.reach("after-prepare")
        return prepared, timings

    def _begin(self) -> psycopg.Connection:
        """A connection with a transaction open, of this driver's epoch.

        A connection that died since the last batch is made anew: nothing has been written yet.
        """
        connection = _connection(self.names)
        try:
            newest = self._newest_epoch(connection)
        except psycopg.Error as error:
            if not missing(connection, error):
                raise
            _drop(self.names)
            connection = _connection(self.names)
            newest = self._newest_epoch(connection)
        if newest != self.names.epoch:
            raise AnotherDriver(
                f"another driver of {self.names.sink_id} was started (epoch {newest}); this worker belongs to epoch "
                f"{self.names.epoch} and stops."
            )
        return connection

    def _newest_epoch(self, connection: psycopg.Connection) -> int | None:
        connection.execute("BEGIN" if self.durable else "BEGIN; SET LOCAL synchronous_commit TO off")
        return tables.newest_epoch(connection, self.names.sink_id)

    def _target(self, _connection: psycopg.Connection, _names: Sequence[str]) -> sql.Composable:
        return sql.Identifier(self.names.table)

    def _end(self, connection: psycopg.Connection, _task: TaskView, _names: Sequence[str]) -> dict[str, Any]:
        _commit(connection)
        return {}

    def _error_text(self, task: TaskView, error: psycopg.Error) -> str:
        where = f"batch {task.batch}, partition {task.partition}"
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return (
                f"{where}: another transaction holds what this one must write ({error_text(error)}): a paused driver of "
                f"sink_id {self.names.sink_id}, say. Look for it in pg_stat_activity (application_name "
                f"{self.names.application_prefix}...) and pg_prepared_xacts; a restart of the pipeline ends both."
            )
        return f"{where}: PostgreSQL did not take it: {error_text(error)}. A restart of the pipeline writes the batch again."


@dataclass(frozen=True)
class Upserter(Appender):
    """COPY to a temporary table, then INSERT .. ON CONFLICT (row id) DO UPDATE: a row that is there is overwritten.

    Args:
        row_id: the columns that identify a row.
        id_index: the expressions of the unique index over them.
    """

    row_id: tuple[str, ...] = ()
    id_index: str = ""

    def _target(self, connection: psycopg.Connection, names: Sequence[str]) -> sql.Composable:
        connection.execute(
            sql.SQL(
                "SET LOCAL client_min_messages TO warning; CREATE TEMP TABLE IF NOT EXISTS oncebench_staged "
                "ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA"
            ).format(_listed(names), sql.Identifier(self.names.table))
        )
        return _STAGED

    def _end(self, connection: psycopg.Connection, task: TaskView, names: Sequence[str]) -> dict[str, Any]:
        new = sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in names if name not in self.row_id
        )
        insert = sql.SQL("INSERT INTO {} ({cols}) SELECT {cols} FROM {} ON CONFLICT ({index}) DO UPDATE SET {new}")
        connection.execute(
            insert.format(
                sql.Identifier(self.names.table),
                _STAGED,
                cols=_listed(names),
                index=sql.SQL(self.id_index),  # made by `tables.row_id`, names quoted
                new=new,
            )
        )
        return super()._end(connection, task, names)


@dataclass(frozen=True)
class Marked(Appender):
    """Rows and ledger row in one transaction, committed by the task: idempotent by the ledger's primary key."""

    def _end(self, connection: psycopg.Connection, task: TaskView, _names: Sequence[str]) -> dict[str, Any]:
        mark = Mark(task.batch, *task.counted())
        if not tables.put_in_ledger(connection, self.names.sink_id, task.partition, mark):
            connection.execute("ROLLBACK")
            self._compare(tables.in_ledger(connection, self.names.sink_id, task.partition, task.batch), mark, task)
            return {}
        try:
            _commit(connection)
        except psycopg.Error as error:
            if not missing(connection, error):
                raise
            _drop(self.names)
            if not self._settled(task, mark):
                raise
        return {}

    def _settled(self, task: TaskView, mark: Mark) -> bool:
        """Whether a COMMIT without an answer took place.

        Putting the marker there once more waits until a transaction that is still at it has ended.
        """
        deadline = time.monotonic() + SETTLE_LIMIT_S
        while True:
            try:
                connection = _connection(self.names)
                connection.execute("BEGIN")
                absent = tables.put_in_ledger(connection, self.names.sink_id, task.partition, mark)
                connection.execute("ROLLBACK")
                return not absent
            except psycopg.OperationalError:
                _drop(self.names)
                if time.monotonic() > deadline:
                    raise
                time.sleep(SETTLE_PAUSE_S)

    def _compare(self, there: Mark | None, made: Mark, task: TaskView) -> None:
        same = there is None or (there.rows == made.rows and there.digest in (made.digest, None))
        if there is not None and not same:
            raise NondeterministicReplay(
                f"batch {task.batch}, partition {task.partition}: the ledger has {there.rows} rows with digest "
                f"{there.digest or 0:016x}, this run made {made.rows} with {made.digest or 0:016x}. Nothing of it was "
                "written. Rows must depend on the input alone, and no two pipelines may share a sink_id."
            )


@dataclass(frozen=True)
class Preparer(Appender):
    """Rows and ledger row in one transaction that the task prepares and the driver commits."""

    def _end(self, connection: psycopg.Connection, task: TaskView, _names: Sequence[str]) -> dict[str, Any]:
        mark = Mark(task.batch, *task.counted())
        if not tables.put_in_ledger(connection, self.names.sink_id, task.partition, mark):
            raise DeliveryFailed(
                f"batch {task.batch}, partition {task.partition}: the ledger says that it is committed, and there is "
                "no decision about it in this checkpoint's journal: the checkpoint is another's, or was rolled back. "
                "Restore the right one, or take a new sink_id (rows would then be written again)."
            )
        gid = self.names.fresh_gid(task.batch, task.partition)
        connection.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(gid)))
        return {"gid": gid}


@dataclass(frozen=True)
class WarmUp:
    """Makes a worker's connection before the first batch."""

    names: Names

    def write(self, _task: TaskView, _rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        try:
            _connection(self.names)
        except psycopg.Error as error:
            raise DeliveryFailed(
                f"a worker cannot reach PostgreSQL as the driver could: {error_text(error)}"
            ) from error
        return {}, {}
