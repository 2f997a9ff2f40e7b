"""Queries whose plans give each row the same task in a replay, and queries that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncebench.delivery.deterministic_plan import refuse_without_shuffle
from oncebench.delivery.errors import RefusedStart
from oncebench.lab.lab import Lab
from pipeline.config import PipelineConfig
from pipeline.query import query
from tests.spark_sessions import spark_session

pytestmark = [pytest.mark.contract, pytest.mark.spark]

Query = Callable[[DataFrame], DataFrame]
STABLE: dict[str, Query] = {
    "repartitioned by a column": lambda rows: rows.repartition(2, "value"),
    "repartitioned, then mapped": lambda rows: rows.repartition("value").select(f.col("value") + 1).where("true"),
    "counted": lambda rows: rows.groupBy("timestamp").count(),
    "deduplicated": lambda rows: rows.dropDuplicatesWithinWatermark(["value"]),
    "joined from two streams": lambda rows: rows.join(rows.select("value", f.col("timestamp").alias("later")), "value"),
    "repartitioned by a column into fewer tasks": lambda rows: rows.repartition(1, "value"),
    "repartitioned round-robin, then by a column": lambda rows: rows.repartition(4).repartition(2, "value"),
    "a union of rows that are repartitioned alike": lambda rows: by_value(rows, 2).union(by_value(rows, 2)),
    "repartitioned, then joined with a table": lambda rows: rows.repartition(2, "value").join(table(rows), "value"),
    "repartitioned, then sorted in each task": lambda rows: by_value(rows, 2).sortWithinPartitions("timestamp"),
    "repartitioned by a column, with a random one": lambda rows: random(rows).repartition(2, "value"),
    "repartitioned by random, then by a column": lambda rows: rows.repartition(2, f.rand()).repartition(2, "value"),
    "deduplicated by a column, with a random one": lambda rows: random(rows).dropDuplicates(["value", "timestamp"]),
}
UNSTABLE: dict[str, Query] = {
    "unchanged": lambda rows: rows,
    "repartitioned round-robin": lambda rows: rows.repartition(2),
    "repartitioned by range": lambda rows: rows.repartitionByRange(2, "value"),
    "joined with a table": lambda rows: rows.join(table(rows), "value"),
    "repartitioned by a column, then round-robin": lambda rows: by_value(rows, 2).repartition(2),
    "repartitioned by a column, mapped, then round-robin": lambda rows: by_value(rows, 2).where("true").repartition(2),
    "repartitioned by a column, then by range": lambda rows: by_value(rows, 2).repartitionByRange(2, "value"),
    "repartitioned by a column, then coalesced": lambda rows: by_value(rows, 4).coalesce(2),
    "counted, then round-robin": lambda rows: rows.groupBy("timestamp").count().repartition(2),
    "counted, then by range": lambda rows: rows.groupBy("timestamp").count().repartitionByRange(2, "count"),
    "counted, then sorted": lambda rows: rows.groupBy("timestamp").count().orderBy("count"),
    "a union with unchanged rows": lambda rows: rows.repartition(2, "value").union(rows),
}
RANDOM: dict[str, Query] = {
    "repartitioned by a random number": lambda rows: rows.repartition(2, f.rand()),
    "repartitioned by an expression of a random number": lambda rows: rows.repartition(2, f.col("value") + f.rand()),
    "repartitioned by a random number, then mapped": lambda rows: rows.repartition(2, f.rand()).select("value"),
    "repartitioned by a random column": lambda rows: random(rows).repartition(2, "random"),
    "repartitioned by a column made from a random one": lambda rows: (
        random(rows).withColumn("more", f.col("random") + 1).repartition(2, "more")
    ),
    "repartitioned by a random column of a union": lambda rows: (
        rows.withColumn("random", f.lit(0.5)).union(random(rows)).repartition(2, "random")
    ),
    "repartitioned by a random column of a table": lambda rows: rows.join(random(table(rows)), "value").repartition(
        2, "random"
    ),
    "repartitioned by an exploded random number": lambda rows: rows.select(
        f.explode(f.array(f.rand())).alias("random")
    ).repartition(2, "random"),
    "repartitioned by a function that is not deterministic": lambda rows: rows.repartition(
        2, f.udf(str, "string").asNondeterministic()("value")
    ),
    "counted by a random column": lambda rows: random(rows).groupBy("timestamp", "random").count(),
    "deduplicated by a random column": lambda rows: random(rows).dropDuplicatesWithinWatermark(["random"]),
}
TOO_MANY: dict[str, tuple[Query, int]] = {
    "repartitioned into more tasks": (lambda rows: by_value(rows, 4), 4),
    "repartitioned into more tasks, then mapped": (lambda rows: by_value(rows, 3).select("value"), 3),
    "a union of both": (lambda rows: by_value(rows, 2).union(by_value(rows, 1)), 3),
}


def by_value(rows: DataFrame, tasks: int) -> DataFrame:
    return rows.repartition(tasks, "value")


def random(rows: DataFrame) -> DataFrame:
    return rows.withColumn("random", f.rand())


def table(rows: DataFrame) -> DataFrame:
    return rows.sparkSession.range(3).withColumnRenamed("id", "value")


@pytest.fixture(scope="module")
def config(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> PipelineConfig:
    folder = tmp_path_factory.mktemp("spark")
    return PipelineConfig("localhost:1", "in", {}, "", "", "", "", "", folder, Path(folder), **lab.spark([]))


@pytest.fixture(scope="module")
def spark(config: PipelineConfig) -> Iterator[SparkSession]:
    with spark_session(config) as started:
        yield started


def rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")


@pytest.mark.parametrize("name", STABLE)
def test_a_query_that_repartitions_by_key_may_start(spark: SparkSession, name: str) -> None:
    refuse_without_shuffle(STABLE[name](rate(spark)), 2, "value")


def test_the_suites_own_query_may_start(spark: SparkSession, config: PipelineConfig) -> None:
    refuse_without_shuffle(query(spark, config), 2, "session_key")


@pytest.mark.parametrize("name", UNSTABLE)
def test_a_query_without_stable_task_numbers_is_refused(spark: SparkSession, name: str) -> None:
    with pytest.raises(RefusedStart, match=r'End the query with `rows.repartition\(2, "value"\)`'):
        refuse_without_shuffle(UNSTABLE[name](rate(spark)), 2, "value")


@pytest.mark.parametrize("name", RANDOM)
def test_a_query_with_a_random_key_is_refused(spark: SparkSession, name: str) -> None:
    with pytest.raises(RefusedStart, match=r"is not deterministic\..* `rows.repartition\(2, \"value\"\)`"):
        refuse_without_shuffle(RANDOM[name](rate(spark)), 2, "value")


@pytest.mark.parametrize("name", TOO_MANY)
def test_a_query_with_more_tasks_than_marks_is_refused(spark: SparkSession, name: str) -> None:
    query, tasks = TOO_MANY[name]
    with pytest.raises(RefusedStart, match=rf"ends in {tasks} tasks.* `rows.repartition\(2, \"value\"\)`"):
        refuse_without_shuffle(query(rate(spark)), 2, "value")
