"""The SQLite sink, the example of `docs/adding_a_sink.md`: exactly-once, idempotent.

Promise: a task's rows and its marker (a row of the ledger: batch, rows, digest) are committed in one transaction. A
replay that finds the marker skips the partition. Every driver takes a generation in the same file, with a random name.
A worker of an older driver finds the newer one inside its transaction and rolls back.

What can go wrong: SQLite has one writer at a time, so tasks take turns and wait at most BUSY_S. The file must be on a
local disk of the machine that runs all tasks. The rows of a partition are held in memory until they are written.
SQLite stores a NaN as a null. Without WAL mode, a program that reads for long makes a commit fail.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from oncebench.delivery import digest, quarantine
from oncebench.delivery.contract import EXACTLY_ONCE, Holder, Mark, Sink, SinkKind, SinkSettings, Support
from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, PermanentFailure, RefusedStart
from oncebench.delivery.failures.cause import NO_RESTART, RESTART, UNKNOWN, failure
from oncebench.delivery.failures.sqlite import of_error
from oncebench.sinks.sqlite.table import difference, is_view, text_as_number

if TYPE_CHECKING:
    from oncebench.delivery.contract import TaskView

# Writing a batch of 100,000 rows takes about a second, and the other tasks of the machine wait for their turn.
BUSY_S = 60.0
# SQLite's type of each Spark type; a column of any other type is refused at the start.
SQL_TYPES: Mapping[str, str] = {
    "string": "TEXT", "binary": "BLOB", "boolean": "INTEGER", "byte": "INTEGER", "short": "INTEGER",
    "integer": "INTEGER", "long": "INTEGER", "float": "REAL", "double": "REAL",
}  # fmt: skip
# The sink's own tables, in addition to the table `rows`.
OWN_TABLES = (
    "CREATE TABLE IF NOT EXISTS ledger (sink_id TEXT, part INTEGER, batch INTEGER NOT NULL, rows INTEGER NOT NULL, "
    "digest TEXT NOT NULL, driver TEXT NOT NULL DEFAULT '', PRIMARY KEY (sink_id, part))",
    "CREATE TABLE IF NOT EXISTS drivers (sink_id TEXT PRIMARY KEY, generation INTEGER NOT NULL, "
    "driver TEXT NOT NULL DEFAULT '')",
)

_MARK = "INSERT OR REPLACE INTO ledger (sink_id, part, batch, rows, digest, driver) VALUES (?, ?, ?, ?, ?, ?)"


def connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    # A commit is on the disk when it returns. In WAL mode, which our files have, FULL would be enough. In other modes a
    # power cut could then restore the rollback journal, and with it the state before the commit.
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a full or failed disk has rolled it back
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@dataclass(frozen=True)
class MarkedWriter:
    """Writes a partition and its marker in one transaction."""

    path: str
    sink_id: str
    generation: int
    driver: str

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        made: list[tuple[Any, ...]] = []
        names: list[str] = []
        for batch in rows:
            names = batch.schema.names
            made += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        task.reach("before-prepare")
        started = time.perf_counter()
        counted, summed = task.counted()
        marker = (self.sink_id, task.partition, task.batch, counted, digest.to_text(summed), self.driver)
        try:
            with closing(connect(self.path)) as connection, transaction(connection):
                self._stop_if_older(connection)
                if made:
                    wrong = text_as_number(connection, names, made)
                    if wrong is not None:
                        raise _changes(wrong, task)
                    taken = connection.executemany(_insert(names), made).rowcount
                    if taken != len(made) and not is_view(connection):  # triggers store what a view gets
                        raise _too_few(taken, len(made), task)
                connection.execute(_MARK, marker)
                task.reach("after-prepare")
        except sqlite3.Error as error:
            where = f"batch {task.batch}, partition {task.partition}"
            raise failure(of_error(error), f"{where}: {self.path} did not take the rows: {error}") from error
        return {}, {"prepare": (time.perf_counter() - started) * 1000}

    def _stop_if_older(self, connection: sqlite3.Connection) -> None:
        newest, driver = _newest(connection, self.sink_id)
        if newest < self.generation:
            raise DeliveryFailed(
                f"{self.path} has generation {newest} of sink_id {self.sink_id}, and this driver took "
                f"{self.generation}: the file was replaced or restored. Put the newest file back. {RESTART}"
            )
        if (newest, driver) != (self.generation, self.driver):
            raise AnotherDriver(
                f"generation {newest} of {self.sink_id} was started; this worker belongs to generation "
                f"{self.generation} and stops. If both numbers are equal, their checkpoints are copies of one. Let "
                "only one driver run per sink_id."
            )


def _changes(wrong: str, task: TaskView) -> PermanentFailure:
    return PermanentFailure(
        f"batch {task.batch}, partition {task.partition}: {wrong}, and nothing was committed. {NO_RESTART} Declare the "
        "column TEXT: make a new table, copy the rows and rename it; then start again."
    )


def _too_few(taken: int, given: int, task: TaskView) -> PermanentFailure:
    return PermanentFailure(
        f"batch {task.batch}, partition {task.partition}: the table took {taken} of {given} rows and nothing was "
        f"committed, because a trigger or ON CONFLICT IGNORE keeps rows out. {NO_RESTART} Remove the trigger or "
        "clause, or reject such rows in the query; then start again."
    )


def _newest(connection: sqlite3.Connection, sink_id: str) -> tuple[int, str]:
    """Returns generation and name of the newest driver; (0, "") if there is none."""
    found = connection.execute("SELECT generation, driver FROM drivers WHERE sink_id = ?", (sink_id,)).fetchone()
    return (0, "") if found is None else (int(found[0]), str(found[1]))


def quoted(name: str) -> str:
    """Returns a column's name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _insert(names: Sequence[str]) -> str:
    columns, values = ", ".join(map(quoted, names)), ", ".join("?" for _ in names)
    return f"INSERT INTO rows ({columns}) VALUES ({values})"  # noqa: S608  names are quoted


