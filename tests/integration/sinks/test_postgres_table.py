"""A user's own table on a real PostgreSQL: upsert index, types, names, tables of other form."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import conninfo, sql
from pyspark.sql.types import LongType, StringType, StructField, StructType

from oncebench.delivery.errors import PermanentFailure, RefusedStart
from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.postgres.connection import VARIABLE
from oncebench.sinks.postgres.sink import PostgresSink
from tests.integration.sinks.postgres_output import SUPPORTS, drop_connections, write

pytestmark = pytest.mark.integration
SCHEMA = StructType([StructField("id", StringType()), StructField("v", StringType())])
ROWS = pa.record_batch({"id": ["1", "2"], "v": ["x", "x"]})
LONG = "orders_of_the_european_customers_department_"

Start = Callable[..., PostgresSink]


@pytest.fixture
def database(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection]:
    """A connection to a database without any table."""
    monkeypatch.setenv(VARIABLE, server.dsn)
    with psycopg.connect(os.environ[VARIABLE], autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        yield connection


@pytest.fixture
def start(database: psycopg.Connection) -> Iterator[Start]:
    with ExitStack() as stack:
        stack.callback(drop_connections)

        def started(
            table: str, variant: str = "upsert", row_id: tuple[str, ...] = ("id",), schema: StructType = SCHEMA
        ) -> PostgresSink:
            sink = PostgresSink(table, f"s-{table[-12:]}", 1, row_id)
            stack.callback(sink.close)
            sink.check_schema(schema)
            sink.start(SUPPORTS[variant], 1, [])
            return sink

        yield started


def make(database: psycopg.Connection, table: str, columns: str = "id text, v text") -> None:
    database.execute(sql.SQL(f"CREATE TABLE {{}} ({columns})").format(sql.Identifier(table)))


def rows_in(database: psycopg.Connection, table: str) -> list[Any]:
    return database.execute(sql.SQL("SELECT id, v FROM {} ORDER BY id").format(sql.Identifier(table))).fetchall()


def indexes(database: psycopg.Connection) -> list[tuple[str, str]]:
    """Table and name of each index on a user's table."""
    found = database.execute(
        "SELECT tablename, indexname FROM pg_indexes WHERE schemaname = 'public' AND tablename !~ '^oncebench'"
    )
    return sorted(found.fetchall())


def upserted_twice(database: psycopg.Connection, sink: PostgresSink, table: str) -> bool:
    for _ in range(2):
        write(sink.acknowledged_writer(), 0, 0, ROWS)
    return rows_in(database, table) == [("1", "x"), ("2", "x")]


def test_tables_whose_names_begin_alike_have_an_index_each(database: psycopg.Connection, start: Start) -> None:
    tables = [f"{LONG}a", f"{LONG}b", "日" * 21, "pc%s"]
    for table in tables:
        make(database, table)
        assert upserted_twice(database, start(table), table)
    assert sorted(table for table, _ in indexes(database)) == sorted(tables)


def test_a_start_makes_no_second_index(database: psycopg.Connection, start: Start) -> None:
    make(database, "rows")
    for _ in range(2):
        assert upserted_twice(database, start("rows"), "rows")
    assert len(indexes(database)) == 1


def test_a_table_that_was_renamed_leaves_its_name_to_the_next(database: psycopg.Connection, start: Start) -> None:
    make(database, "rows")
    start("rows")
    database.execute("ALTER TABLE rows RENAME TO rows_of_may")
    make(database, "rows")
    assert upserted_twice(database, start("rows"), "rows")
    assert {table for table, _ in indexes(database)} == {"rows", "rows_of_may"}


def test_another_id_of_the_same_table_has_an_index_of_its_own(database: psycopg.Connection, start: Start) -> None:
    make(database, "rows")
    start("rows", row_id=("v",))
    sink = start("rows")
    assert len(indexes(database)) == 2
    write(sink.acknowledged_writer(), 0, 0, ROWS.slice(0, 1))
    assert rows_in(database, "rows") == [("1", "x")]


@pytest.mark.parametrize("name", ["rows_row_id", "of_another_name"])
def test_a_fitting_index_under_any_name_is_used(database: psycopg.Connection, start: Start, name: str) -> None:
    make(database, "rows")
    hashed = r"sha256(decode(replace(id, E'\\', E'\\\\'), 'escape'))"
    database.execute(f"CREATE UNIQUE INDEX {name} ON rows ({hashed})")
    assert upserted_twice(database, start("rows"), "rows")
    assert indexes(database) == [("rows", name)]


