"""PostgreSQL writers, which run in Python workers. Each partition is one transaction.

Promise: COPY writes the rows, and the same transaction holds what makes them exactly-once (the ledger row, the gid). A
connection exists as long as its worker process. After any error it is closed, which rolls back its transaction. Each
transaction first checks whether a newer driver has taken an epoch. The check takes no lock: a prepared transaction
would keep the lock, and the next driver would wait for it. Instead a starting driver ends the sessions of older epochs
before it lists their prepared transactions.

What can go wrong: the answer to a COMMIT is lost. The ledger, if the variant has one, then shows whether the
transaction was committed.
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
from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, NondeterministicReplay, PermanentFailure
from oncebench.delivery.failures.cause import NO_RESTART, RESTART, failure
from oncebench.delivery.failures.postgres import NEW_JOB, OF_JOBS, of_sqlstate
from oncebench.sinks.postgres import tables
from oncebench.sinks.postgres.connection import Names, connect_again, error_text, missing
from oncebench.sinks.postgres.slots import wait_for_slots

# After a lost answer to COMMIT: a server that crashed replays its log first, which takes seconds.
SETTLE_LIMIT_S = 60.0
SETTLE_PAUSE_S = 0.1
_STAGED = sql.Identifier("pg_temp", "oncebench_staged")

# One per worker process and application_name. Spark reuses worker processes for later batches.
_connections: dict[str, psycopg.Connection] = {}


def _connection(names: Names) -> psycopg.Connection:
    known = _connections.get(names.application)
    if known is None or known.closed:
        for older in [each for each in _connections if names.is_older(each)]:  # of earlier starts in this Spark session
            _connections.pop(older).close()
        known = _connections[names.application] = connect_again(names)
    return known


def _drop(names: Names) -> None:
    """Closes this process's connection: the server rolls back its open transaction."""
    known = _connections.pop(names.application, None)
    if known is not None:
        known.close()


def _commit(connection: psycopg.Connection) -> None:
    """Sends COMMIT in one message each time.

    psycopg would prepare a statement that it has sent five times. It would send the text COMMIT once more, in a message
    that commits nothing, and never again. A proxy that reads the traffic, such as the suite's, would misread this.
    """
    connection.execute("COMMIT", prepare=False)


def _refuse_fewer(taken: int, task: TaskView) -> None:
    """Raises PermanentFailure if the table took fewer rows than the task has."""
    if taken != task.counted()[0]:
        raise PermanentFailure(
            f"batch {task.batch}, partition {task.partition}: the table took {taken} of {task.counted()[0]} rows, "
            "because a trigger or rule keeps rows out; nothing of this partition was committed. "
            f"{NO_RESTART} Remove the trigger or rule, then start again."
        )


