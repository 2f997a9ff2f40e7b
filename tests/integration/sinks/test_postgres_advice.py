"""The advice of PostgreSQL's messages, followed literally, mends the cause, and every row is there once."""

from __future__ import annotations

import re

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from oncebench.delivery.contract import NO_BATCH, Mark
from oncebench.delivery.errors import DeliveryFailed, PermanentFailure, RefusedStart
from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.postgres.connection import VARIABLE
from tests.integration.sinks.test_postgres import Task, drop_connections, write
from tests.integration.sinks.test_postgres_table import ROWS, Start, database, make, rows_in, start

pytestmark = pytest.mark.integration
__all__ = ["database", "start"]  # fixtures
EACH_ONCE = [("1", "x"), ("2", "x")]


def test_a_row_that_is_too_long_for_an_index_is_written_once_without_the_index(
    database: psycopg.Connection, start: Start
) -> None:
    make(database, "t")
    database.execute("CREATE INDEX longest ON t (v)")
    long = "".join(f"{number:x}" for number in range(9000))
    rows = pa.record_batch({"id": ["1"], "v": [long]})
    writer = start("t", "idempotent").idempotent_writer()
    with pytest.raises(PermanentFailure, match=r"a row exceeds a limit.*change the table's definition") as refused:
        write(writer, 0, 0, rows)
    assert "SQLSTATE 54000" in str(refused.value)
    database.execute("DROP INDEX longest")
    write(writer, 0, 0, rows)
    assert rows_in(database, "t") == [("1", long)]


def test_a_row_without_its_parent_is_written_once_without_the_constraint(
    database: psycopg.Connection, start: Start
) -> None:
    make(database, "parents", "v text PRIMARY KEY")
    make(database, "t", "id text, v text CONSTRAINT parent REFERENCES parents")
    writer = start("t", "idempotent").idempotent_writer()
    with pytest.raises(DeliveryFailed, match=r"SQLSTATE 23503 .*or its constraint.*writes the batch again"):
        write(writer, 0, 0, ROWS)
    database.execute("ALTER TABLE t DROP CONSTRAINT parent")
    write(writer, 0, 0, ROWS)
    assert rows_in(database, "t") == EACH_ONCE


def test_the_statement_for_a_missing_table_makes_one_that_a_start_accepts(
    database: psycopg.Connection, start: Start
) -> None:
    with pytest.raises(RefusedStart, match="Make it with: CREATE TABLE") as refused:
        start("t", "idempotent")
    statement = re.search(r"Make it with: (.*)$", str(refused.value))
    assert statement is not None
    database.execute(statement[1])
    write(start("t", "idempotent").idempotent_writer(), 0, 0, ROWS)
    assert rows_in(database, "t") == EACH_ONCE


def test_a_worker_beyond_the_roles_connection_limit_is_named_and_raising_it_helps(
    database: psycopg.Connection, start: Start, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(database, "t")
    database.execute("DROP ROLE IF EXISTS one")
    database.execute("CREATE ROLE one LOGIN CONNECTION LIMIT 1 PASSWORD 'known'")
    database.execute("GRANT ALL ON SCHEMA public TO one; GRANT ALL ON t TO one")
    monkeypatch.setenv(VARIABLE, make_conninfo(server.dsn, user="one", password="known"))
    warm_up = start("t", "idempotent").warm_up_writer()
    with pytest.raises(DeliveryFailed, match=r"too many connections.*Compare the worker's address, login and conn"):
        warm_up.write(Task(0, 0, []), iter(()))
    database.execute("ALTER ROLE one CONNECTION LIMIT 10")
    warm_up.write(Task(0, 0, []), iter(()))
    drop_connections()


def test_restored_markers_are_found_and_leave_the_ones_that_are_there(
    database: psycopg.Connection, start: Start
) -> None:
    make(database, "t")
    sink = start("t", "idempotent")
    sink.restore_marks({0: NO_BATCH})
    found = start("t", "idempotent")
    assert {p: mark.batch for p, mark in found.marks().items()} == {0: NO_BATCH}
    write(found.idempotent_writer(), 3, 0, ROWS)
    found.restore_marks({0: NO_BATCH})
    assert start("t", "idempotent").marks()[0].batch == 3
    database.execute(sql.SQL("DELETE FROM oncebench_ledger"))
    emptied = start("t", "idempotent")
    emptied.restore_marks({0: 3})
    assert emptied.marks() == {0: Mark(3, 0, None)}
    write(start("t", "idempotent").idempotent_writer(), 4, 0, ROWS)
    assert rows_in(database, "t") == sorted(EACH_ONCE * 2)
