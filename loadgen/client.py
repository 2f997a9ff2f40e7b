"""The Kafka client of the load: an idempotent producer, its settings and its connection.

Idempotent means that Kafka writes an event once and in order, even if librdkafka sends it again (KIP-98). So the topic
holds exactly the events of the load, also after a broker failure, if the broker is back within `delivery.timeout.ms`.
"""

import time
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AclOperation

from loadgen.config import LoadConfig
from loadgen.errors import ConfigError, LoadError
from oncebench.kafka_access.acls import TOPIC, Resource, advice
from oncebench.kafka_access.connection import is_secured, why_refused
from oncebench.kafka_repair.addresses import RECOVERY
from oncebench.kafka_repair.admin import admin_client

Setting = str | int | float | bool

CONNECT_TIMEOUT_S = 7.0
"""Limit for a broker's first answer: the process, including its start, must give up within 10 s."""

TOPIC_TIMEOUT_S = 2.0
"""A new topic may be unknown to its broker for some milliseconds. After this time it does not exist."""

DEFAULTS: dict[str, Setting] = {
    # At 20,000 events/s and 2 partitions a request then carries 50 events instead of 10. This leaves the broker more
    # processor time for the system under test. 5 ms are small compared to a micro-batch of 100 ms, and equal in every
    # cell.
    "linger.ms": 5,
    # A killed broker is back in 3 to 30 s, on a slow machine in a minute. Events that wait for it must not expire.
    "delivery.timeout.ms": 120_000,
    # At 20,000 events/s the open loop continues for 25 s without a broker and needs up to 0.3 GB.
    "queue.buffering.max.messages": 500_000,
    # Critical errors only: while a broker starts, each retry would print an error line (level 3) over the progress.
    "log_level": 2,
    # 1 GiB, so the limit on the number of messages is reached first.
    "queue.buffering.max.kbytes": 1_048_576,
    # The client reconnects within a second after the broker is back. With librdkafka's default of 10 s the outage
    # would look longer than it was.
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    # Nagle's delay would be measured as the pipeline's.
    "socket.nagle.disable": True,
}
"""Settings that `client` may override. All others have librdkafka's default."""


def settings(config: LoadConfig) -> dict[str, Setting]:
    """All settings of the producer, including the user's."""
    return {
        **DEFAULTS,
        **config.access.client,
        **config.client,
        **RECOVERY,
        "bootstrap.servers": config.access.bootstrap_servers,
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",  # as Java for keyed records: all clients agree on a key's partition
        "allow.auto.create.topics": False,  # a mistyped topic must fail and not be created
    }


def number_setting(config: LoadConfig, name: str) -> int:
    """Returns the effective value of a setting of `DEFAULTS` that the load relies on.

    The value is a whole number from 1 on.

    Raises ConfigError for another value, such as 0, which librdkafka takes as "no limit".
    """
    try:
        number = int(str(settings(config)[name]))
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"client: {name!r} must be a whole number from 1 on")
    return number


def connect(config: LoadConfig) -> Producer:
    """A producer that has reached a broker with the topic.

    Raises ConfigError for settings that librdkafka refuses. Raises LoadError if no broker answers or the topic does
    not exist.
    """
    client = config.access.client
    if is_secured(client) and (refusal := why_refused(client, CONNECT_TIMEOUT_S)):
        raise LoadError(f"Kafka at {config.bootstrap_servers}: {refusal.why}.")
    try:
        producer = Producer({**settings(config)})
    except KafkaException as error:
        raise ConfigError(f"client: {reason(error)}") from error
    deadline = time.monotonic() + TOPIC_TIMEOUT_S
    while True:
        try:
            topic = producer.list_topics(config.topic, timeout=CONNECT_TIMEOUT_S).topics[config.topic]
        except KafkaException as error:
            raise LoadError(
                f"no Kafka broker answered at {config.bootstrap_servers} within {CONNECT_TIMEOUT_S:g} s"
                f" ({reason(error)}). Check that it is running and that the address is right."
            ) from error
        if topic.error is None and topic.partitions:
            _refuse_closed(config)
            return producer
        if topic.error is not None and topic.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise _closed(config)
        if time.monotonic() > deadline:
            if topic.error is None or topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                where = config.bootstrap_servers
                raise LoadError(
                    f"there is no topic {config.topic!r} at {where}. Create it first: kafka-topics.sh --create "
                    f"--topic {config.topic} --partitions 2 --bootstrap-server {where}"
                )
            raise LoadError(f"topic {config.topic!r} cannot be used: {topic.error.str()}")
        time.sleep(0.1)


def partition_count(producer: Producer, config: LoadConfig) -> int:
    """The number of partitions of the topic. Raises LoadError if no broker answers."""
    try:
        return len(producer.list_topics(config.topic, timeout=CONNECT_TIMEOUT_S).topics[config.topic].partitions)
    except KafkaException as error:
        raise LoadError(f"Kafka at {config.bootstrap_servers} does not answer any more: {reason(error)}") from error


def _refuse_closed(config: LoadConfig) -> None:
    """Raises LoadError if this user may not write the topic.

    A later step finds out that a broker does not answer.
    """
    admin = admin_client({**config.access.client, "log_level": 0})
    asked = admin.describe_topics(
        TopicCollection([config.topic]), include_authorized_operations=True, request_timeout=CONNECT_TIMEOUT_S
    )
    with suppress(KafkaException):
        allowed = asked[config.topic].result().authorized_operations  # None: the broker has no authorizer
        if allowed is not None and AclOperation.WRITE not in allowed:
            raise _closed(config)


def _closed(config: LoadConfig) -> LoadError:
    right = advice(("Write",), Resource(TOPIC, config.topic))
    return LoadError(f"topic {config.topic!r} at {config.bootstrap_servers} is closed to this user. {right}")


def reason(error: KafkaException) -> str:
    """librdkafka's error text, without the exception's wrapping."""
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(first)
