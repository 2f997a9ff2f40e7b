"""The digest tells rows of every Spark type apart, nulls and nested values included."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from oncebench.delivery import digest
from oncebench.lab.lab import Lab
from tests.spark_sessions import sinkless, spark_session

pytestmark = [pytest.mark.contract, pytest.mark.spark]

PINNED = -5341393903594122194  # of the row in the test below, by Spark 4.2
# Two values of each type that differ as little as they can.
VALUES = {
    "string": ("'a'", "'a '"),
    "binary": ("X'00'", "X'0000'"),
    "boolean": ("true", "false"),
    "byte": ("1Y", "2Y"),
    "short": ("1S", "2S"),
    "int": ("1", "2"),
    "long": ("1L", "2L"),
    "float": ("1.0F", "1.0000001F"),
    "double": ("1.0D", "1.0000000000000002D"),
    "decimal": ("1.10BD", "1.11BD"),
    "date": ("date'2026-11-25'", "date'2026-11-26'"),
    "timestamp": ("timestamp'2026-11-25 00:00:00'", "timestamp'2026-11-25 00:00:00.000001'"),
    "timestamp_ntz": ("timestamp_ntz'2026-11-25 00:00:00'", "timestamp_ntz'2026-11-25 00:00:00.000001'"),
    "array": ("array(1, null)", "array(null, 1)"),
    "struct": ("named_struct('x', 1, 'y', null)", "named_struct('x', null, 'y', 1)"),
    "map": ("map('k', 1)", "map('k', 2)"),
    "nested timestamp": (
        "array(timestamp'2026-11-25 00:00:00')",
        "array(timestamp'2026-11-25 00:00:00.000001')",
    ),
    "nested timestamp_ntz": (
        "array(timestamp_ntz'2026-11-25 00:00:00')",
        "array(timestamp_ntz'2026-11-25 00:00:00.000001')",
    ),
}


@pytest.fixture(scope="module")
def spark(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(sinkless(lab, tmp_path_factory.mktemp("spark"))) as started:
        yield started


def hashes(spark: SparkSession, *rows: str) -> list[int]:
    made = spark.sql(" UNION ALL ".join(f"SELECT {row}" for row in rows))
    return [row[0] for row in digest.with_hash(made, made.columns).select(digest.HASH).collect()]


@pytest.mark.parametrize("kind", VALUES)
def test_two_values_and_null_hash_differently(spark: SparkSession, kind: str) -> None:
    one, other = VALUES[kind]
    found = hashes(spark, f"{one} AS a", f"{other} AS a", "null AS a", f"{one} AS a")
    assert len(set(found)) == 3
    assert found[0] == found[3]


def test_a_null_is_not_passed_over(spark: SparkSession) -> None:
    first, second = hashes(spark, "1 AS a, null AS b", "null AS a, 1 AS b")
    assert first != second


def test_values_that_change_columns_hash_differently(spark: SparkSession) -> None:
    first, second = hashes(spark, "'x' AS a, 'y' AS b", "'y' AS a, 'x' AS b")
    assert first != second


def test_the_hash_of_a_row_never_changes(spark: SparkSession) -> None:
    """Checkpoints hold digests: a later version must compute the same."""
    row = spark.sql("SELECT 'k' AS session_key, 0 AS j, 5 AS events, 1L AS total, 1L AS checksum, 4L AS ended_at")
    assert digest.with_hash(row, row.columns).first()[digest.HASH] == PINNED


def test_the_quarantine_column_is_not_hashed(spark: SparkSession) -> None:
    plain = spark.sql("SELECT 1 AS a")
    more = plain.withColumn("quarantine", f.lit("x"))
    assert digest.with_hash(plain, ["a"]).first()[1] == digest.with_hash(more, ["a"]).first()[2]
