"""Topics of the Kafka sink: requirements, identity, and options and routing of Spark's sink."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from oncebench.delivery import quarantine
from oncebench.delivery.contract import AT_LEAST_ONCE
from oncebench.delivery.copies import headers as names
from oncebench.delivery.topics.check import APPEARS_S, PAUSE_S, QUARANTINE, READ, WRITE, refuse_unfit
from oncebench.kafka_access.forms import to_spark

# The id that a broker gives for a topic without one (Uuid.ZERO_UUID).
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
# This producer also writes rejected records of up to 1 MB, with our headers.
MAX_REQUEST_BYTES = 8 * 1024 * 1024
# Kafka's Java client keeps unsent records in 32 MB, and a record must fit.
_LARGEST_BYTES = 32 * 1024 * 1024
# Markers and claims are offsets of the output topic. Kafka asks for Read on a topic whose offset is stored.
_WITH_MARKERS = (READ, WRITE)
_OUTPUT = "the output topic"


def options(client: Mapping[str, Any], limit: int | None = None) -> dict[str, str]:
    """Returns the options of Spark's Kafka sink for librdkafka settings of the cluster.

    Args:
        limit: bytes that a record of the output topic may have; None: unknown.
    """
    most = min(max(MAX_REQUEST_BYTES, limit or 0), _LARGEST_BYTES)
    return {**to_spark(client), "kafka.max.request.size": str(most), "includeHeaders": "true"}


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

    A topic that is deleted and created again has another id. A broker older than 2.8 gives none. Asks again for
    APPEARS_S: a broker that has just started may not know an old topic yet.

    Raises:
        KafkaException: the broker does not answer.
    """
    deadline = time.monotonic() + APPEARS_S
    while not (found := _identity(admin, topic, limit_s)) and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
    return found


def _identity(admin: AdminClient, topic: str, limit_s: float) -> dict[str, str]:
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=limit_s)
    try:
        found = {"topic_id": str(described[topic].result().topic_id)}
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return {}
        raise
    cluster = admin.describe_cluster(request_timeout=limit_s).result().cluster_id
    return {"cluster": cluster or "", **found} if found["topic_id"] != _NO_ID else {"cluster": cluster or ""}


def output_identity(admin: AdminClient, topic: str, limit_s: float) -> dict[str, str]:
    """Returns the identity of an output topic.

    Raises:
        RefusedStart: there is no such topic, or this user may not even describe it.
        KafkaException: the broker does not answer.
    """
    try:
        found = _identity(admin, topic, limit_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        found = {}
    if not found:
        refuse_unfit(admin, {topic: _OUTPUT}, limit_s, _WITH_MARKERS)  # asks again for some seconds
        found = identity(admin, topic, limit_s)
    return found


def refuse_unfit_topics(admin: AdminClient, output: str, rejects: str, guarantee: str, limit_s: float) -> None:
    """Refuses a start whose topics for rows and for rejected records cannot be used.

    An empty `rejects` means that there is no topic for rejected records.

    Raises:
        RefusedStart: see `oncebench.delivery.topics.check`.
        KafkaException: the broker does not answer.
    """
    if rejects:
        refuse_unfit(admin, {rejects: QUARANTINE}, limit_s)
    refuse_unfit(admin, {output: _OUTPUT}, limit_s, (WRITE,) if guarantee == AT_LEAST_ONCE else _WITH_MARKERS)
