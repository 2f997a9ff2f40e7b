"""A Delta table that has changed since the start ends the query.

The error has the sink's own text, under every guarantee.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.delivery.failures.cause import NO_RESTART, dropped
from oncebench.jobs import DeltaSink, deliver
from oncebench.jobs.session import SHUFFLES
from oncebench.lab.lab import Lab
from oncebench.sinks.registry import SINKS
from tests.integration.jobs.rejecting import BAD, GOOD, Rejecting
from tests.spark_sessions import sinkless, spark_session

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture(scope="module")
def spark(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    delta = SINKS["delta"]
    with spark_session(sinkless(lab, tmp_path_factory.mktemp("spark"), [delta]), delta.spark) as started:
        started.conf.set(SHUFFLES, "2")
        yield started


def constrained(spark: SparkSession, table: Path) -> None:
    spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT kept CHECK (value <> '1')")


def with_other_columns(spark: SparkSession, table: Path) -> None:
    rows = spark.createDataFrame([(1,)], "key int").write.format("delta").mode("overwrite")
    rows.option("overwriteSchema", "true").save(str(table))


def removed(_spark: SparkSession, table: Path) -> None:
    shutil.rmtree(table)


each_guarantee = pytest.mark.parametrize(
    "guarantee", [*(pytest.param(each, marks=pytest.mark.slow) for each in (AT_MOST_ONCE, AT_LEAST_ONCE)), EXACTLY_ONCE]
)


@each_guarantee
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (constrained, "a row breaks a constraint of the table"),
        (with_other_columns, "has another type than in the query"),
        (removed, "it was there before"),
    ],
)
def test_a_table_that_was_changed_after_the_start_ends_the_query_in_words(
    spark: SparkSession, tmp_path: Path, change: Callable[[SparkSession, Path], None], why: str, guarantee: str
) -> None:
    table, source = tmp_path / "table", tmp_path / "input"

    def run(before: Callable[[], None] = lambda: None) -> None:
        rows = spark.readStream.text(str(source)).selectExpr("value AS key", "value").repartition(2, "key")
        sink = DeltaSink(str(table), sink_id=tmp_path.name)
        writer = deliver(rows, sink, guarantee=guarantee, checkpoint=tmp_path / "checkpoint")
        before()
        writer.trigger(availableNow=True).start().awaitTermination()

    source.mkdir()
    (source / "0.txt").write_text("7\n8\n")
    run()
    (source / "1.txt").write_text("1\n2\n")
    with pytest.raises(StreamingQueryException) as failed:
        run(lambda: change(spark, table))
    (said,) = [line for line in str(failed.value).splitlines() if line.startswith("oncebench.delivery.errors.")]
    assert said.startswith("oncebench.delivery.errors.PermanentFailure: batch 1 could not be appended")
    assert str(table) in said
    assert why in said
    assert (NO_RESTART in said, dropped(1) in said) == (guarantee != AT_MOST_ONCE, guarantee == AT_MOST_ONCE)
    assert change is not removed or not table.exists(), "no new table without the rows of earlier batches"


@each_guarantee
def test_a_batch_without_any_task_is_delivered(spark: SparkSession, tmp_path: Path, guarantee: str) -> None:
    """Spark plans a batch without tasks for an empty file, and for an empty Kafka topic.

    The query is stateless.
    """
    table, source = tmp_path / "table", tmp_path / "input"

    def run() -> None:
        rows = spark.readStream.text(str(source)).selectExpr("value AS key", "value")
        sink = DeltaSink(str(table), sink_id=tmp_path.name)
        writer = deliver(rows, sink, guarantee=guarantee, checkpoint=tmp_path / "checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()

    source.mkdir()
    (source / "0.txt").touch()
    run()
    (tmp_path / "checkpoint" / "commits" / "0").unlink()  # as after a kill: Spark replays the batch
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink()
    (source / "1.txt").write_text("7\n8\n")
    run()
    assert sorted(row.value for row in spark.read.format("delta").load(str(table)).collect()) == ["7", "8"]


def test_the_table_is_a_local_folder_whatever_sparks_default_file_system_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, source = tmp_path / "table", tmp_path / "input"
    source.mkdir()
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    local = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "hdfs://no.such.cluster.invalid")
    try:
        for number in range(2):
            (source / f"{number}.txt").write_text(f"{number}\n")
            rows = spark.readStream.text(f"file://{source}").selectExpr("value AS key", "value").repartition(2, "key")
            sink = DeltaSink(str(table), sink_id=tmp_path.name)
            writer = deliver(rows, sink, guarantee=EXACTLY_ONCE, checkpoint=tmp_path / "checkpoint")
            writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        hadoop.set("fs.defaultFS", local)
    assert sorted(row.value for row in spark.read.format("delta").load(str(table)).collect()) == ["0", "1"]


def test_rejected_records_are_copied_and_the_table_gets_the_others(
    lab: Lab, spark: SparkSession, tmp_path: Path
) -> None:
    job, table = Rejecting(lab, spark, tmp_path), tmp_path / "table"
    writer = deliver(
        job.rows(), DeltaSink(str(table), sink_id="rejecting"), guarantee=EXACTLY_ONCE,
        checkpoint=tmp_path / "checkpoint", quarantine=job.quarantine,
    )  # fmt: skip
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(row.value for row in spark.read.format("delta").load(str(table)).collect()) == sorted(GOOD)
    assert job.copies() == Counter(BAD)
