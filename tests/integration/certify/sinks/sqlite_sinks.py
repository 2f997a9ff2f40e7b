"""Sinks of a user: functions for foreachBatch that write to SQLite.

One reader serves all of them.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row

_calls = count()
COLUMNS = ("session_key", "j", "events", "total", "checksum", "ended_at")


def _open() -> sqlite3.Connection:
    connection = sqlite3.connect(Path(os.environ["ONCEBENCH_OUTPUT"]) / "rows.sqlite", timeout=60)
    connection.execute("PRAGMA journal_mode = WAL")
    return connection


def _create(connection: sqlite3.Connection, key: str = "") -> None:
    connection.execute(f"CREATE TABLE IF NOT EXISTS rows ({', '.join(COLUMNS)}, batch{key})")
    connection.execute("CREATE TABLE IF NOT EXISTS seen (batch INTEGER PRIMARY KEY)")


def _write(rows: Iterator[Row], verb: str, batch: int) -> None:
    values = [(*row, batch) for row in rows]
    with closing(_open()) as connection, connection:
        connection.executemany(f"{verb} INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def upsert(df: DataFrame, batch_id: int) -> None:
    """Correct: a replay overwrites each row with itself."""
    with closing(_open()) as connection, connection:
        _create(connection, ", PRIMARY KEY (session_key, j)")
    df.foreachPartition(lambda rows: _write(rows, "INSERT OR REPLACE", batch_id))


def append(df: DataFrame, batch_id: int) -> None:
    """At-least-once: a replay writes the rows again."""
    with closing(_open()) as connection, connection:
        _create(connection)
    df.foreachPartition(lambda rows: _write(rows, "INSERT", batch_id))


def skip_seen(df: DataFrame, batch_id: int) -> None:
    """Wrong: notes the batch before it writes, and returns early when it sees the batch again."""
    with closing(_open()) as connection, connection:
        _create(connection)
        if connection.execute("SELECT 1 FROM seen WHERE batch = ?", (batch_id,)).fetchone():
            return
        connection.execute("INSERT INTO seen VALUES (?)", (batch_id,))
    df.foreachPartition(lambda rows: _write(rows, "INSERT", batch_id))


def own_numbers(df: DataFrame, batch_id: int) -> None:
    """Wrong: numbers the batches itself, from 0 at each start.

    A batch with a number that the function has seen counts as written.
    """
    number = next(_calls)
    rows = df.collect()
    with closing(_open()) as connection, connection:
        _create(connection)
        if connection.execute("INSERT OR IGNORE INTO seen VALUES (?)", (number,)).rowcount:
            connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", [(*row, number) for row in rows])


def check_then_write(df: DataFrame, batch_id: int) -> None:
    """Wrong under two drivers: looks for the batch before its transaction.

    The transaction writes, and does not look again.
    """
    with closing(_open()) as connection, connection:
        _create(connection)
        seen = connection.execute("SELECT 1 FROM seen WHERE batch = ?", (batch_id,)).fetchone()
    rows = df.collect()
    if seen:
        return
    with closing(_open()) as connection, connection:
        connection.execute("INSERT OR IGNORE INTO seen VALUES (?)", (batch_id,))
        connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", [(*row, batch_id) for row in rows])


def mark_after_write(df: DataFrame, batch_id: int) -> None:
    """Wrong after a kill amid the write: marks the batch after its rows.

    The function collects the rows, looks for the mark, writes row by row, and then marks the batch.
    """
    rows = df.collect()
    if _seen(batch_id):
        return
    for row in rows:
        _write(iter([row]), "INSERT", batch_id)
    _mark(batch_id)


def count_then_write(df: DataFrame, batch_id: int) -> None:
    """Wrong after a kill amid the write: marks the batch after tasks wrote its rows.

    The function counts the rows, looks for the mark, writes in tasks, and then marks the batch.
    """
    count = df.count()
    if count == 0 or _seen(batch_id):
        return
    df.foreachPartition(lambda rows: _write(rows, "INSERT", batch_id))
    _mark(batch_id)


def _seen(batch: int) -> bool:
    with closing(_open()) as connection, connection:
        _create(connection)
        return connection.execute("SELECT 1 FROM seen WHERE batch = ?", (batch,)).fetchone() is not None


def _mark(batch: int) -> None:
    with closing(_open()) as connection, connection:
        connection.execute("INSERT INTO seen VALUES (?)", (batch,))


def first_rows(df: DataFrame, batch_id: int) -> None:
    """Wrong without any fault: keeps one row of each session."""
    append(df.dropDuplicates(["session_key"]), batch_id)


def read_rows() -> list[dict[str, Any]]:
    """Returns what a reader of the table is shown."""
    with closing(_open()) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM rows")]
