"""Attempts of a sink's driver under a protocol: real Spark, real sink, made-up batches.

A death is an exception at a failpoint, in a task or in the driver. Unlike a kill -9 it unwinds the stack: a writer may
remove its file or roll back, and the sink is closed. `tests/integration/delivery/test_killed_jobs.py` kills processes
at the same failpoints, and `test_guarantees` kills Spark jobs. No sink is named here.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from oncebench.delivery import quarantine
from oncebench.delivery.batch import Batch, deliverable
from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, Sink, SinkKind, Support
from oncebench.delivery.failpoints import Failpoints, parse_fault
from oncebench.delivery.journal import Identity, Journal, open_journal
from oncebench.delivery.protocols import native, protocol_of
from oncebench.delivery.quarantine import Quarantine
from oncebench.delivery.starts.drivers import Drivers
from oncebench.delivery.starts.gaps import Gaps
from oncebench.lab.lab import Lab
from oncebench.sinks.registry import suite_sinks
from oncebench.sinks.suite import Place
from pipeline import rows as job_rows
from pipeline.config import PipelineConfig
from pipeline.sink import open_sink
from tests.reading import read_all

PARTITIONS = 2
ROW = ("session_key", "j", "events", "total", "checksum", "ended_at")
Made = tuple[Any, ...]  # a row in the order of ROW


class Died(Exception):
    """The driver dies here, perhaps because one of its tasks does."""


@dataclass(frozen=True)
class Deadly(Failpoints):
    """Failpoints that raise instead of killing the process."""

    faults: tuple[Any, ...] = ()
    hits: Path = Path("/dev/null")
    trace: Path | None = None
    point: str | None = None

    def asks_for(self, point: str) -> bool:
        return point == self.point

    def reach(self, point: str, batch: int, rows: int | None = None, partition: int | None = None) -> None:
        if point == self.point and partition in (None, 0):
            raise Died(f"at {point} of batch {batch}")


@dataclass
class Output:
    """One output of a kind of sink, with the checkpoint of its writers."""

    kind: SinkKind
    support: Support
    lab: Lab
    spark: SparkSession
    config: PipelineConfig
    promise: str

    def deliver(self, number: int, parts: Sequence[Sequence[Made]], die_at: str | None = None) -> bool:
        """Runs a batch in a new driver that may die in it; returns whether it survived."""
        rows = frame(self.spark, parts)
        assert rows.rdd.getNumPartitions() == len(parts)
        return self.deliver_frame(number, rows, die_at)

    def deliver_frame(self, number: int, rows: DataFrame, die_at: str | None = None) -> bool:
        driver = self.driver()
        try:
            driver.start(number - 1)
            driver.deliver(number, rows, die_at)
        except (Died, PySparkException, Py4JJavaError) as death:
            if "Died" not in f"{type(death).__name__} {death}":
                raise
            return False
        finally:
            with suppress(Exception):  # a dead driver would not close its sink properly either
                driver.sink.close()
        return True

    def driver(self) -> Driver:
        """A new driver of this checkpoint."""
        journal = open_journal(self.config.checkpoint, identity(self.config))
        return Driver(self, open_sink(self.kind, self.config, journal.driver), journal)

    def copied(self, folder: Path) -> Output:
        """The same output, with a copy of the checkpoint."""
        shutil.copytree(self.config.checkpoint, folder)
        return replace(self, config=replace(self.config, checkpoint=folder))

    def visible(self) -> Counter[Made]:
        """Every row that a committed reader sees."""
        found: Counter[Made] = Counter()
        rows = read_all(suite_sinks()[self.kind.name].read(self.config.output), settle_s=30.0)
        for key, value in zip(rows.key, rows.value, strict=True):
            row = orjson.loads(value or b"")
            assert (key or b"").decode() == row["session_key"]
            found[tuple(row[name] for name in ROW)] += 1
        return found

    def leftovers(self) -> list[str]:
        """Leftovers of dead writers, unless the sink's own housekeeping removes them."""
        if suite_sinks()[self.kind.name].traits.self_cleaning:
            return []
        with closing(suite_sinks()[self.kind.name].read(self.config.output)) as reader:
            return reader.leftovers()