def _listed(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


@dataclass(frozen=True)
class Appender:
    """Writes with COPY and COMMIT, without a mark: at-most-once and at-least-once.

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
            raise self._failed(task, error) from error
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
        _refuse_fewer(taken, task)
        timings["copy"] = (time.perf_counter() - started) * 1000
        prepared = self._end(connection, task, names)
        timings["prepare"] = (time.perf_counter() - started) * 1000
        task.reach("after-prepare")
        return prepared, timings

    def _begin(self) -> psycopg.Connection:
        """Returns a connection with an open transaction, if this driver's epoch is the newest.

        A connection that died since the last batch is made again: nothing has been written yet.
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
        if newest is None or newest < self.names.epoch:
            raise DeliveryFailed(
                f"oncebench_epochs has epoch {newest} of sink_id {self.names.sink_id}, and this driver took "
                f"{self.names.epoch}: the table was emptied or restored. The next start takes a new epoch. {RESTART}"
            )
        if newest != self.names.epoch:
            raise AnotherDriver(
                f"another driver of {self.names.sink_id} was started (epoch {newest}); this worker belongs to epoch "
                f"{self.names.epoch} and stops. Let only one driver run per sink_id."
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

    def _failed(self, task: TaskView, error: psycopg.Error) -> DeliveryFailed:
        where = f"batch {task.batch}, partition {task.partition}"
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return DeliveryFailed(
                f"{where}: another transaction locks what this one must write ({error_text(error)}). The next start "
                f"ends those of sink_id {self.names.sink_id} (application_name {self.names.application_prefix}...); "
                f"end another's yourself (pg_stat_activity and pg_prepared_xacts list them; {OF_JOBS}). {RESTART}"
            )
        code = "" if error.sqlstate is None else f", SQLSTATE {error.sqlstate}"
        text = f"{where}: PostgreSQL did not take the rows: {error_text(error)}{code}"
        return failure(of_sqlstate(error.sqlstate), text)


@dataclass(frozen=True)
class Upserter(Appender):
    """Writes with COPY to a temporary table, then INSERT .. ON CONFLICT (row id) DO UPDATE.

    Args:
        row_id: the columns that identify a row.
        id_index: the columns or expressions of the unique index over them.
    """

    row_id: tuple[str, ...] = ()
    id_index: str = ""

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        return super().write(task, (self._with_id(batch, task) for batch in rows))

    def _with_id(self, rows: pa.RecordBatch, task: TaskView) -> pa.RecordBatch:
        """Returns the rows, each with its complete id.

        For PostgreSQL two nulls differ, so a replay would insert a row with a null in its id again.
        """
        for name in self.row_id:
            if rows.column(name).null_count:
                raise PermanentFailure(
                    f"{name!r} is null in a row of batch {task.batch}, partition {task.partition}, and an upsert needs "
                    "the id of every row. Nothing of this partition was written. Reject such rows in the query, or "
                    f"take another variant {NEW_JOB}."
                )
        return rows

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
        made = connection.execute(
            insert.format(
                sql.Identifier(self.names.table),
                _STAGED,
                cols=_listed(names),
                index=sql.SQL(self.id_index),  # of `keys.make_row_ids_unique`, names quoted
                new=new,
            )
        )
        if made.rowcount < task.counted()[0]:  # a trigger may suppress an update that changes nothing
            same = sql.SQL(" AND ").join(sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in self.row_id)
            absent = sql.SQL("SELECT count(*) FROM {} AS s WHERE NOT EXISTS (SELECT FROM {} AS t WHERE {})")
            (lost,) = connection.execute(absent.format(_STAGED, sql.Identifier(self.names.table), same)).fetchone() or (
                0,
            )
            _refuse_fewer(task.counted()[0] - lost, task)
        return super()._end(connection, task, names)


@dataclass(frozen=True)
class Marked(Appender):
    """Writes rows and ledger row in one transaction.

    The primary key of the ledger makes the write idempotent.
    """

    def _end(self, connection: psycopg.Connection, task: TaskView, _names: Sequence[str]) -> dict[str, Any]:
        mark = Mark(task.batch, *task.counted(), self.names.driver)
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
        """Whether a COMMIT without an answer took effect.

        Adding the marker once more waits until a transaction that still commits has ended.
        """
        deadline = time.monotonic() + SETTLE_LIMIT_S
        while True:
            try:
                connection = _connection(self.names)
                connection.execute("BEGIN")
                absent = tables.put_in_ledger(connection, self.names.sink_id, task.partition, mark)
                connection.execute("ROLLBACK")
                return not absent
            except (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction):  # away, or not promoted yet
                _drop(self.names)
                if time.monotonic() > deadline:
                    raise
                time.sleep(SETTLE_PAUSE_S)

    def _compare(self, there: Mark | None, made: Mark, task: TaskView) -> None:
        same = there is None or (there.rows == made.rows and there.digest in (made.digest, None))
        if there is not None and not same:
            raise NondeterministicReplay(
                f"batch {task.batch}, partition {task.partition}: the ledger has {there.rows} rows with digest "
                f"{there.digest or 0:016x}, this run made {made.rows} with {made.digest or 0:016x}. Nothing of this "
                "partition was written: rows must depend on the input alone, and no two pipelines may share a sink_id. "
                "Compare the pipeline's code and settings with those of the first run."
            )


@dataclass(frozen=True)
class Preparer(Appender):
    """Writes rows and ledger row in one transaction.

    The task prepares the transaction, and the driver commits it.

    Args:
        slots: the prepared transactions of a batch, at most.
    """

    slots: int = 1

    def _end(self, connection: psycopg.Connection, task: TaskView, _names: Sequence[str]) -> dict[str, Any]:
        mark = Mark(task.batch, *task.counted(), self.names.driver)
        if not tables.put_in_ledger(connection, self.names.sink_id, task.partition, mark):
            raise PermanentFailure(
                f"batch {task.batch}, partition {task.partition}: the ledger has this batch, and the "
                "checkpoint's journal has no decision about it. The checkpoint is another's, or was rolled back. "
                "Restore the right one, or take a new checkpoint, sink_id and output."
            )
        if (trouble := wait_for_slots(connection, self.names, self.slots)) is not None:
            raise DeliveryFailed(
                f"batch {task.batch}, partition {task.partition}: {trouble} Nothing of this batch was committed; a "
                "restart runs it again."
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
                f"a worker cannot reach PostgreSQL, but the driver could: {error_text(error)}. Compare the worker's "
                "address, login and connection limit with the driver's, then start again. No row was written."
            ) from error
        return {}, {}
