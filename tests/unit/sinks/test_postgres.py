"""The PostgreSQL sink without a server: names, secrets, the table's columns, stored texts."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    DataType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from oncebench.cli import cli
from oncebench.delivery.errors import RefusedStart
from oncebench.errors import ExitCode, UserError
from oncebench.sinks.postgres.connection import (
    GID_BYTES,
    VARIABLE,
    Names,
    connect,
    error_text,
    parts,
    redacted,
    without_secrets,
)
from oncebench.sinks.postgres.reader import Table
from oncebench.sinks.postgres.starting.keys import make_row_ids_unique
from oncebench.sinks.postgres.tables import Column, copy_text, read_back, stored, table_error
from oncebench.sinks.reader import NotAnsweredError
from pipeline.rows import SCHEMA

NAMES = Names("ob-1.a_b", 3, "ob-1.a_b")
TEXTS = StructType([StructField("a", StringType()), StructField("b", StringType())])
GOOD = {
    name: Column(name, kind, needed=True)
    for name, kind in zip(SCHEMA.names, ("text", "integer", "integer", "bigint", "bigint", "bigint"), strict=True)
}


def test_a_gid_is_unique_and_names_sink_batch_and_partition() -> None:
    gid = NAMES.fresh_gid(7, 1)
    assert gid.startswith("ob-1.a_b:7:1:")
    assert gid != NAMES.fresh_gid(7, 1)
    assert not replace(NAMES, sink_id="ob-1.a_bc").fresh_gid(7, 1).startswith(NAMES.gid_prefix)


def test_a_sink_id_too_long_for_a_gid_is_refused_with_the_limit() -> None:
    with pytest.raises(RefusedStart, match=r"at most (\d+) bytes\.$") as refused:
        replace(NAMES, sink_id="s" * 150).check()
    fits = replace(NAMES, sink_id="s" * int(str(refused.value).split()[-2]))
    fits.check()
    assert len(fits.fresh_gid(2**63 - 1, 2**31 - 1)) == GID_BYTES


def test_application_names_share_a_prefix_and_are_never_cut() -> None:
    long = replace(NAMES, sink_id="s" * 120, epoch=2**63 - 1)
    assert long.application.startswith(long.application_prefix)
    assert len(long.application) <= 63
    assert not NAMES.application.startswith(long.application_prefix)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://joe:hunter2@db.example:5433/rows?sslmode=require",
        "host=db.example password='hunter2' user=joe",
        "postgresql://joe@db.example/rows?password=hunter2",
    ],
)
def test_no_password_is_ever_printed(dsn: str) -> None:
    assert "hunter2" not in redacted(dsn)
    assert "joe" in redacted(dsn)
    assert parts(without_secrets(dsn)) == {name: value for name, value in parts(dsn).items() if value != "hunter2"}
    assert error_text(psycopg.OperationalError("no login\nwith hunter2"), dsn) == "no login with ***"


def test_a_very_short_secret_is_not_masked() -> None:
    assert (
        error_text(psycopg.OperationalError("permission denied"), "host=db.example password=p") == "permission denied"
    )


def test_a_wrong_time_limit_is_refused_before_connecting() -> None:
    for wrong in ("abc", "3.5"):
        with pytest.raises(RefusedStart, match="must be a whole number of seconds"):
            connect("test", f"host=127.0.0.1 port=1 connect_timeout={wrong}")


def test_a_text_that_is_not_a_dsn_is_refused_without_repeating_it() -> None:
    whole = "postgresql://joe:{}@db.example:5432/rows"
    for text in (
        "hunter2",
        "postgresql://joe:hunter2@db.example/rows?no-such-option=1",
        whole.format("hunter2/more"),
        whole.format("1/hunter2"),
        whole.format("1@hunter2"),
    ):
        with pytest.raises(ValueError, match="not a DSN") as refused:
            parts(text)
        assert (
            "hunter2" not in f"{refused.value} {refused.value.__cause__} {refused.value.__context__} {redacted(text)}"
        )


def test_a_password_on_the_command_line_is_refused_without_repeating_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    words = ["run", "--sink", "postgres", "--guarantee", "exactly-once", "--postgres"]
    refused = CliRunner().invoke(cli, [*words, "postgresql://joe:hunter2@db.example/rows"])
    assert isinstance(refused.exception, UserError)
    assert refused.exception.exit_code == ExitCode.USAGE
    assert "PGPASSFILE" in str(refused.exception)
    assert "hunter2" not in str(refused.exception)
    CliRunner().invoke(cli, [*words, "postgresql://joe@db.example/rows", "--sessions", "0"])
    assert VARIABLE not in os.environ


def test_only_sessions_of_older_epochs_are_ended() -> None:
    older, younger = replace(NAMES, epoch=2), replace(NAMES, epoch=11)
    assert NAMES.is_older(older.application)
    assert not any(NAMES.is_older(names.application) for names in (NAMES, younger, replace(NAMES, epoch=0)))
    assert not NAMES.is_older("oncebench.reader.x")


def test_an_error_of_a_table_names_the_column() -> None:
    assert table_error(GOOD, SCHEMA) is None
    assert table_error({**GOOD, "note": Column("note", "text", needed=False)}, SCHEMA) is None
    without = {name: column for name, column in GOOD.items() if name != "total"}
    assert table_error(without, SCHEMA) == "it has no column total (bigint)"
    assert table_error({**GOOD, "j": Column("j", "text", True)}, SCHEMA) == "its column j is text, not integer"
    always = {**GOOD, "j": Column("j", "integer", needed=False, identity=True)}
    assert table_error(always, SCHEMA) is None
    assert "its column j is GENERATED ALWAYS AS IDENTITY" in str(table_error(always, SCHEMA, inserts=True))
    assert "column note has no default" in str(table_error({**GOOD, "note": Column("note", "text", True)}, SCHEMA))


@pytest.mark.parametrize(
    ("kind", "spark_type", "rounds"),
    [
        ("numeric(10,1)", DecimalType(10, 2), True),
        ("numeric(10,2)", DecimalType(10, 2), False),
        ("numeric", DecimalType(10, 2), False),
        ("numeric(5,-1)", LongType(), True),
        ("numeric(20,0)", LongType(), False),
        ("timestamp(3) with time zone", TimestampType(), True),
        ("timestamp(6) with time zone", TimestampType(), False),
        ("timestamp with time zone", TimestampType(), False),
        ("character varying", StringType(), False),
    ],
)
def test_a_column_that_would_round_silently_is_refused(kind: str, spark_type: DataType, rounds: bool) -> None:
    wrong = table_error({"x": Column("x", kind, needed=False)}, StructType([StructField("x", spark_type)]))
    assert ("which would round" in (wrong or "")) == rounds
    assert rounds or wrong is None


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("character(3)", "is character(3), not text"),
        ("bpchar", "is bpchar, not text"),
        ("character varying(3)", "is character varying(3), which would cut blanks at the end: it must be text"),
        ("character varying", None),
        ("json", None),
        ("jsonb", None),
    ],
)
def test_a_column_that_would_change_the_blanks_of_a_text_is_refused(kind: str, why: str | None) -> None:
    wrong = table_error({"x": Column("x", kind, needed=False)}, StructType([StructField("x", StringType())]))
    assert wrong == (why and f"its column x {why}")


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\x00\u24000\\\t\n")))
def test_any_key_is_read_back_unchanged(key: str) -> None:
    assert "\x00" not in stored(key)
    assert read_back(stored(key)) == key


@settings(deadline=None)  # the first call loads what Arrow needs
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\x00\u24000\\\t\r\nN."))))
def test_copy_text_reads_back_row_by_row(keys: list[str]) -> None:
    rows = batch(keys)
    lines = bytes(copy_text(rows)).decode().split("\n")
    assert lines.pop() == ""
    fields = [line.split("\t") for line in lines]
    assert [read_back(unescaped(first)) for first, *_ in fields] == keys
    assert [rest for _, *rest in fields] == [[str(at), "5", "-1", "2", "3"] for at in range(len(keys))]
    half = rows.slice(len(keys) // 2)
    assert bytes(copy_text(half)).decode() == "".join(f"{line}\n" for line in lines[len(keys) // 2 :])


def batch(keys: list[str]) -> pa.RecordBatch:
    count = len(keys)
    return pa.record_batch(
        {
            "session_key": pa.array(keys, pa.string()),
            "j": pa.array(range(count), pa.int32()),
            "events": pa.array([5] * count, pa.int32()),
            "total": pa.array([-1] * count, pa.int64()),
            "checksum": pa.array([2] * count, pa.int64()),
            "ended_at": pa.array([3] * count, pa.int64()),
        }
    )


def unescaped(text: str) -> str:
    """What COPY makes of a field."""
    assert text != "\\N"
    made, characters = "", iter(text)
    for character in characters:
        made += {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}[next(characters)] if character == "\\" else character
    return made


def test_a_server_that_is_away_is_not_an_empty_table() -> None:
    table: Any = Table.__new__(Table)
    table._connection = SimpleNamespace(closed=False, close=lambda: None)
    table._names, table._pages, table._away_since = SimpleNamespace(table="t"), None, None

    def away() -> None:
        raise psycopg.OperationalError("no answer")

    table._fresh = away
    with pytest.raises(NotAnsweredError):
        table.fresh()


def keyed(own: bool | None, refused: str, error: psycopg.Error) -> Any:
    """A connection that answers whether the own key is usable, and refuses some statements."""

    def execute(statement: Any, _values: Any = None) -> SimpleNamespace:
        text = statement if isinstance(statement, str) else statement.as_string()
        if refused in text:
            raise error
        if text.startswith("EXPLAIN"):
            raise psycopg.errors.InvalidColumnReference("no unique or exclusion constraint matches")
        return SimpleNamespace(fetchone=lambda: (own,))

    return cast("Any", SimpleNamespace(connection=None, execute=execute, transaction=nullcontext))


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.InsufficientPrivilege("permission denied for table rows"),
        psycopg.errors.FeatureNotSupported("cannot be used with a table that has INSERT or UPDATE rules"),
    ],
)
def test_a_start_tries_an_upsert_over_the_tables_own_key(error: psycopg.Error) -> None:
    with pytest.raises(type(error)):
        make_row_ids_unique(keyed(True, "EXPLAIN INSERT", error), "rows", ["a"], TEXTS)


@pytest.mark.parametrize("own", [None, False])
def test_a_partitioned_table_needs_a_key_of_its_own_for_an_upsert(own: bool | None) -> None:
    error = psycopg.errors.FeatureNotSupported("it must include all partitioning columns")
    with pytest.raises(RefusedStart, match=r"all partitioning columns\. Make a primary key over exactly these columns"):
        make_row_ids_unique(keyed(own, "CREATE UNIQUE INDEX", error), "rows", ["a"], TEXTS)