@pytest.mark.parametrize(
    ("columns", "made"),
    [
        ("id text PRIMARY KEY, v text", 0),
        ("v text, id varchar, UNIQUE (id) INCLUDE (v)", 0),
        ("id text PRIMARY KEY DEFERRABLE, v text", 1),
        ("id text COLLATE no_case PRIMARY KEY, v text", 1),
        ("id text, v text, UNIQUE (id, v)", 1),
    ],
)
def test_the_tables_own_key_is_used_if_it_can_be(
    database: psycopg.Connection, start: Start, columns: str, made: int
) -> None:
    # Only a server with ICU makes such a collation; the suite's server has none.
    database.execute("CREATE COLLATION no_case (locale = 'C')")
    database.execute("UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'no_case'")
    make(database, "rows", columns)
    before = len(indexes(database))
    assert upserted_twice(database, start("rows"), "rows")
    assert len(indexes(database)) - before == made


def test_a_deferrable_key_of_numbers_is_refused(database: psycopg.Connection, start: Start) -> None:
    make(database, "rows", "id bigint PRIMARY KEY DEFERRABLE, v text")
    numbers = StructType([StructField("id", LongType()), StructField("v", StringType())])
    with pytest.raises(RefusedStart, match="DEFERRABLE key over id, which upsert cannot use"):
        start("rows", schema=numbers)


def test_an_index_that_is_not_unique_or_partial_is_no_help(database: psycopg.Connection, start: Start) -> None:
    make(database, "rows")
    hashed = r"sha256(decode(replace(id, E'\\', E'\\\\'), 'escape'))"
    database.execute(f"CREATE INDEX plain ON rows ({hashed})")
    database.execute(f"CREATE UNIQUE INDEX partial ON rows ({hashed}) WHERE v = 'y'")
    assert upserted_twice(database, start("rows"), "rows")
    assert len(indexes(database)) == 3


def test_a_table_with_a_row_twice_is_refused(database: psycopg.Connection, start: Start) -> None:
    make(database, "rows")
    database.execute("INSERT INTO rows VALUES ('1', 'x'), ('1', 'y')")
    with pytest.raises(RefusedStart, match=r"'rows' holds a row \(id\) twice.*Remove the duplicated rows"):
        start("rows")


@pytest.mark.parametrize("kind", ["character(3)", "varchar(3)", "bpchar"])
def test_a_type_that_changes_blanks_at_the_end_is_refused(
    database: psycopg.Connection, start: Start, kind: str
) -> None:
    make(database, "rows", f"id text, v {kind}")
    with pytest.raises(RefusedStart, match=r"table 'rows' .*its column v is (char|bpchar).*CREATE TABLE"):
        start("rows", "idempotent")


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        ("varchar", "a  ", "a  "),
        ("json", '{"b": 1,  "a": 2, "a": 3}', '{"b": 1,  "a": 2, "a": 3}'),
        ("jsonb", '{"b": 1,  "a": 2, "a": 3}', '{"a": 3, "b": 1}'),
        ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ],
)
def test_a_text_is_kept_and_jsonb_and_uuid_keep_its_value(
    database: psycopg.Connection, start: Start, kind: str, given: str, kept: str
) -> None:
    make(database, "rows", f"id text, v {kind}")
    write(start("rows", "idempotent").idempotent_writer(), 0, 0, pa.record_batch({"id": ["1"], "v": [given]}))
    assert database.execute("SELECT v::text FROM rows").fetchall() == [(kept,)]


def test_a_name_with_a_schema_is_refused_with_the_way_to_name_it(database: psycopg.Connection, start: Start) -> None:
    make(database, "rows")
    with pytest.raises(RefusedStart, match=r"there is none .* is one identifier.*search_path = \"public\"") as refused:
        start("public.rows", "idempotent")
    assert "CREATE TABLE" not in str(refused.value)
    make(database, "public.rows")
    start("public.rows", "idempotent")


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("oncebench_ledger", "x integer"),
        ("oncebench_ledger", "sink_id text, partition integer, batch text, rows bigint, digest text"),
        ("oncebench_ledger", "sink_id text, partition integer, batch bigint, rows bigint, digest text"),
        ("oncebench_epochs", "x integer"),
        ("oncebench_epochs", "sink_id text, epoch bigint"),
    ],
)
def test_a_table_of_another_form_under_a_name_of_the_sink_is_refused(
    database: psycopg.Connection, start: Start, table: str, columns: str
) -> None:
    make(database, "rows")
    make(database, table, columns)
    with pytest.raises(RefusedStart, match=rf"table '{table}' .*PRIMARY KEY \(sink_id.*rename it.*start again"):
        start("rows", "idempotent")
    database.execute(f"ALTER TABLE {table} RENAME TO kept")
    write(start("rows", "idempotent").idempotent_writer(), 0, 0, ROWS)
    assert len(rows_in(database, "rows")) == 2


