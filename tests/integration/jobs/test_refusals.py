"""A session or a query is refused if it cannot support a guarantee.

The refusal comes before a checkpoint is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.quarantine import COLUMN, TYPE
from oncebench.jobs import KafkaSink, PostgresSink, deliver
from oncebench.jobs.session import ADAPTIVE, AT_START, LARGE_TYPES
from oncebench.jobs.sinks import JobSink

pytestmark = [pytest.mark.integration, pytest.mark.spark]

KAFKA = KafkaSink("out", bootstrap_servers="localhost:1", sink_id="mine")


def records(spark: SparkSession) -> DataFrame:
    value = f.col("value").cast("string")
    return spark.readStream.format("rate").load().select(value.alias("key"), value)


def refusal(rows: DataFrame, checkpoint: Path, sink: JobSink = KAFKA) -> str:
    with pytest.raises(RefusedStart) as refused:
        deliver(rows, sink, guarantee="exactly-once", checkpoint=checkpoint)
    assert not checkpoint.exists()
    return str(refused.value)


@pytest.mark.parametrize(("name", "value"), [(ADAPTIVE, "true"), (ADAPTIVE, None), (LARGE_TYPES, "true")])
def test_a_setting_of_the_session_is_refused_with_its_line(
    spark: SparkSession, tmp_path: Path, name: str, value: str | None
) -> None:
    """A job that does not set it has Spark's own default."""
    before = spark.conf.get(name)
    if value is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, value)
    try:
        said = refusal(records(spark).repartition(2, "key"), tmp_path / "checkpoint")
    finally:
        spark.conf.set(name, str(before))
    assert f'Write before deliver(...): spark.conf.set("{name}", "false")' in said


def test_a_context_that_tries_again_is_refused_with_its_lines(spark: SparkSession, tmp_path: Path) -> None:
    conf = spark.sparkContext._conf
    before = {name: conf.get(name) for name in AT_START}
    for name in AT_START:
        conf.set(name, "true" if "spec" in name or "ignore" in name else "4")
    try:
        said = refusal(records(spark).repartition(2, "key"), tmp_path / "checkpoint")
    finally:
        for name, value in before.items():
            conf.set(name, str(value))
    assert '.config("spark.stage.maxConsecutiveAttempts", "1")' in said
    assert "SparkSession.builder" in said


def test_a_password_that_spark_shows_is_refused_without_its_value(spark: SparkSession, tmp_path: Path) -> None:
    conf, name = spark.sparkContext._conf, "spark.executorEnv.ONCEBENCH_POSTGRES"
    conf.set(name, "postgresql://me:hunter2@db/orders")
    try:
        said = refusal(records(spark).repartition(2, "key"), tmp_path / "checkpoint", PostgresSink("t", sink_id="p"))
    finally:
        conf._jconf.remove(name)
    assert f"the setting {name} is a URI with a password" in said
    assert "set it as spark.executorEnv.PGPASSWORD" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (lambda rows: rows, 'End the query with `rows.repartition(2, "key")`'),
        (lambda rows: rows.repartition(2, f.rand()), "is not deterministic"),
        (lambda rows: rows.repartition(3, "key"), "ends in 3 tasks"),
        (lambda rows: rows.drop("value").repartition(2, "key"), "there is no column 'value'"),
        (lambda rows: rows.withColumn("more", f.lit(1)).repartition(2, "key"), "column 'more' has no place"),
        (lambda rows: rows.select(f.lit(1).alias("key"), "value").repartition(2, "value"), "column 'key' is int"),
        (lambda rows: rows.select("*", f.lit(1).alias("KEY")).repartition(2, "value"), "have the same name but for"),
        (lambda rows: rows.withColumn(COLUMN, f.lit(None).cast(TYPE)).repartition(2, "key"), "has no quarantine"),
    ],
)  # fmt: skip
def test_a_query_is_refused_before_a_checkpoint_is_made(
    spark: SparkSession, tmp_path: Path, query: Callable[[DataFrame], DataFrame], said: str
) -> None:
    assert re.search(re.escape(said), refusal(query(records(spark)), tmp_path / "checkpoint"))


def test_a_column_that_a_table_cannot_store_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    rows = records(spark).withColumn("parts", f.array("value")).repartition(2, "key")
    assert "'parts'" in refusal(rows, tmp_path / "checkpoint", PostgresSink("out", sink_id="mine"))
