"""Queries of one process: restarted, side by side, and with a wrong checkpoint.

A restart follows a failure.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from oncebench.delivery.batch import Batch
from oncebench.delivery.errors import CommitUncertain, DeliveryFailed, RefusedStart
from oncebench.delivery.journal import look_into, open_journal
from oncebench.jobs import FilesSink, KafkaSink, SqliteSink, deliver, exit_code
from oncebench.jobs.output import OutputChecks
from oncebench.jobs.session import SHUFFLES
from oncebench.lab.lab import Lab
from oncebench.sinks.kafka import sink as driver_side
from oncebench.sinks.kafka.reader import KafkaReader
from tests.reading import read_all

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ROWS = 50
LIMIT_S = 60.0  # Kafka ends a transaction some milliseconds after it answers, and later on a busy machine


class Copy:
    """Rows of text files, and a topic for them."""

    def __init__(self, lab: Lab, spark: SparkSession, folder: Path) -> None:
        self.servers, self.folder = lab.kafka.bootstrap_servers, folder
        self.topic = lab.kafka.fresh_topic("copy", 2)
        self.input = folder / "input"
        self.input.mkdir()
        self._spark = spark
        self.add(0)

    def add(self, file: int) -> None:
        text = "".join(f"{number}\n" for number in range(file * ROWS, (file + 1) * ROWS))
        (self.folder / "new.txt").write_text(text)
        (self.folder / "new.txt").rename(self.input / f"{file}.txt")

    def rows(self) -> DataFrame:
        return self._spark.readStream.text(str(self.input)).selectExpr("value AS key", "value").repartition(2, "key")

    def run(self, **options: str) -> None:
        """Delivers what is there, in a query of its own."""
        sink = KafkaSink(self.topic, bootstrap_servers=self.servers, sink_id=self.topic)
        writer = deliver(self.rows(), sink, guarantee="exactly-once", checkpoint=self.folder / "checkpoint")
        writer.options(**options).trigger(availableNow=True).start().awaitTermination()

    def visible(self, settle_s: float = LIMIT_S) -> Counter[bytes]:
        """The visible rows, after a wait for open transactions to end."""
        return Counter(value or b"" for value in read_all(KafkaReader(self.servers, self.topic), settle_s).value)


@pytest.fixture
def copy(lab: Lab, spark: SparkSession, tmp_path: Path) -> Copy:
    return Copy(lab, spark, tmp_path)


def once(files: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(files * ROWS))


def test_a_query_that_failed_is_restarted_in_its_process(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    def uncertain(_self: Any, batch: int, _prepared: Any) -> set[int]:
        raise CommitUncertain(f"batch {batch} is decided, and the coordinator is silent")

    with monkeypatch.context() as patched:
        patched.setattr(driver_side.KafkaSink, "commit", uncertain)
        with pytest.raises(StreamingQueryException, match=r"CommitUncertain.*batch 0 is decided") as failed:
            copy.run()
    assert exit_code(failed.value) == 1
    assert copy.visible(settle_s=0) == {}
    copy.add(1)
    copy.run()
    assert copy.visible() == once(2)


def test_a_writer_does_not_run_a_batch_twice(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is in the table and not in Spark's commit log.

    The writer knows the markers from before the batch.
    """

    def failed(_self: Any, batch: Batch) -> None:
        raise CommitUncertain(f"batch {batch.id} is not noted")

    def started() -> DataStreamWriter:
        sink = SqliteSink(str(file), sink_id="copy")
        return deliver(copy.rows(), sink, guarantee="exactly-once", checkpoint=copy.folder / "sqlite")

    def visible() -> list[str]:
        with closing(sqlite3.connect(file)) as connection:
            return sorted(value for (value,) in connection.execute("SELECT value FROM rows"))

    file = copy.folder / "rows.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE rows (key TEXT, value TEXT)")
    with monkeypatch.context() as patched:
        patched.setattr(OutputChecks, "note_batch", failed)
        writer = started().trigger(availableNow=True)
        with pytest.raises(StreamingQueryException, match="batch 0 is not noted"):
            writer.start().awaitTermination()
    written = sorted(str(number) for number in range(ROWS))
    assert visible() == written
    with pytest.raises(StreamingQueryException) as again:
        writer.start().awaitTermination()
    assert visible() == written
    assert "WriterStartedAgain: batch 0" in str(again.value)
    started().trigger(availableNow=True).start().awaitTermination()
    assert visible() == written


