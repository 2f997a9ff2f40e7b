"""Every Spark type that a sink takes comes back as it was.

Others are refused by column name.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from pyspark.sql import types as t
from pyspark.sql.types import StructField, StructType

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.delivery.errors import RefusedStart
from oncebench.lab.lab import Lab
from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.postgres.connection import VARIABLE
from oncebench.sinks.postgres.tables import SQL_TYPES, read_back
from oncebench.sinks.registry import SINKS, suite_sinks
from oncebench.sinks.sqlite.sink import SQL_TYPES as SQLITE_TYPES
from pipeline.sink import open_sink
from tests.contract.attempts import Output, make_output
from tests.every_type import FLAT, KEY, NESTED, frame, give_the_job, schema, values
from tests.reading import read_all
from tests.spark_sessions import sinkless, spark_session

pytestmark = [pytest.mark.integration, pytest.mark.spark]

Columns = dict[str, tuple[t.DataType, Any, Any]]
Make = Callable[[str, str, Columns], Output]
# A zone with whole hours today, and with seconds in the time of the oldest timestamp.
ZONE = "Europe/Berlin"
POSTGRES = [support.variant for support in SINKS["postgres"].supports]


@pytest.fixture(scope="module")
def spark(lab: Lab, server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    kinds = [SINKS[name] for name in ("postgres", "delta", "kafka")]
    settings = {**SINKS["delta"].spark, "spark.sql.session.timeZone": ZONE}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, server.dsn)  # its workers have the environment of its start
        with spark_session(sinkless(lab, tmp_path_factory.mktemp("spark"), kinds), settings) as started:
            yield started


@pytest.fixture
def make(lab: Lab, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    def made(sink: str, variant: str, columns: Columns) -> Output:
        give_the_job(monkeypatch, schema(columns))
        (support,) = [each for each in SINKS[sink].supports if each.variant == variant]
        name = f"types-{uuid.uuid4().hex[:10]}"
        return make_output(SINKS[sink], support, lab, spark, tmp_path / name, name)

    return made


def written(output: Output, columns: Columns) -> None:
    assert output.deliver_frame(0, frame(output.spark, columns))


def read(output: Output) -> list[dict[str, Any]]:
    """The rows of the suite's committed reader, by KEY."""
    found = read_all(suite_sinks()[output.kind.name].read(output.config.output), settle_s=30.0)
    return sorted((json.loads(value or b"") for value in found.value), key=lambda row: row[KEY])


def test_every_type_of_postgres_is_tried() -> None:
    assert {kind.typeName().partition("(")[0] for kind, _, _ in FLAT.values()} == set(SQL_TYPES)


# The other variants write by the same COPY as `two-phase`, or by Spark's own writer.
OTHERS = [each for each in POSTGRES if each not in ("two-phase", "upsert")]


@pytest.mark.parametrize(
    "variant", [pytest.param(each, marks=pytest.mark.slow if each in OTHERS else ()) for each in POSTGRES]
)
def test_postgres_stores_every_type_that_it_names(make: Make, server: PostgresServer, variant: str) -> None:
    output = make("postgres", variant, FLAT)
    written(output, FLAT)
    with psycopg.connect(server.dsn) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        columns = sql.SQL(", ").join(map(sql.Identifier, (KEY, *FLAT)))
        query = sql.SQL("SELECT {} FROM {} ORDER BY at").format(columns, sql.Identifier(output.config.output["output"]))
        found = [list(row) for row in connection.execute(query).fetchall()]
    for row in found:
        row[1] = None if row[1] is None else read_back(row[1])  # text cannot hold U+0000
    assert list(map(repr, found)) == [repr(plain(row)) for row in values(FLAT)]
    assert [row[KEY] for row in read(output)] == [0, 1, 2]


def plain(row: tuple[Any, ...]) -> list[Any]:
    """A row as psycopg returns it."""
    return [bytes(value) if isinstance(value, bytearray) else value for value in row]


def test_an_upsert_of_a_row_without_an_id_is_refused(make: Make) -> None:
    """Two nulls are different ids to PostgreSQL, so a replay would write the row again."""
    output = make("postgres", "upsert", FLAT)
    rows = frame(output.spark, FLAT).selectExpr("nullif(at, 2) AS at", *(f"`{name}`" for name in (*FLAT, "quarantine")))
    with pytest.raises(Exception, match="'at' is null in a row of batch 0"):
        output.deliver_frame(0, rows)


@pytest.mark.parametrize("sink", ["postgres", "sqlite"])
@pytest.mark.parametrize("kind", [column[0] for column in NESTED.values()], ids=NESTED)
def test_a_type_that_has_no_place_in_a_table_is_refused_by_column_name(
    make: Make, monkeypatch: pytest.MonkeyPatch, sink: str, kind: t.DataType
) -> None:
    output = make(sink, "idempotent", {"good": (t.LongType(), 0, 1)})
    give_the_job(monkeypatch, StructType([StructField(KEY, t.IntegerType()), StructField("bad one", kind)]))
    with pytest.raises(RefusedStart, match=r"column 'bad one' is (array|struct|map)<"):
        open_sink(output.kind, output.config)


def test_sqlite_stores_every_type_that_it_names(make: Make) -> None:
    columns = {name: column for name, column in FLAT.items() if column[0].typeName() in SQLITE_TYPES}
    output = make("sqlite", "idempotent", columns)
    written(output, columns)
    with closing(sqlite3.connect(output.config.output["output"])) as connection:
        names = ", ".join(f'"{name}"' for name in (KEY, *columns))
        found = connection.execute(f"SELECT {names} FROM rows ORDER BY at").fetchall()
    # A NaN is SQLite's null.
    wanted = [tuple(None if value != value else value for value in plain(row)) for row in values(columns)]
    assert found == wanted
    assert [row[KEY] for row in read(output)] == [0, 1, 2]


