"""Rows with a column of every Spark type, and a job that has such rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.types import StructType

from oncebench.delivery import quarantine
from pipeline import rows as job_rows
from pipeline import sink as job_sink
from tests.contract.attempts import PARTITIONS

UTC = dt.UTC
KEY = "at"
# Two extremes of each type; a row of nulls is added. The oldest timestamp lies before time zones had whole minutes.
FLAT: dict[str, tuple[t.DataType, Any, Any]] = {
    "string": (t.StringType(), "tab\t \\N \\. line\nnul\x00 \u2400 \U0001f600", ""),
    "binary": (t.BinaryType(), bytearray(b"\x00\xff\\\t\n"), bytearray()),
    "boolean": (t.BooleanType(), True, False),
    "byte": (t.ByteType(), -(2**7), 2**7 - 1),
    "short": (t.ShortType(), -(2**15), 2**15 - 1),
    "integer": (t.IntegerType(), -(2**31), 2**31 - 1),
    "long": (t.LongType(), -(2**63), 2**63 - 1),
    "float": (t.FloatType(), 0.5, float("-inf")),
    "double": (t.DoubleType(), 1.7976931348623157e308, float("inf")),
    "not_a_number": (t.DoubleType(), float("nan"), -0.0),
    "decimal": (t.DecimalType(38, 18), Decimal("12345678901234567890.000000000000000001"), Decimal("-1E-18")),
    "date": (t.DateType(), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "timestamp": (
        t.TimestampType(),
        dt.datetime(1850, 6, 1, 12, 0, 0, 1, UTC),
        dt.datetime(2026, 10, 25, 0, 30, 0, 999_999, UTC),
    ),
    "timestamp_ntz": (
        t.TimestampNTZType(),
        dt.datetime(1850, 6, 1, 12, 0, 0, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
    ),
}
NESTED: dict[str, tuple[t.DataType, Any, Any]] = {
    "array": (t.ArrayType(t.IntegerType()), [1, None], []),
    "struct": (t.StructType([t.StructField("x", t.TimestampType()), t.StructField("y", t.StringType())]),
               (dt.datetime(2026, 1, 1, 0, 0, 0, 1, UTC), None), (None, "y")),
    "map": (t.MapType(t.StringType(), t.DoubleType()), {"k": None, "l": 0.1}, {}),
    "structs": (t.ArrayType(t.StructType([t.StructField("z", t.BinaryType())])), [(bytearray(b"\x00"),), None], [None]),
}  # fmt: skip


def schema(columns: dict[str, tuple[t.DataType, Any, Any]]) -> StructType:
    """The columns, after KEY, which numbers the rows."""
    named = [t.StructField(name, kind) for name, (kind, _, _) in columns.items()]
    return StructType([t.StructField(KEY, t.IntegerType()), *named])


def values(columns: dict[str, tuple[t.DataType, Any, Any]]) -> list[tuple[Any, ...]]:
    """The two rows of extremes, and a row of nulls."""
    extremes = [(at, *(column[at + 1] for column in columns.values())) for at in range(2)]
    return [*extremes, (2, *[None] * len(columns))]


def frame(spark: SparkSession, columns: dict[str, tuple[t.DataType, Any, Any]]) -> DataFrame:
    """The rows as a query gives them, in PARTITIONS partitions; none is rejected."""
    made = spark.createDataFrame(values(columns), schema(columns)).repartition(PARTITIONS, KEY)
    return made.withColumn(quarantine.COLUMN, f.lit(None).cast(quarantine.TYPE))


def give_the_job(monkeypatch: pytest.MonkeyPatch, columns: StructType) -> None:
    """What another `pipeline/rows.py` would do."""
    monkeypatch.setattr(job_rows, "SCHEMA", columns)
    monkeypatch.setattr(job_rows, "ROW", tuple(columns.names))
    monkeypatch.setattr(job_rows, "KEY", KEY)
    monkeypatch.setattr(job_sink, "ID", (KEY,))