def test_a_query_that_a_newer_driver_has_stopped_is_not_started_again(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer driver comes in the middle of a batch.

    The sink reports a failure that alone would pass.
    """
    commit = driver_side.KafkaSink.commit

    def fenced(self: Any, batch: int, prepared: Any) -> set[int]:
        identity, journal = look_into(copy.folder / "checkpoint")
        assert open_journal(copy.folder / "checkpoint", identity).generation == journal.generation + 1
        raise DeliveryFailed(f"batch {batch}: the producer is fenced")

    monkeypatch.setattr(driver_side.KafkaSink, "commit", fenced)
    with pytest.raises(StreamingQueryException) as stopped:
        copy.run()
    assert exit_code(stopped.value) == 2
    monkeypatch.setattr(driver_side.KafkaSink, "commit", commit)
    copy.run()
    assert copy.visible() == once(1)


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once"])
def test_a_batch_without_marks_per_task_has_any_number_of_tasks(copy: Copy, guarantee: str) -> None:
    rows = copy.rows().repartition(5)
    sink = KafkaSink(copy.topic, bootstrap_servers=copy.servers, sink_id=copy.topic)
    writer = deliver(rows, sink, guarantee=guarantee, checkpoint=copy.folder / "checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    assert copy.visible() == once(1)


def test_a_sink_id_belongs_to_one_checkpoint_of_a_process(copy: Copy) -> None:
    copy.run()
    sink = KafkaSink(copy.topic, bootstrap_servers=copy.servers, sink_id=copy.topic)
    with pytest.raises(RefusedStart, match="or a sink_id and a checkpoint of this query"):
        deliver(copy.rows(), sink, guarantee="exactly-once", checkpoint=copy.folder / "other")
    assert not (copy.folder / "other").exists()


def test_a_checkpoint_beside_the_journal_is_refused_in_the_first_batch(copy: Copy) -> None:
    with pytest.raises(StreamingQueryException, match="the query has another checkpoint than its journal"):
        copy.run(checkpointLocation=str(copy.folder / "elsewhere"))
    assert copy.visible() == {}


def test_a_checkpoint_beside_the_journal_of_an_old_job_is_refused_too(copy: Copy) -> None:
    copy.run()
    with pytest.raises(StreamingQueryException, match="metadata has another id than the query"):
        copy.run(checkpointLocation=str(copy.folder / "elsewhere"))
    assert copy.visible() == once(1)


def test_a_setting_that_changed_before_the_start_is_refused(copy: Copy, spark: SparkSession) -> None:
    sink = KafkaSink(copy.topic, bootstrap_servers=copy.servers, sink_id=copy.topic)
    writer = deliver(copy.rows(), sink, guarantee="exactly-once", checkpoint=copy.folder / "checkpoint")
    spark.conf.set(SHUFFLES, "3")
    try:
        with pytest.raises(StreamingQueryException, match=r"was 2 when deliver.* was called, and is 3 in the query"):
            writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.set(SHUFFLES, "2")
    assert copy.visible() == {}


def test_two_queries_at_once_keep_their_rows_apart(copy: Copy) -> None:
    folder = copy.folder / "files"
    folder.mkdir()
    files = FilesSink(str(folder), sink_id="files", form="jsonl")
    topic = KafkaSink(copy.topic, bootstrap_servers=copy.servers, sink_id=copy.topic)
    queries = [
        deliver(copy.rows(), sink, guarantee="exactly-once", checkpoint=copy.folder / sink.kind)
        .trigger(availableNow=True)
        .start()
        for sink in (files, topic)
    ]
    for query in queries:
        query.awaitTermination()
    assert copy.visible() == once(1)
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(lines) == len(set(lines)) == ROWS