@pytest.mark.parametrize("variant", ["two-phase", "native"])
def test_parquet_files_hold_every_type_nested_ones_too(make: Make, variant: str) -> None:
    columns = FLAT | NESTED
    output = make("files-parquet", variant, columns)
    written(output, columns)
    found = output.spark.read.parquet(output.config.output["output"])
    assert dict(found.dtypes) == {field.name: field.dataType.simpleString() for field in schema(columns)}
    wanted = frame(output.spark, columns).drop("quarantine")
    assert list(map(repr, found.orderBy(KEY).collect())) == list(map(repr, wanted.orderBy(KEY).collect()))
    rows = read(output)
    assert [row[KEY] for row in rows] == [0, 1, 2]
    assert rows[0]["array"] == [1, None]
    assert {name for name, value in rows[2].items() if value is not None} == {KEY}


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_parquet_files_hold_null_structs_whose_fields_are_never_null(make: Make, guarantee: str) -> None:
    kind = t.StructType([t.StructField("reason", t.StringType(), nullable=False)])
    columns: Columns = {"refund": (kind, ("late",), None), "refunds": (t.ArrayType(kind), [("late",), None], None)}
    output = make("files-parquet", {"exactly-once": "two-phase", "at-least-once": "acknowledged"}[guarantee], columns)
    written(output, columns)
    found = output.spark.read.parquet(output.config.output["output"]).orderBy(KEY)
    assert [tuple(row) for row in found.collect()] == [
        (0, ("late",), [("late",), None]),
        (1, None, None),
        (2, None, None),
    ]


TEXTS = ("cast(X'636166E9' AS string)", "array(cast(X'FF' AS string))", "map(cast(X'FF' AS string), 1)",
         "map('k', struct(cast(X'FF' AS string) `a.b`))")  # fmt: skip
TEXT_SINKS = [("files-jsonl", text) for text in TEXTS] + [("files-parquet", text) for text in TEXTS[::3]]
TEXT_SINKS += [("sqlite", TEXTS[0]), ("postgres", TEXTS[0]), ("delta", TEXTS[0])]


@pytest.mark.parametrize(("sink", "text"), TEXT_SINKS)
def test_a_text_that_is_not_utf8_is_stored_nowhere(make: Make, sink: str, text: str) -> None:
    """Another task may have written its rows."""
    output = make(sink, "two-phase" if sink.startswith("files") else "idempotent", {"good": FLAT["string"]})
    rows = frame(output.spark, {"good": FLAT["string"]}).selectExpr(KEY, f"if(at = 1, {text}, null) good", "quarantine")
    with pytest.raises(
        Exception, match=r"PermanentFailure: batch 0, partition \d: column '(line|good)' has a text that"
    ):
        output.deliver_frame(0, rows)
    if sink != "delta":  # no table was made
        assert 1 not in [row.get(KEY) for row in read(output)]


def test_json_lines_take_a_struct_whose_fields_differ_in_case_only(make: Make) -> None:
    kind = StructType([StructField("id", t.StringType()), StructField("ID", t.StringType())])
    columns: Columns = {"both": (kind, ("a", "b"), ("c", None))}
    output = make("files-jsonl", "two-phase", columns)
    written(output, columns)
    assert [row["both"] for row in read(output)] == [{"id": "a", "ID": "b"}, {"id": "c", "ID": None}, None]


def test_json_lines_hold_nulls_and_microseconds(make: Make) -> None:
    columns = FLAT | NESTED
    output = make("files-jsonl", "two-phase", columns)
    written(output, columns)
    check_json(read(output), columns)


@pytest.mark.parametrize("variant", ["two-phase", "native"])
def test_a_record_of_kafka_holds_nulls_and_microseconds(make: Make, variant: str) -> None:
    columns = FLAT | NESTED
    output = make("kafka", variant, columns)
    written(output, columns)
    check_json(read(output), columns)


def check_json(rows: list[dict[str, Any]], columns: Columns) -> None:
    assert [set(row) for row in rows] == [{KEY, *columns}] * 3, "a null is written, not left out"
    assert rows[2] == {KEY: 2, **dict.fromkeys(columns)}
    assert rows[0]["timestamp"].partition(".")[2][:6] == "000001"
    assert rows[0]["struct"]["x"].partition(".")[2][:6] == "000001"
    assert rows[0]["timestamp_ntz"].partition(".")[2] == "000001"
    assert (rows[0]["not_a_number"], rows[1]["double"]) == ("NaN", "Infinity")
    assert (rows[0]["array"], rows[0]["map"]) == ([1, None], {"k": None, "l": 0.1})


@pytest.mark.slow  # Spark writes the files of Delta
def test_delta_holds_every_type_nested_ones_too(make: Make) -> None:
    columns = FLAT | NESTED
    output = make("delta", "idempotent", columns)
    assert output.support.guarantee == EXACTLY_ONCE
    written(output, columns)
    found = output.spark.read.format("delta").load(output.config.output["output"])
    assert dict(found.dtypes) == {field.name: field.dataType.simpleString() for field in schema(columns)}
    wanted = frame(output.spark, columns).drop("quarantine")
    assert list(map(repr, found.orderBy(KEY).collect())) == list(map(repr, wanted.orderBy(KEY).collect()))
    assert [row[KEY] for row in read(output)] == [0, 1, 2]
