"""Reads settings of topics and brokers.

Promise: a missing right is no error: the setting is then unknown (None). What can go wrong: the broker does not answer
(`KafkaException`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

# A running broker answers in milliseconds; a restart of a broker takes seconds.
LIMIT_S = 20.0
# The smallest and the largest limit that librdkafka takes.
_SMALLEST, LARGEST = 1_000, 1_000_000_000
# librdkafka's default. A batch of small records has at most so many bytes, whatever one record may have.
BATCH_BYTES = 1_000_000
_log = logging.getLogger(__name__)


def topic_setting(admin: AdminClient, topic: str, name: str) -> str | None:
    """Returns a setting of a topic, its default included."""
    return _setting(admin, ConfigResource(ResourceType.TOPIC, topic), name)


def broker_setting(admin: AdminClient, name: str) -> str | None:
    """Returns a setting of one of the brokers."""
    broker = next(iter(admin.list_topics(timeout=LIMIT_S).brokers))
    return _setting(admin, ConfigResource(ResourceType.BROKER, str(broker)), name)


def _setting(admin: AdminClient, resource: ConfigResource, name: str) -> str | None:
    try:
        found = admin.describe_configs([resource], request_timeout=LIMIT_S)[resource].result()
    except KafkaException as error:  # without the right to read it; the broker reports a wrong value later
        if error.args[0].code() == KafkaError._TIMED_OUT:  # not a question of rights
            raise
        kind, on = ("broker", "cluster") if resource.restype == ResourceType.BROKER else ("topic", "topic")
        _log.warning(
            "cannot read %s of %s %s, so nothing checks it: %s. To have it checked, grant this user "
            "DescribeConfigs on the %s",
            *(name, kind, resource.name, error.args[0], on),
        )
        return None
    return found[name].value if name in found else None


def record_limit(admin: AdminClient, topic: str) -> int | None:
    """Returns how many bytes a record of this topic may have (`max.message.bytes`)."""
    found = topic_setting(admin, topic, "max.message.bytes")
    return None if found is None else int(found)


def producer_sizes(limit: int | None) -> Mapping[str, Any]:
    """Returns librdkafka's settings of a producer for a topic with this record limit.

    librdkafka refuses records of more than 1,000,000 bytes by default, whatever the topic takes. It also fills batches
    up to that size, and does not split a batch that the topic refuses.
    """
    if limit is None:
        return {}
    allowed = min(max(limit, _SMALLEST), LARGEST)
    return {"message.max.bytes": allowed, "batch.size": min(max(limit, 1), BATCH_BYTES)}
