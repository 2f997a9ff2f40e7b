"""The topics of rows and rejected records: the start's check, and routing for Spark's sink.

Promise: a start is refused if a topic cannot take records, also under at-most-once, where the broker reports no error.
A topic can be deleted later: the check looks once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from oncebench.delivery import quarantine
from oncebench.delivery.copies import headers as names
from oncebench.delivery.errors import RefusedStart

# Kafka's own rule (org.apache.kafka.common.internals.Topic).
_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
# What a broker answers about a topic that takes no record, and what to do then.
_UNFIT = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "does not exist. Create it, or correct its name",
    KafkaError.TOPIC_EXCEPTION: "has a name that Kafka does not allow. Take another name",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "is closed to this client. Allow WRITE on it",
}
# The id that a broker gives for a topic without one (Uuid.ZERO_UUID).
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
# This producer also writes rejected records of up to 1 MB, with our headers.
MAX_REQUEST_BYTES = 8 * 1024 * 1024


def refuse_unfit(admin: AdminClient, topics: Mapping[str, str], limit_s: float) -> None:
    """Refuses a start whose topics cannot take records.

    Sends one request, which creates no topic.

    Args:
        admin: a client of the cluster.
        topics: the use of each topic, by the topic's name.
        limit_s: for the broker's answer.

    Raises:
        RefusedStart: a topic does not exist, is closed to this client, or has a name that Kafka does not allow.
        KafkaException: the broker does not answer.
    """
    for name, use in topics.items():
        if not _NAME.fullmatch(name):
            raise _refused(name, use, KafkaError.TOPIC_EXCEPTION)
    described = admin.describe_topics(TopicCollection(list(topics)), request_timeout=limit_s)
    for name, use in topics.items():
        try:
            described[name].result()
        except KafkaException as error:
            code = error.args[0].code()
            if code in _UNFIT:
                raise _refused(name, use, code) from error
            if code != KafkaError.LEADER_NOT_AVAILABLE:  # it exists, and a leader is being elected
                raise


def _refused(name: str, use: str, code: int) -> RefusedStart:
    return RefusedStart(f"{use} {name!r} {_UNFIT[code]}, then start again. Nothing was read or written.")


def options(client: Mapping[str, Any]) -> dict[str, str]:
    """Returns the options of Spark's Kafka sink for librdkafka settings of the cluster."""
    given = {f"kafka.{name}": str(value) for name, value in client.items()}
    return {**given, "kafka.max.request.size": str(MAX_REQUEST_BYTES), "includeHeaders": "true"}


def routed(rows: DataFrame, topic: str, quarantine_topic: str) -> DataFrame:
    """Adds the column `topic`, the target of each row.

    Accepted rows go to `topic`, rejected records to `quarantine_topic`.
    """
    if quarantine.COLUMN not in rows.columns:
        return rows.withColumn("topic", f.lit(topic))
    rejected, good = f.col(quarantine.COLUMN), f.col(quarantine.COLUMN).isNull()
    own_headers = f.col("headers") if "headers" in rows.columns else f.lit(None)
    # Spark's sink has no step that could read the originals again, so their headers are not in these copies.
    reasons = f.array(
        _header(names.REASON, rejected["reason"]),
        _header(names.SOURCE_PARTITION, rejected["source_partition"]),
        _header(names.SOURCE_OFFSET, rejected["source_offset"]),
        _header(names.ORIGINAL, f.lit(names.NOT_READ.decode())),
    )
    key, value = f.col("key").cast("binary"), f.col("value").cast("binary")
    return rows.select(
        f.when(good, key).otherwise(rejected["key"]).alias("key"),
        f.when(good, value).otherwise(rejected["value"]).alias("value"),
        f.when(good, f.lit(topic)).otherwise(f.lit(quarantine_topic)).alias("topic"),
        f.when(good, own_headers).otherwise(reasons).alias("headers"),
    )


def _header(name: str, content: Column) -> Column:
    return f.struct(f.lit(name).alias("key"), content.cast("string").cast("binary").alias("value"))


def identity(admin: AdminClient, topic: str, limit_s: float) -> dict[str, str]:
    """Returns the ids of the cluster and of a topic (KIP-516); empty if there is no such topic.

    A topic that is deleted and created again has another id. A broker older than 2.8 gives none.

    Raises:
        KafkaException: the broker does not answer.
    """
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=limit_s)
    try:
        found = {"topic_id": str(described[topic].result().topic_id)}
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return {}
        raise
    cluster = admin.describe_cluster(request_timeout=limit_s).result().cluster_id
    return {"cluster": cluster or "", **found} if found["topic_id"] != _NO_ID else {"cluster": cluster or ""}