@dataclass(frozen=True)
class _WarmUp:
    """Does nothing: SQLite opens in a millisecond."""

    def write(self, _task: TaskView, _rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        return {}, {}


SUPPORTS = (Support(EXACTLY_ONCE, "idempotent", "rows and a ledger row in one transaction per task", default=True),)


class SqliteSink(Sink):
    """Writes rows to a table of one file.

    Args:
        path: the file, with a table `rows`. A start makes the sink's own tables, `ledger` and `drivers`.
        sink_id: names this sink's markers and generation in the file.
        partitions: tasks per batch.
        driver: random name of this start; empty: a new one.
    """

    def __init__(self, path: str, sink_id: str, partitions: int, driver: str = "") -> None:
        self.partitions = partitions
        self._path, self._sink_id, self._driver = path, sink_id, driver or uuid.uuid4().hex
        self._generation = 0
        self._columns: dict[str, str] = {}
        self._marks: dict[int, Mark] = {}

    def check_schema(self, schema: StructType) -> None:
        """See `Sink.check_schema`: every column must have a type of SQLite."""
        for field in schema.fields:
            if field.dataType.typeName() not in SQL_TYPES and field.name != quarantine.COLUMN:
                raise RefusedStart(
                    f"column {field.name!r} is {field.dataType.simpleString()}, which SQLite has no type for. Cast it "
                    "to string, or make an array, struct or map a string with to_json. Give its column in the table "
                    "the type TEXT: another type may round it."
                )
        self._columns = {field.name: field.dataType.typeName() for field in schema if field.name != quarantine.COLUMN}

    def holder(self) -> Holder | None:
        """See `Sink.holder`: the newest generation, and who wrote the ledger's rows."""
        with self._usable() as connection:
            generation, _ = _newest(connection, self._sink_id)
            return Holder.of(self._ledger(connection), generation)

    def start(self, _support: Support, generation: int, _decided: Sequence[Mapping[str, Any]]) -> None:
        """See `Sink.start`: compares columns, takes the generation, reads the markers.

        SQLite rolls open writes back.
        """
        self._generation = generation
        with self._usable() as connection:
            wrong = difference(connection, self._columns) if self._columns else None
            if wrong is not None:
                raise RefusedStart(
                    f"table rows of {self._path} does not fit the rows: {wrong}. Nothing was written. Change the "
                    "query, or make a table as the query needs it, copy the rows and rename it; then start again."
                )
            self._take_generation(connection, generation)
            self._marks = self._ledger(connection)

    @contextmanager
    def _usable(self) -> Iterator[sqlite3.Connection]:
        """A transaction in the file, with the sink's own tables, which may be an older version's."""
        if not Path(self._path).exists():
            raise self._without_rows("is not there")  # SQLite would make an empty one
        try:
            with closing(connect(self._path)) as connection, transaction(connection):
                if not connection.execute("SELECT 1 FROM pragma_table_info('rows')").fetchone():
                    raise self._without_rows("has no table rows")
                for statement in OWN_TABLES:
                    connection.execute(statement)
                for table in ("drivers", "ledger"):
                    columns = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
                    if columns and ("driver",) not in columns:
                        connection.execute(f"ALTER TABLE {table} ADD COLUMN driver TEXT NOT NULL DEFAULT ''")
                yield connection
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _ledger(self, connection: sqlite3.Connection) -> dict[int, Mark]:
        found = connection.execute(
            "SELECT part, batch, rows, digest, driver FROM ledger WHERE sink_id = ?", (self._sink_id,)
        )
        return {part: Mark(batch, rows, digest.from_text(text), driver) for part, batch, rows, text, driver in found}

    def restore_marks(self, batches: Mapping[int, int]) -> None:
        """See `Sink.restore_marks`."""
        made = [(self._sink_id, partition, batch, 0, digest.to_text(0), "") for partition, batch in batches.items()]
        try:
            with closing(connect(self._path)) as connection, transaction(connection):
                connection.executemany(_MARK, made)
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        self._marks |= {partition: Mark(batch, 0, None) for partition, batch in batches.items()}

    def _without_rows(self, why: str) -> RefusedStart:
        return RefusedStart(
            f"{self._path} {why}. Correct the path, restore the file or, in a new job, run: sqlite3 {self._path} "
            "'PRAGMA journal_mode = WAL; CREATE TABLE rows (COLUMN TYPE, ...)'. Each column of the query must be TEXT, "
            "INTEGER, REAL or BLOB."
        )

    def _unusable(self, error: sqlite3.Error) -> RefusedStart | DeliveryFailed:
        cause = of_error(error)
        kind = RefusedStart if cause.permanent else DeliveryFailed
        reason = "" if cause is UNKNOWN else f": {cause.reason}"
        remedy = cause.remedy or "Look at the file"
        return kind(
            f"{self._path} cannot be used ({error}{reason}). No row was read or written. {remedy}, then start again."
        )

    def _take_generation(self, connection: sqlite3.Connection, generation: int) -> None:
        """Stores this driver's generation, which never decreases, and name; refuses an older driver."""
        newest, _ = _newest(connection, self._sink_id)
        if newest > generation:
            raise RefusedStart(
                f"{self._path} has seen generation {newest} of sink_id {self._sink_id!r}, and this start is generation "
                f"{generation} by its journal: the journal is new, older, or another's. Restore the newest journal "
                "with its checkpoint, or take a new checkpoint, sink_id and output."
            )
        connection.execute(
            "INSERT OR REPLACE INTO drivers (sink_id, generation, driver) VALUES (?, ?, ?)",
            (self._sink_id, generation, self._driver),
        )

    def warm_up_writer(self) -> _WarmUp:
        return _WarmUp()

    def idempotent_writer(self) -> MarkedWriter:
        return MarkedWriter(self._path, self._sink_id, self._generation, self._driver)

    def marks(self) -> Mapping[int, Mark]:
        return self._marks


def _open(settings: SinkSettings) -> SqliteSink:
    return SqliteSink(settings.output["output"], settings.sink_id, settings.partitions, settings.driver)


KINDS = (
    SinkKind(
        name="sqlite",
        supports=SUPPORTS,
        lacks={
            "at-most-once": "the example keeps to one guarantee",
            "at-least-once": "the example keeps to one guarantee; Spark ships no SQLite sink to compare with",
        },
        open=_open,
    ),
)
