"""Sinks of a user that write to tables.

They are Delta without txnVersion, and an upsert through JDBC by a random key.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from deltalake import DeltaTable
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

UPSERT = """
INSERT INTO certify_rows (id, session_key, j, events, total, checksum, ended_at)
SELECT id, session_key, j, events, total, checksum, ended_at FROM certify_staged
ON CONFLICT (id) DO UPDATE SET total = EXCLUDED.total, checksum = EXCLUDED.checksum
"""


def _table() -> str:
    return str(Path(os.environ["ONCEBENCH_OUTPUT"]) / "table")


def append_to_delta(df: DataFrame, batch_id: int) -> None:
    """At-least-once: Delta does not know the batch, so it appends a replay."""
    df.write.format("delta").mode("append").save(_table())


def read_delta() -> list[dict[str, Any]]:
    """Returns the rows of the newest version."""
    return list(DeltaTable(_table()).to_pyarrow_table().to_pylist())


def _connect() -> psycopg.Connection[dict[str, Any]]:
    return psycopg.connect(os.environ["ONCEBENCH_POSTGRES"], row_factory=dict_row)


def empty() -> None:
    """Makes an empty table."""
    with closing(_connect()) as connection, connection:
        connection.execute("DROP TABLE IF EXISTS certify_rows")
        connection.execute(
            "CREATE TABLE certify_rows (id TEXT PRIMARY KEY, session_key TEXT, j INT, events INT, total BIGINT, "
            "checksum BIGINT, ended_at BIGINT)"
        )


def upsert_by_random_key(df: DataFrame, batch_id: int) -> None:
    """At-least-once: a replay has other keys, so it inserts the rows again."""
    given = conninfo_to_dict(os.environ["ONCEBENCH_POSTGRES"])
    url = f"jdbc:postgresql://{given['host']}:{given['port']}/{given['dbname']}"
    login = {"user": str(given["user"]), "password": str(given["password"]), "driver": "org.postgresql.Driver"}
    df.withColumn("id", expr("uuid()")).write.jdbc(url, "certify_staged", mode="overwrite", properties=login)
    with closing(_connect()) as connection, connection:
        connection.execute(UPSERT)


def read_postgres() -> list[dict[str, Any]]:
    """Returns the rows of the table."""
    with closing(_connect()) as connection, connection:
        return connection.execute("SELECT * FROM certify_rows").fetchall()
