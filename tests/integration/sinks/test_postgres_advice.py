"""The advice of PostgreSQL's messages, followed literally, mends the cause.

Afterwards every row is there once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from oncebench.delivery.contract import NO_BATCH, Mark
from oncebench.delivery.errors import CommitRefused, DeliveryFailed, NoPostgres, PermanentFailure, RefusedStart
from oncebench.delivery.failures.cause import dropped
from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.postgres.connection import VARIABLE
from tests.integration.sinks.postgres_output import Task, drop_connections, write
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
    with pytest.raises(DeliveryFailed, match=r"SQLSTATE 23503 .*drop the constraint.*writes the batch again"):
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


KEEPS_OUT = """
CREATE FUNCTION keep_out() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN IF NEW.id = ''1'' THEN RETURN NULL; END IF; RETURN NEW; END';
CREATE TRIGGER keeper BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION keep_out()
"""


def test_an_upsert_whose_trigger_keeps_a_row_out_is_refused_until_it_is_removed(
    database: psycopg.Connection, start: Start
) -> None:
    make(database, "t")
    writer = start("t").acknowledged_writer()
    database.execute(KEEPS_OUT)
    with pytest.raises(PermanentFailure, match=r"took 1 of 2 rows.*Remove the trigger or rule, then start again"):
        write(writer, 0, 0, ROWS)
    assert rows_in(database, "t") == []
    database.execute("DROP TRIGGER keeper ON t")
    write(writer, 0, 0, ROWS)
    assert rows_in(database, "t") == EACH_ONCE


def test_an_upsert_may_have_a_trigger_that_suppresses_updates_without_a_change(
    database: psycopg.Connection, start: Start
) -> None:
    make(database, "t")
    database.execute(
        "CREATE TRIGGER same BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    )
    for _ in range(2):
        write(start("t").acknowledged_writer(), 0, 0, ROWS)
    assert rows_in(database, "t") == EACH_ONCE


def test_the_next_start_makes_the_index_that_an_upsert_has_lost(database: psycopg.Connection, start: Start) -> None:
    make(database, "t")
    writer = start("t").acknowledged_writer()
    (name,) = database.execute("SELECT indexname FROM pg_indexes WHERE tablename = 't'").fetchone() or ("",)
    database.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
    with pytest.raises(DeliveryFailed, match=r"unique index that upsert needs\)\. The next start makes it") as failed:
        write(writer, 0, 0, ROWS)
    assert failed.value.restart_helps
    write(start("t").acknowledged_writer(), 0, 0, ROWS)
    assert rows_in(database, "t") == EACH_ONCE


@pytest.mark.parametrize("columns", ["id text PRIMARY KEY, v text", "id text UNIQUE, v text", "id text, v text"])
def test_the_statement_for_an_index_that_takes_a_row_once_removes_it(
    database: psycopg.Connection, start: Start, columns: str
) -> None:
    make(database, "t", columns)
    if "U" not in columns and "P" not in columns:
        database.execute('CREATE UNIQUE INDEX "an index" ON t (id)')
    with pytest.raises(RefusedStart, match="takes a row once") as refused:
        start("t", "acknowledged")
    statement = re.search(r"Run (.*?), or take exactly-once with a new checkpoint", str(refused.value))
    assert statement is not None
    database.execute(statement[1].encode())
    write(start("t", "acknowledged").acknowledged_writer(), 0, 0, ROWS)
    assert rows_in(database, "t") == EACH_ONCE


@contextmanager
def role(database: psycopg.Connection, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes a role whose name needs quotes the one of the sink."""
    database.execute(
        'DROP ROLE IF EXISTS "the-sink"; CREATE ROLE "the-sink" LOGIN PASSWORD \'known\';'
        'GRANT ALL ON SCHEMA public TO "the-sink"; GRANT ALL ON ALL TABLES IN SCHEMA public TO "the-sink"'
    )
    with monkeypatch.context() as other:
        other.setenv(VARIABLE, make_conninfo(server.dsn, user="the-sink", password="known"))
        yield
    drop_connections()


