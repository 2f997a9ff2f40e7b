"""SQLite: the smallest sink, kept as the example of `docs/adding_a_sink.md`. Exactly-once, idempotent.

Promise: a task's rows and its marker (a row of the ledger: batch, rows, digest) are committed in one transaction, so a
replay that finds the marker leaves the partition out. Every driver takes a generation in the same file; a worker of
an older one finds a younger number inside its transaction and rolls back.

What can go wrong: SQLite has one writer at a time, so tasks take turns (and wait BUSY_S at most); the file must be on
a local disk of the machine that runs all tasks. The rows of a partition are held in memory until they are written.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from oncebench.delivery.contract import EXACTLY_ONCE, Kind, Mark, Place, Sink, Support
from oncebench.delivery.errors import AnotherDriver, DeliveryFailed, RefusedStart
from oncebench.sinks.reader import Rows, Snapshots, now_us, rows_of
from pipeline.rows import ROW, STRING, TYPES

if TYPE_CHECKING:
    from oncebench.delivery.contract import TaskView
    from pipeline.config import PipelineConfig

# A batch of 100,000 rows is written in about a second; the other tasks of the machine wait their turn for so long.
BUSY_S = 60.0
_NAMES = ", ".join(f'"{name}"' for name in ROW)
_COLUMNS = ", ".join(f'"{name}" {"TEXT" if kind == STRING else "INTEGER"} NOT NULL' for name, kind in TYPES.items())
_TABLES = f"""
CREATE TABLE rows (id INTEGER PRIMARY KEY, {_COLUMNS});
CREATE TABLE ledger (sink_id TEXT, part INTEGER, batch INTEGER NOT NULL, rows INTEGER NOT NULL, digest TEXT NOT NULL,
                     PRIMARY KEY (sink_id, part));
CREATE TABLE drivers (sink_id TEXT PRIMARY KEY, generation INTEGER NOT NULL);
"""


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    # A commit is on the disk when it returns. In WAL mode, as our files are made, FULL would do; in any other a power
    # cut could then bring back the rollback journal, and with it what was there before the commit.
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@dataclass(frozen=True)
class MarkedWriter:
    """Writes a partition and its marker in one transaction."""

    path: str
    sink_id: str
    generation: int

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        made = [row for batch in rows for row in zip(*(batch.column(name).to_pylist() for name in ROW), strict=True)]
        task.passing("before-prepare")
        started = time.perf_counter()
        counted, digest = task.counted()
        marker = (self.sink_id, task.partition, task.batch, counted, f"{digest:x}")
        try:
            with closing(_connect(self.path)) as connection, _transaction(connection):
                self._stop_if_older(connection)
                values = ", ".join("?" for _ in ROW)
                connection.executemany(f"INSERT INTO rows ({_NAMES}) VALUES ({values})", made)  # noqa: S608
                connection.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?, ?)", marker)
                task.passing("after-prepare")
        except sqlite3.Error as error:
            raise DeliveryFailed(
                f"batch {task.batch}, partition {task.partition}: {self.path} did not take it: {error}. Nothing of it "
                "was written; mend the file or its disk, and a restart of the pipeline writes the batch again."
            ) from error
        return {}, {"prepare": (time.perf_counter() - started) * 1000}

    def _stop_if_older(self, connection: sqlite3.Connection) -> None:
        (newest,) = connection.execute("SELECT generation FROM drivers WHERE sink_id = ?", (self.sink_id,)).fetchone()
        if newest > self.generation:
            raise AnotherDriver(
                f"generation {newest} of {self.sink_id} was started; this worker belongs to generation "
                f"{self.generation} and stops."
            )


@dataclass(frozen=True)
class _Warm:
    """SQLite opens in a millisecond: there is nothing to make ready."""

    def write(self, _task: TaskView, _rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        return {}, {}


SUPPORTS = (Support(EXACTLY_ONCE, "idempotent", "rows and a ledger row in one transaction per task", default=True),)


class SqliteSink(Sink):
    """Rows in a table of one file.

    Args:
        path: the file, with its tables.
        sink_id: whose markers and generations these are.
        partitions: tasks per batch.
    """

    def __init__(self, path: str, sink_id: str, partitions: int) -> None:
        self.partitions = partitions
        self._path, self._sink_id = path, sink_id
        self._generation = 0
        self._marks: dict[int, Mark] = {}

    def start(self, _support: Support, generation: int, _keep: Sequence[Mapping[str, Any]]) -> None:
        """See `Sink.start`: takes the generation, then reads the markers; what was open SQLite has rolled back."""
        self._generation = generation
        try:
            with closing(_connect(self._path)) as connection, _transaction(connection):
                connection.execute("INSERT OR REPLACE INTO drivers VALUES (?, ?)", (self._sink_id, generation))
                found = connection.execute(
                    "SELECT part, batch, rows, digest FROM ledger WHERE sink_id = ?", (self._sink_id,)
                ).fetchall()
        except sqlite3.Error as error:
            raise RefusedStart(
                f"{self._path} is not usable ({error}): it must be an SQLite file with the tables of this sink, on a "
                "disk that can be written"
            ) from error
        self._marks = {part: Mark(batch, rows, int(digest, 16)) for part, batch, rows, digest in found}

    def warm(self) -> _Warm:
        return _Warm()

    def marked(self) -> MarkedWriter:
        return MarkedWriter(self._path, self._sink_id, self._generation)

    def marks(self) -> Mapping[int, Mark]:
        return self._marks


def _provide(place: Place) -> dict[str, Any]:
    path = str(Path(place.folder) / "rows.sqlite")
    with closing(_connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")  # readers and the writer do not wait for each other
        connection.executescript(_TABLES)
    return {"output": path}


def _open(config: PipelineConfig) -> SqliteSink:
    return SqliteSink(config.output["output"], config.sink_id, config.partitions)


def _read(target: Mapping[str, Any]) -> Snapshots:
    connection = _connect(target["output"])
    newest = 0

    def fresh() -> Rows:
        nonlocal newest
        # There is one writer at a time, so ids are committed in their order.
        query = f"SELECT id, {_NAMES} FROM rows WHERE id > ? ORDER BY id"  # noqa: S608
        found = connection.execute(query, (newest,)).fetchall()
        seen_us = now_us()
        newest = found[-1][0] if found else newest
        rows = [dict(zip(ROW, row[1:], strict=True)) for row in found]
        return rows_of([(0, row[0]) for row in found], [seen_us // 1000] * len(found), rows, seen_us)

    return Snapshots(fresh, close=connection.close)


KINDS = (
    Kind(
        name="sqlite",
        supports=SUPPORTS,
        lacks={
            "at-most-once": "the example keeps to one guarantee",
            "at-least-once": "the example keeps to one guarantee; Spark ships no SQLite sink to compare with",
        },
        ordered=True,
        provide=_provide,
        in_folder=True,
        alone=True,
        open=_open,
        read=_read,
    ),
)
