"""How large a record of a topic may be, and the settings of a producer for such records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

# librdkafka's largest: the topic's limit decides, not the client's.
MAX_MESSAGE_BYTES = 1_000_000_000
# librdkafka's default of a batch of records. A topic's limit may be smaller and applies to the batch.
BATCH_BYTES = 1_000_000
# Room for the largest record at least. librdkafka's default, 1 GB per worker, would let a flood fill the memory.
QUEUE_BYTES = 64 * 1024 * 1024
# A running broker answers in milliseconds.
DESCRIBE_S = 10.0


def topic_limit(client: Mapping[str, Any], topic: str) -> int:
    """Returns the topic's `max.message.bytes`, or the client's limit if it cannot be read."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        admin = AdminClient({**client, "log_level": 2})
        found = admin.describe_configs([resource], request_timeout=DESCRIBE_S)[resource].result(DESCRIBE_S + 1)
    except (KafkaException, TimeoutError):  # not allowed, or no such topic: the first copy reports that
        return MAX_MESSAGE_BYTES
    return int(found["max.message.bytes"].value)


def producer_sizes(limit: int) -> dict[str, int]:
    """Returns librdkafka's settings for a topic that takes `limit` bytes."""
    return {
        "message.max.bytes": MAX_MESSAGE_BYTES,
        "batch.size": min(limit, BATCH_BYTES),
        "queue.buffering.max.kbytes": max(QUEUE_BYTES, 2 * limit) // 1024,
    }
