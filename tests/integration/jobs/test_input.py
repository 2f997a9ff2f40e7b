"""A job that names its input topic is refused if the topic is wrong.

The topic is another one, or lacks records that the job needs.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.sql import DataFrame, SparkSession

from oncebench.delivery.errors import RefusedStart
from oncebench.jobs import FilesSink, KafkaInput, deliver
from oncebench.lab.lab import Lab

pytestmark = [pytest.mark.integration, pytest.mark.spark]

WAIT_S = 60.0


class Job:
    """Copies a topic of one partition into files."""

    def __init__(self, lab: Lab, spark: SparkSession, folder: Path) -> None:
        self.kafka, self._spark, self._folder = lab.kafka, spark, folder
        self.topic = lab.kafka.fresh_topic("input", 1)
        self.client = {"bootstrap.servers": lab.kafka.bootstrap_servers}

    def rows(self, topics: str, by: str) -> DataFrame:
        source = self._spark.readStream.format("kafka").option("startingOffsets", "earliest")
        source = source.option("kafka.bootstrap.servers", self.kafka.bootstrap_servers).option(by, topics)
        return source.load().selectExpr("CAST(value AS STRING) AS value").repartition(2, "value")

    def run(self, topics: str = "", by: str = "subscribe", **more: Any) -> None:
        """Delivers what is there."""
        writer = deliver(
            self.rows(topics or self.topic, by), FilesSink(str(self._folder / "out"), sink_id=self.topic, form="jsonl"),
            guarantee="exactly-once", checkpoint=self._folder / "checkpoint",
            **{"input": KafkaInput(self.topic, self.client), **more},
        )  # fmt: skip
        writer.trigger(availableNow=True).start().awaitTermination()

    def refusal(self, **more: Any) -> str:
        with pytest.raises(RefusedStart) as refused:
            self.run(**more)
        return str(refused.value)

    def send(self, *values: str) -> None:
        producer = Producer({**self.client, "enable.idempotence": True})
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(WAIT_S) == 0

    def create_again(self) -> None:
        admin = self.kafka.admin()
        admin.delete_topics([self.topic])[self.topic].result(30)
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                admin.create_topics([NewTopic(self.topic, 1)])[self.topic].result(30)
                return
            except KafkaException as error:  # the old one is still being deleted
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def delete_before(self, offset: int) -> None:
        admin = self.kafka.admin()  # it must live until the answer
        (deleted,) = admin.delete_records([TopicPartition(self.topic, 0, offset)]).values()
        deleted.result(30)

    def written(self) -> Counter[str]:
        found = self._spark.read.schema("value STRING").json(str(self._folder / "out"))
        return Counter(row.value for row in found.collect())


@pytest.fixture
def job(lab: Lab, spark: SparkSession, tmp_path: Path) -> Job:
    return Job(lab, spark, tmp_path)


def test_an_input_topic_that_was_made_again_is_refused(job: Job) -> None:
    job.send("a", "b")
    job.run()
    job.create_again()
    job.send("c", "d", "e")  # more records than were read: Spark alone would leave out c and d
    said = job.refusal()
    assert "is not the topic that this checkpoint has read (input/topic_id:" in said
    assert job.written() == Counter("ab")
    job.run(accept_gap=said.rsplit(": ", 1)[1])
    assert job.written() == Counter("abcde")
    job.run()
    assert job.written() == Counter("abcde")


def test_a_topic_that_was_read_uncompared_is_not_read_again(job: Job) -> None:
    job.send("a", "b")
    job.run()
    job.create_again()
    job.send("c", "d", "e")
    said = job.refusal(input=None)
    job.run(input=None, accept_gap=said.rsplit(": ", 1)[1])
    assert job.written() == Counter("abe"), "without a comparison, Spark goes on at the old offset"
    job.run()
    assert job.written() == Counter("abe")


def test_records_that_are_gone_are_refused_with_their_offsets(job: Job) -> None:
    job.send("a", "b")
    job.run()
    job.send("c", "d", "e")
    job.delete_before(4)
    said = job.refusal()
    assert said.endswith("give back exactly this text as accept_gap or --accept-gap: input/0:2..3")
    job.run(accept_gap="input/0:2..3")
    assert job.written() == Counter("abe")


def test_an_input_that_the_query_does_not_read_alone_is_refused(job: Job, tmp_path: Path) -> None:
    assert "and the query reads 'another'. Name the one topic" in job.refusal(topics="another")
    assert "or leave out input=" in job.refusal(topics=f"{job.topic},another")
    assert "reads a source 'kafka' without the option subscribe" in job.refusal(by="subscribePattern")
    job.topic = "missing"
    assert "the input topic 'missing' does not exist" in job.refusal(topics="missing")
    assert not (tmp_path / "checkpoint").exists()
