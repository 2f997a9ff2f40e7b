"""The PostgreSQL sink's driver side: guarantees, COMMIT PREPARED, fencing and marks.

COPY writes the rows, one transaction per partition. At-most-once does not wait for the disk at COMMIT. The other
guarantees wait, even if role, database or server set `synchronous_commit = off`. They refuse a server that forces
nothing to the disk (`fsync = off`). Exactly-once has three variants:

* two-phase: a task writes its rows and a ledger row in one transaction and prepares it (PREPARE TRANSACTION survives a
  crash of client and server). The driver decides and commits each transaction from its own session. If a transaction
  does not exist, the ledger row answers: it exists if, and only if, the transaction was committed.
* idempotent: a task commits its rows together with the ledger row, whose primary key refuses the same batch again.
* upsert: a replay overwrites each row by its row id. It needs no ledger, but a unique index and a second copy of each
  row.

Fencing: a start takes the next epoch of its sink_id and ends the sessions of older epochs. It then rolls back their
prepared transactions that no decision names, whose locks would block the replay.

What can go wrong: the role may not end another role's sessions, and the start is refused with their pids;
max_prepared_transactions is 0, PostgreSQL's default.

The baseline (`native`) is Spark's JDBC writer in foreachBatch, also in runs without faults, because Spark has no
streaming sink for JDBC. It leaves rejected records out and does not write them anywhere.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from oncebench.delivery import quarantine
from oncebench.delivery.contract import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    WHOLE_BATCH,
    Holder,
    Mark,
    Sink,
    SinkKind,
    SinkSettings,
    Support,
)
from oncebench.delivery.errors import AnotherDriver, CommitRefused, CommitUncertain, NoPostgres, RefusedStart
from oncebench.delivery.failures.cause import not_claimed
from oncebench.delivery.failures.postgres import NEW_JOB, of_sqlstate
from oncebench.delivery.quarantine import without_rejected
from oncebench.sinks.postgres import tables
from oncebench.sinks.postgres.connection import (
    LIBPQ,
    SILENCE_LIMIT_MS,
    VARIABLE,
    Names,
    connect_again,
    dsn,
    error_text,
    lineage,
    missing,
    parts,
)
from oncebench.sinks.postgres.fencing import end_older, roll_back_orphans
from oncebench.sinks.postgres.left import LEFT_OPEN
from oncebench.sinks.postgres.reader import prepared as prepared_of
from oncebench.sinks.postgres.starting import keys, preparing
from oncebench.sinks.postgres.starting.refusals import (
    check_table,
    refuse_row_security,
    refuse_unique_rows,
    unusable,
    warn_of_foreign,
)
from oncebench.sinks.postgres.writers import Appender, Marked, Preparer, Upserter, WarmUp

OLDEST_SERVER = 130000  # the reader needs xid8 and pg_current_xact_id, new in version 13
# How long a commit retries before a restart must finish it: the first attempt may only notice that the network was cut,
# and a server that crashed, or is replaced by a standby, is back within a minute.
COMMIT_LIMIT_S = SILENCE_LIMIT_MS / 1000 + 60.0
COMMIT_PAUSE_S = 0.05
# libpq's settings of TLS that Java's driver has too, and the variables that libpq takes them from.
_TLS = {"sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT", "sslcert": "PGSSLCERT", "sslkey": "PGSSLKEY"}
_log = logging.getLogger(__name__)


SUPPORTS = (
    Support(AT_MOST_ONCE, "claim", "claim, then COPY; COMMIT does not wait for the disk", default=True),
    Support(AT_LEAST_ONCE, "acknowledged", "COPY and COMMIT per task", default=True),
    Support(AT_LEAST_ONCE, "native", "Spark's JDBC writer in foreachBatch, as shipped"),
    Support(EXACTLY_ONCE, "two-phase", "tasks PREPARE TRANSACTION, the driver decides and commits", default=True),
    Support(EXACTLY_ONCE, "idempotent", "a transaction per task with the batch's ledger row in it"),
    Support(EXACTLY_ONCE, "upsert", "INSERT .. ON CONFLICT (row id) DO UPDATE"),
)
# The variants that write with INSERT, which must not fill an identity column. The others write with COPY.
INSERTING = frozenset({"native", "upsert"})


class PostgresSink(Sink):
    """Writes rows to one table.

    Args:
        table: the output table.
        sink_id: names this sink in the server; two pipelines must not share it.
        partitions: tasks per batch.
        row_id: the columns that identify a row, for the variant `upsert`.
        driver: random name of this start; empty: a new one.
    """

    def __init__(self, table: str, sink_id: str, partitions: int, row_id: Sequence[str] = (), driver: str = "") -> None:
        self.partitions = partitions
        self._row_id = tuple(row_id)
        self._schema = StructType()
        self._names = Names(sink_id, 0, table, driver or uuid.uuid4().hex)
        self._variant, self._id_index = "", ""
        self._open: psycopg.Connection | None = None
        self._marks: dict[int, Mark] = {}
        self._decided: dict[int, str] = {}  # partition -> prepared transaction of the newest decided batch

    def check_schema(self, schema: StructType) -> None:
        """See `Sink.check_schema`; checks the sink_id too, and `start` checks the table itself."""
        self._names.check()
        wrong = tables.unsupported(schema)
        if wrong is not None:
            raise RefusedStart(f"rows for table {self._names.table!r}: {wrong}")
        self._schema = StructType([field for field in schema if field.name != quarantine.COLUMN])

    def holder(self) -> Holder | None:
        try:
            self._refuse_row_security()
            return tables.holder(self._connection(), self._names.sink_id)
        except psycopg.Error as error:
            raise unusable(error) from error

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, Any]]) -> None:
        """See `Sink.start`: checks settings, takes an epoch, fences older drivers, reads the marks.

        The server counts epochs itself, because `generation` begins again with each checkpoint.
        """
        del generation
        self._variant = support.variant
        try:
            connection = self._connection()
            self._check(connection, support)
            self._refuse_row_security()
            if support.guarantee != AT_MOST_ONCE:  # before the markers are read: later connections are compared with it
                self._names = replace(self._names, server=lineage(connection))
            tables.make_tables(connection)
            if support.variant == "upsert":
                ids = keys.make_row_ids_unique(connection, self._names.table, self._row_id, self._schema)
                self._id_index = ids.as_string(connection)
            epoch = tables.next_epoch(connection, self._names.sink_id)
            self._names = replace(self._names, epoch=epoch)
            connection.execute("SELECT set_config('application_name', %s, false)", (self._names.application,))
            end_older(connection, self._names)
            self._decided = {int(entry["partition"]): str(entry["gid"]) for entry in decided}
            roll_back_orphans(connection, self._names, set(self._decided.values()))
            if support.variant == "two-phase":
                preparing.refuse_unpreparable(connection, self._names, self._schema, self.partitions)
            self._marks = tables.newest_marks(connection, self._names.sink_id)
        except psycopg.Error as error:
            raise unusable(error) from error

    def identity(self) -> Mapping[str, str]:
        try:
            return tables.identity(self._connection(), self._names.table)
        except psycopg.Error as error:
            raise unusable(error) from error

    def warm_up_writer(self) -> WarmUp:
        return WarmUp(self._names)

    def claim(self, batch: int) -> None:
        """See `Sink.claim`: the claim is a row of the ledger.

        Tasks find a newer epoch by themselves.
        """
        try:
            first = self._claims(batch)
        except psycopg.Error as error:
            raise not_claimed(of_sqlstate(error.sqlstate), f"in PostgreSQL: {error_text(error)}", batch) from error
        if not first:
            raise AnotherDriver(
                f"another driver of sink_id {self._names.sink_id} has taken a newer epoch or claimed batch {batch}. "
                "Its checkpoint is a copy, or two jobs share the sink_id. This driver has written nothing more: let "
                "only one driver run per sink_id."
            )

    def _claims(self, batch: int, again: bool = True) -> bool:
        """Adds the claim, if this driver's epoch is the newest.

        A newer driver has ended our session.
        """
        mark, sink_id = Mark(batch, 0, 0, self._names.driver), self._names.sink_id
        try:
            if tables.newest_epoch(self._connection(), sink_id) != self._names.epoch:
                return False
            if tables.put_in_ledger(self._connection(), sink_id, WHOLE_BATCH, mark):
                return True
            # The claim that is there may be ours: its answer was lost.
            return tables.newest_marks(self._connection(), sink_id).get(WHOLE_BATCH) == mark
        except psycopg.Error as error:
            if not again or self._open is None or not missing(self._open, error):
                raise
            self.close()
        return self._claims(batch, again=False)

    def unacknowledged_writer(self) -> Appender:
        return Appender(self._names, durable=False)

    def acknowledged_writer(self) -> Appender:
        if self._variant != "upsert":
            return Appender(self._names)
        return Upserter(self._names, row_id=self._row_id, id_index=self._id_index)

    def prepare_writer(self) -> Preparer:
        return Preparer(self._names, slots=self.partitions)

    def idempotent_writer(self) -> Marked:
        return Marked(self._names)

    def marks(self) -> Mapping[int, Mark]:
        return self._marks

    def restore_marks(self, batches: Mapping[int, int]) -> None:
        """See `Sink.restore_marks`; a transaction that is still prepared brings its own marker."""
        try:
            connection = self._connection()
            prepared = set(prepared_of(connection, self._names))
            undone = {partition for partition, gid in self._decided.items() if gid in prepared}
            for partition, batch in sorted(batches.items()):
                if partition not in undone:
                    mark = Mark(batch, 0, None)
                    tables.put_in_ledger(connection, self._names.sink_id, partition, mark)
                    self._marks[partition] = mark
        except psycopg.Error as error:
            raise unusable(error) from error

    def commit(self, batch: int, prepared: Mapping[int, Mapping[str, Any]]) -> set[int]:
        """See `Sink.commit`.

        Raises:
            CommitUncertain: the server gave no definite answer within COMMIT_LIMIT_S.
            DeliveryFailed: see `connect_again`.
            CommitRefused: the server refuses, and will refuse again after a restart.
        """
        return {p for p in sorted(prepared) if not self._committed(batch, p, str(prepared[p]["gid"]))}

    def write_native(self, rows: DataFrame) -> None:
        good = without_rejected(rows)
        for name in (each.name for each in good.schema if each.dataType.typeName() == "string"):  # see `tables`
            text = f.replace(name, f.lit(tables.STAND_IN), f.lit(tables.STAND_IN * 2))
            good = good.withColumn(name, f.replace(text, f.lit(tables.NUL), f.lit(tables.STAND_IN + "0")))
        good.write.format("jdbc").options(**self._jdbc()).mode("append").save()

    def stream_native(self, rows: DataFrame) -> DataStreamWriter:
        return rows.writeStream.foreachBatch(lambda batch, _number: self.write_native(batch))

    def close(self) -> None:
        if self._open is not None:
            self._open.close()

    def _connection(self) -> psycopg.Connection:
        if self._open is None or self._open.closed:
            self._open = connect_again(self._names)
        return self._open

    def _check(self, connection: psycopg.Connection, support: Support) -> None:
        if connection.info.server_version < OLDEST_SERVER:
            raise RefusedStart(
                f"this server is PostgreSQL {_setting(connection, 'server_version')}, and 13 or newer is needed. Name "
                "such a server in ONCEBENCH_POSTGRES."
            )
        if _setting(connection, "server_encoding") != "UTF8":
            raise RefusedStart(
                f"database {connection.info.dbname!r} has the encoding {_setting(connection, 'server_encoding')}, and "
                "only UTF8 stores every text. Name a database with ENCODING 'UTF8' in ONCEBENCH_POSTGRES."
            )
        if connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
            raise NoPostgres(
                "this server is a standby and takes no writes. No row was read or written. Name the primary in "
                "ONCEBENCH_POSTGRES (with several hosts: target_session_attrs=read-write), or start again when this "
                "server is promoted."
            )
        if support.guarantee != AT_MOST_ONCE and _setting(connection, "fsync") == "off":
            raise RefusedStart(
                "this server runs with fsync = off. A crash of its machine may undo commits or damage all its data, "
                f"and {support.guarantee} promises that nothing is lost. Set fsync = on in postgresql.conf and reload "
                f"the server, or take at-most-once {NEW_JOB}."
            )
        check_table(connection, self._names.table, self._schema, self._variant in INSERTING)
        if support.guarantee == EXACTLY_ONCE:
            warn_of_foreign(connection, self._names.table)
        if support.guarantee == AT_LEAST_ONCE:
            refuse_unique_rows(connection, self._names.table, self._schema.names)
        self._check_row_id()
        allowed = int(_setting(connection, "max_prepared_transactions"))
        if self._variant == "two-phase" and allowed < self.partitions:
            raise RefusedStart(
                f"two-phase needs a prepared transaction per task, and max_prepared_transactions is {allowed}. Set it "
                f"to {2 * self.partitions} or more in postgresql.conf and restart the server, or take the variant "
                f"idempotent {NEW_JOB}."
            )
        if self._variant == "native":
            self._jdbc()

    def _refuse_row_security(self) -> None:
        own = (name for name, _, _ in tables.OWN_TABLES)
        refuse_row_security(self._connection(), [self._names.table, *own])

    def _check_row_id(self) -> None:
        if self._variant != "upsert":
            return
        unknown = sorted(set(self._row_id) - set(self._schema.names))
        if not self._row_id or unknown or len(self._row_id) == len(self._schema.names):
            raise RefusedStart(
                f"upsert needs the columns that identify a row, some of {self._schema.names} and not all; row_id is "
                f"{list(self._row_id)}. Correct row_id of PostgresSink, or ID in pipeline/rows.py."
            )

    def _committed(self, batch: int, partition: int, gid: str) -> bool:
        """Commits a prepared transaction; returns False if it is gone and was not committed."""
        statement = sql.SQL("COMMIT PREPARED {}").format(sql.Literal(gid))
        deadline = time.monotonic() + COMMIT_LIMIT_S
        while True:
            try:
                try:
                    self._connection().execute(statement)
                    return True
                except psycopg.errors.UndefinedObject:  # it has ended, and its ledger row is visible if it committed
                    return tables.in_ledger(self._connection(), self._names.sink_id, partition, batch) is not None
            except psycopg.Error as error:
                # The server is away, or busy: a session whose answer was lost may still be committing.
                busy = isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState)
                again = busy or self._open is None or missing(self._open, error)
                if not again or time.monotonic() > deadline:
                    refused = of_sqlstate(error.sqlstate).permanent
                    kind = CommitRefused if refused else CommitUncertain
                    raise kind(
                        f"batch {batch}, partition {partition}: {gid} could not be committed: {error_text(error)}. The "
                        "batch is decided, and its replay commits it. Start again "
                        f"{'as the role that prepared it (pg_prepared_xacts)' if refused else 'when PostgreSQL works'}."
                    ) from error
                if not busy:
                    self.close()
            time.sleep(COMMIT_PAUSE_S)

    def _jdbc(self) -> dict[str, str]:
        """Returns options of Spark's JDBC writer for the DSN. Its COMMIT also waits for the disk."""
        info, given = self._connection().info, parts(dsn())
        if info.host.startswith(("/", "@")):
            raise RefusedStart(
                "Spark's JDBC writer cannot use a Unix socket. Name the server by host and port in ONCEBENCH_POSTGRES."
            )
        host = f"[{info.host}]" if ":" in info.host else info.host
        found = {name: given.get(name) or os.environ.get(variable, "") for name, variable in _TLS.items()}
        more = {name: value for name, value in found.items() if value}
        settings = {"synchronous_commit": _setting(self._connection(), "synchronous_commit")}
        settings |= dict.fromkeys(preparing.time_outs(self._connection()), "0")
        more["options"] = " ".join(f"-c {name}={value}" for name, value in settings.items())
        options = {
            "url": f"jdbc:postgresql://{host}:{info.port}/{quote(info.dbname, safe='')}?{urlencode(more)}",
            "driver": "org.postgresql.Driver",
            "dbtable": sql.Identifier(self._names.table).as_string(self._connection()),
            "user": info.user,
        }
        return options | ({"password": info.password} if info.password else {})


def _setting(connection: psycopg.Connection, name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None, "a SELECT without FROM gives one row"
    return str(row[0])


def _open(settings: SinkSettings) -> PostgresSink:
    return PostgresSink(
        settings.output["output"], settings.sink_id, settings.partitions, settings.row_id, settings.driver
    )


KINDS = (
    SinkKind(
        "postgres",
        SUPPORTS,
        lacks={},
        open=_open,
        jars=("spark-postgres",),
        environment=(VARIABLE, *LIBPQ),
        transactions=LEFT_OPEN,
    ),
)
