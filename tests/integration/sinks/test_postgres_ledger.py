"""The sink's own tables and the output's partitions on a real PostgreSQL.

The tests are about their schema, a crash, and rights.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from oncebench.delivery.errors import RefusedStart
from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.postgres.connection import VARIABLE
from tests.integration.sinks.postgres_output import drop_connections, write, writer_of
from tests.integration.sinks.test_postgres_table import ROWS, Start, database, make, rows_in, start

pytestmark = pytest.mark.integration
__all__ = ["database", "start"]  # fixtures
# docs/sinks.md has these as the rights of a job; TEMPORARY is for `upsert`.
RIGHTS = """
GRANT USAGE ON SCHEMA public TO job;
GRANT {} ON rows TO job;
GRANT SELECT, INSERT, DELETE ON oncebench_ledger TO job;
GRANT SELECT, INSERT, UPDATE ON oncebench_epochs TO job;
"""
MORE = {"upsert": "INSERT, SELECT, UPDATE"}
VARIANTS = ("claim", "acknowledged", "idempotent", "two-phase", "upsert")


@pytest.fixture
def job(database: psycopg.Connection, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A role of its own, without any right yet, as which the sink connects."""
    database.execute("CREATE ROLE job LOGIN PASSWORD 'known'")
    with monkeypatch.context() as other:
        other.setenv(VARIABLE, make_conninfo(server.dsn, user="job", password="known"))
        yield
    drop_connections()
    database.execute("DROP OWNED BY job; DROP ROLE job")


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_rights_of_the_docs_are_enough(
    database: psycopg.Connection, start: Start, request: pytest.FixtureRequest, variant: str
) -> None:
    make(database, "rows", "id text PRIMARY KEY, v text" if variant == "upsert" else "id text, v text")
    start("rows", variant).close()  # as the owner, who makes the two tables
    drop_connections()
    request.getfixturevalue("job")
    database.execute(RIGHTS.format(MORE.get(variant, "INSERT")).encode())
    sink = start("rows", variant)
    prepared = write(writer_of(sink, variant), 0, 0, ROWS)
    if variant == "two-phase":
        assert sink.commit(0, {0: prepared}) == set()
    assert rows_in(database, "rows") == [("1", "x"), ("2", "x")]
    start("rows", variant)  # a second start ends the sessions of the first


@pytest.mark.usefixtures("job")
def test_a_schema_that_comes_later_does_not_hide_the_ledger(
    database: psycopg.Connection, start: Start, request: pytest.FixtureRequest
) -> None:
    make(database, "rows")
    database.execute("GRANT ALL ON SCHEMA public TO job; GRANT ALL ON rows TO job")
    write(start("rows", "idempotent").idempotent_writer(), 3, 0, ROWS)
    database.execute("CREATE SCHEMA job AUTHORIZATION job")
    request.addfinalizer(lambda: database.execute("DROP SCHEMA IF EXISTS job CASCADE"))
    assert start("rows", "idempotent").marks()[0].batch == 3


@pytest.mark.parametrize("table", ["oncebench_ledger", "oncebench_epochs"])
def test_a_ledger_that_a_killed_server_would_not_keep_is_refused(
    database: psycopg.Connection, start: Start, table: str
) -> None:
    make(database, "rows")
    start("rows", "idempotent")
    database.execute(f"ALTER TABLE {table} SET UNLOGGED".encode())
    with pytest.raises(RefusedStart, match=f": it is UNLOGGED, .* Run ALTER TABLE {table} SET LOGGED, then"):
        start("rows", "idempotent")


def test_a_partition_that_a_killed_server_would_not_keep_is_refused_by_its_name(
    database: psycopg.Connection, start: Start
) -> None:
    database.execute(
        "CREATE TABLE rows (id text, v text) PARTITION BY LIST (v); CREATE TABLE kept PARTITION OF rows DEFAULT;"
        "CREATE UNLOGGED TABLE gone PARTITION OF rows FOR VALUES IN ('y')"
    )
    with pytest.raises(RefusedStart, match=r"its partition gone is UNLOGGED, .* Run ALTER TABLE gone SET LOGGED, then"):
        start("rows", "idempotent")
    database.execute("ALTER TABLE gone SET LOGGED")
    write(start("rows", "idempotent").idempotent_writer(), 0, 0, ROWS)
    assert rows_in(database, "rows") == [("1", "x"), ("2", "x")]


def test_a_partitioned_table_that_is_marked_unlogged_is_kept_because_its_partitions_are(
    database: psycopg.Connection, start: Start
) -> None:
    """PostgreSQL 13 to 17 set the mark for CREATE UNLOGGED TABLE .. PARTITION BY, for ever."""
    database.execute(
        "CREATE TABLE rows (id text, v text) PARTITION BY LIST (v); CREATE TABLE kept PARTITION OF rows DEFAULT;"
        "UPDATE pg_class SET relpersistence = 'u' WHERE oid = 'rows'::regclass"
    )
    write(start("rows", "idempotent").idempotent_writer(), 0, 0, ROWS)
    assert rows_in(database, "rows") == [("1", "x"), ("2", "x")]


def test_an_upsert_into_partitions_needs_a_key_of_the_tables_own(database: psycopg.Connection, start: Start) -> None:
    database.execute(
        "CREATE TABLE rows (id text, v text) PARTITION BY LIST (id); CREATE TABLE kept PARTITION OF rows DEFAULT"
    )
    with pytest.raises(RefusedStart, match=r"lacks a usable unique index over exactly id, .* Make a primary key over"):
        start("rows", "upsert")
    database.execute("ALTER TABLE rows ADD PRIMARY KEY (id)")
    sink = start("rows", "upsert")
    for _ in range(2):
        write(sink.acknowledged_writer(), 0, 0, ROWS)
    assert rows_in(database, "rows") == [("1", "x"), ("2", "x")]


def test_a_foreign_partition_is_a_warning_because_it_may_hold_old_rows_only(
    database: psycopg.Connection, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(
        "DROP FOREIGN DATA WRAPPER IF EXISTS no_wrapper CASCADE; CREATE FOREIGN DATA WRAPPER no_wrapper;"
        "CREATE SERVER elsewhere FOREIGN DATA WRAPPER no_wrapper; CREATE TABLE rows (id text, v text) "
        "PARTITION BY LIST (v); CREATE TABLE here PARTITION OF rows DEFAULT;"
        "CREATE FOREIGN TABLE archived PARTITION OF rows FOR VALUES IN ('y') SERVER elsewhere"
    )
    write(start("rows", "idempotent").idempotent_writer(), 0, 0, ROWS)
    assert rows_in(database, "here") == [("1", "x"), ("2", "x")]
    assert "table rows has foreign partitions (archived)" in caplog.text