@dataclass
class Driver:
    """One driver of an output."""

    output: Output
    sink: Sink
    journal: Journal

    def follow(self, newest_batch: int) -> None:
        """Compares the newest driver in the sink with the journal, as a start of the job does."""
        gaps = Gaps(self.journal.folder, None)
        Drivers(self.journal).follow(self.sink.holder(), newest_batch, self.output.config.sink_id, gaps)

    def start(self, newest_batch: int) -> None:
        """Starts with a checkpoint whose offset log ends here."""
        if self.output.promise != AT_LEAST_ONCE:
            self.follow(newest_batch + 1)  # the open batch, which may be in the sink
        self.start_sink()

    def start_sink(self) -> None:
        """Takes the sink without a look at its newest driver."""
        self.sink.start(self.output.support, self.journal.generation, self.journal.newest_prepared())

    def deliver(self, number: int, rows: DataFrame, die_at: str | None = None) -> Batch:
        """Runs a batch and returns it.

        At `die_at` it raises `Died`, or Spark's error of a task that raises `Died`.
        """
        output, config = self.output, self.output.config
        protocol = protocol_of(output.kind, output.support)
        rows = job_rows.rows_for(output.kind.takes, rows)
        if protocol is not native:
            rows = deliverable(rows, self.sink)
        faults = () if die_at is None else (parse_fault(die_at),)
        failpoints = Deadly(faults=faults, point=die_at)
        rejected = Quarantine(config.quarantine_topic, config.input_topic, config.kafka_client)
        # A query sets these for its foreachBatch, and Spark's own writers read them.
        context = output.spark.sparkContext
        context.setLocalProperty("sql.streaming.queryId", config.sink_id)
        context.setLocalProperty("streaming.sql.batchId", str(number))
        marked = output.kind.commits_per_task(output.support)
        batch = Batch(rows, number, config.partitions if marked else None, failpoints, rejected)
        batch.failpoint("batch-start")
        try:
            protocol(batch, self.sink, self.journal, config.on_lost)
        finally:
            batch.release()
        batch.failpoint("after-commit")
        return batch


def identity(config: PipelineConfig) -> Identity:
    return Identity(config.sink_id, config.sink, config.guarantee, config.variant, config.partitions)


def make_output(kind: SinkKind, support: Support, lab: Lab, spark: SparkSession, folder: Path, name: str) -> Output:
    """A new, empty output."""
    folder.mkdir(exist_ok=True)
    place = Place(
        name,
        folder,
        PARTITIONS,
        lab.kafka.access,
        lambda topic: lab.kafka.create_topic(topic, PARTITIONS),
        job_rows.SCHEMA,
        job_rows.KEY,
    )
    config = PipelineConfig(
        bootstrap_servers=lab.kafka.bootstrap_servers,
        input_topic=f"{name}.in",
        output=suite_sinks()[kind.name].provide(place),
        quarantine_topic=lab.kafka.create_topic(f"{name}.quarantine", PARTITIONS),
        sink=kind.name,
        guarantee=support.guarantee,
        variant=support.variant,
        sink_id=name,
        checkpoint=folder / "checkpoint",
        record=folder,
        partitions=PARTITIONS,
    )
    return Output(kind, support, lab, spark, config, support.guarantee)


def rows_for(key: str, count: int = 20) -> list[Made]:
    """Rows of one session."""
    return [(key, j, 5, 1000 + j, 4_000_000_000 - j, 1_700_000_000_000_000 + j) for j in range(count)]


def frame(spark: SparkSession, parts: Sequence[Sequence[Made]]) -> DataFrame:
    """A batch with exactly these rows in exactly these partitions."""
    # By default, Spark 4.2 merges a union of single partitions into one partition.
    spark.conf.set("spark.sql.unionOutputPartitioning", "false")
    made, *others = (_partition(spark, part) for part in parts)
    for other in others:
        made = made.union(other)
    return made


def _partition(spark: SparkSession, rows: Sequence[Made]) -> DataFrame:
    schema = StructType(job_rows.SCHEMA.fields)
    if not rows:  # not from Arrow: Spark would run no task for an empty Arrow table
        made = spark.createDataFrame([], schema)
    else:
        kinds = to_arrow_schema(schema).types
        table = pa.table([pa.array(*column) for column in zip(zip(*rows, strict=True), kinds, strict=True)], names=ROW)
        made = spark.createDataFrame(table)
    return made.coalesce(1).withColumn(quarantine.COLUMN, f.lit(None).cast(quarantine.TYPE))


def keeps(promise: str, visible: Counter[Made], sent: Collection[Made]) -> str:
    """How these rows break a guarantee; empty if they do not."""
    lost = [row for row in sent if visible[row] < 1]
    duplicated = [row for row in sent if visible[row] > 1]
    wrong = []
    if lost and promise != AT_MOST_ONCE:
        wrong.append(f"{len(lost)} lost, {sorted(lost)[:2]}")
    if duplicated and promise != AT_LEAST_ONCE:
        wrong.append(f"{len(duplicated)} duplicated, {sorted(duplicated)[:2]}")
    return "; ".join(wrong)