def test_the_statement_against_row_security_lets_the_role_see_all_rows(
    database: psycopg.Connection, start: Start, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(database, "t")
    database.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    with role(database, server, monkeypatch):
        with pytest.raises(RefusedStart, match="row-level security may hide") as refused:
            start("t", "idempotent")
        statement = re.search(r"(ALTER ROLE .*?), or run", str(refused.value))
        assert statement is not None
        database.execute(statement[1].encode())
        write(start("t", "idempotent").idempotent_writer(), 0, 0, ROWS)
    assert rows_in(database, "t") == EACH_ONCE
    database.execute('DROP SCHEMA public CASCADE; CREATE SCHEMA public; DROP ROLE "the-sink"')


def test_a_commit_by_another_role_is_refused_until_the_preparing_one_is_back(
    database: psycopg.Connection, start: Start, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(database, "t")
    sink = start("t", "two-phase")
    prepared = {0: write(sink.prepare_writer(), 0, 0, ROWS)}
    sink.close()
    with role(database, server, monkeypatch):
        with pytest.raises(CommitRefused, match=r"Start again as the role that prepared it \(pg_prepared_xacts\)\.$"):
            sink.commit(0, prepared)
        sink.close()
        drop_connections()  # of the other role, which this one may not end
        gid = prepared[0]["gid"]
        with pytest.raises(RefusedStart, match=f"{gid}' belongs to role 'postgres'.* superuser .*: ROLLBACK PREPARED"):
            start("t", "two-phase")  # without the decision
    assert sink.commit(0, prepared) == set()
    assert rows_in(database, "t") == EACH_ONCE
    database.execute('DROP SCHEMA public CASCADE; CREATE SCHEMA public; DROP ROLE "the-sink"')


def test_a_claim_that_fails_says_what_a_restart_drops(database: psycopg.Connection, start: Start) -> None:
    make(database, "t")
    sink = start("t", "claim")
    sink._connection().execute("SET default_transaction_read_only = on")
    with pytest.raises(DeliveryFailed, match=r"^batch 0 was not written.*set default_transaction_read_only") as failed:
        sink.claim(0)
    assert failed.value.restart_helps
    assert str(failed.value).endswith(dropped(0))
    assert "writes the batch again" not in str(failed.value)
    sink._connection().execute("SET default_transaction_read_only = off")
    database.execute("DROP TABLE oncebench_ledger")
    with pytest.raises(PermanentFailure, match=r"^batch 0 was not written.*Restore what the error names") as dead:
        sink.claim(0)
    assert str(dead.value).endswith(dropped(0))


def test_a_table_of_epochs_that_was_emptied_is_no_other_driver(database: psycopg.Connection, start: Start) -> None:
    make(database, "t")
    writer = start("t", "idempotent").idempotent_writer()
    database.execute("TRUNCATE oncebench_epochs")
    with pytest.raises(DeliveryFailed, match=r"epoch None of .*emptied or restored\. The next start takes a new epoch"):
        write(writer, 0, 0, ROWS)
    write(start("t", "idempotent").idempotent_writer(), 0, 0, ROWS)
    assert rows_in(database, "t") == EACH_ONCE


def test_a_start_that_finds_a_read_only_server_says_what_to_set(database: psycopg.Connection, start: Start) -> None:
    make(database, "t")
    database.execute("ALTER ROLE postgres SET default_transaction_read_only = on")
    try:
        with pytest.raises(NoPostgres, match=r"or set default_transaction_read_only = off\. No row was read") as failed:
            start("t", "idempotent")
    finally:
        database.execute("ALTER ROLE postgres RESET default_transaction_read_only")
    assert failed.value.restart_helps
    start("t", "idempotent")
