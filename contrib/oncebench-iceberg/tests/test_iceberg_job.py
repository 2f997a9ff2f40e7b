"""A Spark job with an Iceberg table that is changed while the job is down."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from iceberg_tables import Tables
from oncebench_iceberg.catalogs.local import LocalPlace
from oncebench_iceberg.job import IcebergTable
from pyspark.sql import SparkSession

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.delivery.errors import RefusedStart
from oncebench.downloads.java import find_java
from oncebench.jobs import deliver
from oncebench.jobs.session import AT_START, SHUFFLES

# Spark starts for a promise that the contract tests keep, too: `make test-slow` runs it.
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(find_java().home))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        for name, value in {**AT_START, SHUFFLES: "2", "spark.sql.session.timeZone": "UTC"}.items():
            session = session.config(name, value)
        started = session.getOrCreate()
        yield started
        started.stop()


class Job:
    """A job that reads lines of text, and its table."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.tables = Tables(LocalPlace(folder / "warehouse", "shop.orders"))
        (folder / "input").mkdir()

    def run(self, *lines: str) -> None:
        """One batch with these lines, or the open batch again."""
        if lines:
            (self.folder / "input" / f"{lines[0]}.txt").write_text("\n".join(lines))
        read = self.spark.readStream.text(str(self.folder / "input"))
        rows = read.selectExpr("value AS key", "length(value) AS n").repartition(2, "key")
        sink = IcebergTable(str(self.folder / "warehouse"), "shop.orders", sink_id=self.folder.name)
        writer = deliver(rows, sink, guarantee=EXACTLY_ONCE, checkpoint=self.folder / "checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()

    def forget(self, batch: int) -> None:
        """As if the driver had died before Spark noted the batch."""
        for name in (str(batch), f".{batch}.crc"):
            (self.folder / "checkpoint" / "commits" / name).unlink()

    def snapshots(self) -> list[int]:
        return [snapshot.snapshot_id for snapshot in self.tables.load().metadata.snapshots]


def test_an_open_batch_is_not_repeated_after_its_snapshot_expired(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    job.run("a", "b")
    job.run("c")
    job.forget(1)
    before = job.snapshots()
    table = job.tables.load()
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(next(iter(table.scan().plan_files())).file)  # a row twice, by another writer
    job.tables.load().maintenance.expire_snapshots().by_ids(before).commit()
    twice = job.tables.keys()
    job.run()
    assert job.tables.keys() == twice
    job.run("d")
    assert job.tables.keys() == sorted([*twice, "d"])


def test_a_table_that_was_rolled_back_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    job.run("a")
    job.run("b")
    job.run("c")
    _, first, *_, newest = job.snapshots()  # each start and each batch makes one
    job.tables.load().manage_snapshots().rollback_to_snapshot(first).commit()
    assert job.tables.keys() == ["a"]
    with pytest.raises(RefusedStart, match="the newest batch there is 0, and batch 2 was committed"):
        job.run("d")
    job.tables.load().manage_snapshots().set_current_snapshot(newest).commit()
    job.run()
    assert job.tables.keys() == ["a", "b", "c", "d"]


def test_a_table_made_again_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    job.run("a")
    job.tables.catalog()._catalog().drop_table("shop.orders")
    with pytest.raises(RefusedStart, match="is not the output that this checkpoint has written"):
        job.run("b")