def test_a_generated_column_that_the_rows_fill_is_refused(database: psycopg.Connection, start: Start) -> None:
    make(database, "rows", "id text, v text GENERATED ALWAYS AS (id || 'x') STORED")
    with pytest.raises(RefusedStart, match=r"its column v is generated, and the rows fill it.*DROP EXPRESSION"):
        start("rows", "idempotent")
    make(database, "others", "id text, v text, more text GENERATED ALWAYS AS (id || 'x') STORED NOT NULL")
    start("others", "idempotent")


IDENTITY = "id text, v text, n integer GENERATED ALWAYS AS IDENTITY"
NUMBERED = StructType([StructField("id", StringType()), StructField("n", LongType())])


def test_an_identity_column_that_no_row_fills_gets_its_numbers(database: psycopg.Connection, start: Start) -> None:
    for table, variant in (("copied", "idempotent"), ("upserted", "upsert")):
        make(database, table, IDENTITY)
        sink = start(table, variant)
        write(sink.idempotent_writer() if variant == "idempotent" else sink.acknowledged_writer(), 0, 0, ROWS)
        assert database.execute(f"SELECT id, n FROM {table} ORDER BY n").fetchall() == [("1", 1), ("2", 2)]


def test_an_identity_column_that_rows_fill_takes_a_copy_and_refuses_an_insert(
    database: psycopg.Connection, start: Start
) -> None:
    make(database, "rows", "id text, n bigint GENERATED ALWAYS AS IDENTITY")
    write(
        start("rows", "idempotent", schema=NUMBERED).idempotent_writer(), 0, 0, pa.record_batch({"id": ["1"], "n": [7]})
    )
    assert database.execute("SELECT id, n FROM rows").fetchall() == [("1", 7)]
    for variant in ("upsert", "native"):
        with pytest.raises(RefusedStart, match=r"its column n is GENERATED ALWAYS.*SET GENERATED BY DEFAULT"):
            start("rows", variant, schema=NUMBERED)
    database.execute("ALTER TABLE rows ALTER COLUMN n SET GENERATED BY DEFAULT")
    start("rows", "upsert", schema=NUMBERED)


@pytest.fixture
def plain(database: psycopg.Connection, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A role that policies apply to, and that the sink logs in as."""
    database.execute(
        "DO $$BEGIN CREATE ROLE plain LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END$$;"
        "GRANT ALL ON SCHEMA public TO plain"
    )
    password = conninfo.conninfo_to_dict(server.dsn)["password"]
    database.execute(sql.SQL("ALTER ROLE plain PASSWORD {}").format(sql.Literal(password)))
    monkeypatch.setenv(VARIABLE, conninfo.make_conninfo(server.dsn, user="plain"))
    return "plain"


def hide_rows(database: psycopg.Connection, table: str) -> None:
    statement = (
        "ALTER TABLE {0} ENABLE ROW LEVEL SECURITY; ALTER TABLE {0} FORCE ROW LEVEL SECURITY;"
        "CREATE POLICY hidden ON {0} USING (false) WITH CHECK (true)"
    )
    database.execute(sql.SQL(statement).format(sql.Identifier(table)))


@pytest.mark.parametrize("table", ["orders", "oncebench_ledger", "oncebench_epochs"])
def test_row_level_security_that_hides_rows_is_refused(
    database: psycopg.Connection, start: Start, plain: str, table: str
) -> None:
    make(database, "orders")
    database.execute(f"GRANT ALL ON orders TO {plain}")
    sink = start("orders", "idempotent")
    hide_rows(database, table)
    with pytest.raises(RefusedStart, match=rf"may hide rows of table '{table}' from role 'plain'.*BYPASSRLS"):
        start("orders", "idempotent")
    with pytest.raises(RefusedStart, match=rf"may hide rows of table '{table}'"):
        sink.holder()
    with pytest.raises(PermanentFailure, match="row-level security"):
        write(sink.idempotent_writer(), 1, 0, ROWS)
    database.execute("ALTER ROLE plain BYPASSRLS")
    start("orders", "idempotent")
    database.execute("ALTER ROLE plain NOBYPASSRLS")


@pytest.mark.parametrize(
    "unique",
    ["CREATE UNIQUE INDEX ON orders (id)", "ALTER TABLE orders ADD PRIMARY KEY (id, v)",
     "CREATE UNIQUE INDEX ON orders (lower(v))"],
)  # fmt: skip
def test_a_table_that_takes_a_row_once_refuses_at_least_once(
    database: psycopg.Connection, start: Start, unique: str
) -> None:
    make(database, "orders", "n serial UNIQUE, id text, v text")
    start("orders", "acknowledged")
    database.execute(unique)
    with pytest.raises(RefusedStart, match=r"takes a row once.*each restart would fail"):
        start("orders", "acknowledged")
    for variant in ("claim", "idempotent"):
        start("orders", variant)
