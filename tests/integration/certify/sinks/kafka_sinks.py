"""A Kafka sink of a user that ignores batch_id, with the client's retries, and its reader."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame

PARTITIONS = 2


def _topic() -> str:
    return f"{os.environ['ONCEBENCH_RUN']}.rows"


def empty() -> None:
    """Makes the topic of the run."""
    admin = AdminClient({"bootstrap.servers": os.environ["ONCEBENCH_KAFKA"]})
    admin.create_topics([NewTopic(_topic(), PARTITIONS)])[_topic()].result()


def write_batch(df: DataFrame, batch_id: int) -> None:
    """At-least-once: a replay sends the rows again."""
    (
        df.selectExpr("session_key AS key", "to_json(struct(*)) AS value")
        .write.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["ONCEBENCH_KAFKA"])
        .option("kafka.retries", "5")
        .option("kafka.acks", "all")
        .option("topic", _topic())
        .save()
    )


def read_rows() -> Iterator[dict[str, Any]]:
    """Yields the records up to the end of each partition."""
    settings = {"bootstrap.servers": os.environ["ONCEBENCH_KAFKA"], "group.id": "reader", "enable.auto.commit": False}
    with closing(Consumer(settings)) as consumer:
        places = [TopicPartition(_topic(), number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        left = sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
        consumer.assign(places)
        while left > 0:
            for record in consumer.consume(min(left, 500), timeout=10):
                left -= 1
                yield json.loads(record.value())
