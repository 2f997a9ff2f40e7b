"""The Kafka client of the load: an idempotent producer, its settings with their reasons, and its connection.

Idempotent means: what librdkafka retries is written once, and in order (KIP-98). So the topic holds exactly
the events that were made, also after the broker died, if it came back within `delivery.timeout.ms`.
"""

import time

from confluent_kafka import KafkaError, KafkaException, Producer

from loadgen.config import LoadConfig
from loadgen.errors import ConfigError, LoadError

Setting = str | int | float | bool

CONNECT_TIMEOUT_S = 7.0
"""For the first answer of a broker: the process, with its interpreter's start, must give up within 10 s."""

TOPIC_TIMEOUT_S = 2.0
"""A topic just created may be unknown to its broker for some milliseconds; after this it does not exist."""

DEFAULTS: dict[str, Setting] = {
    # At 20,000 events/s and 2 partitions a request then carries 50 events and not 10, so that the broker's
    # processor time goes to the system under test. 5 ms are little beside a micro-batch of 100 ms, and alike
    # in every cell.
    "linger.ms": 5,
    # A killed broker is back in 3-30 s, a slow machine's in a minute; what waited for it must not have
    # expired.
    "delivery.timeout.ms": 120_000,
    # At 20,000 events/s the open loop goes on for 25 s without a broker; costs up to 0.3 GB while it does.
    "queue.buffering.max.messages": 500_000,
    # Errors only: while a broker starts, each retry would print a warning over the progress.
    "log_level": 3,
    # 1 GiB: the number of messages is the limit that is met first.
    "queue.buffering.max.kbytes": 1_048_576,
    # A broker that is back is found within a second; after librdkafka's 10 s its outage would look longer
    # than it was.
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    # Nagle's delay would be measured as the pipeline's.
    "socket.nagle.disable": True,
}
"""What `client` may override; every other setting is librdkafka's own default."""


def settings(config: LoadConfig) -> dict[str, Setting]:
    """All settings of the producer, the user's own included."""
    return {
        **DEFAULTS,
        **config.client,
        "bootstrap.servers": config.bootstrap_servers,
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",  # Java's own for keyed records: all clients agree where a key lives
        "allow.auto.create.topics": False,  # a mistyped topic must fail, not come into being
    }


def number_setting(config: LoadConfig, name: str) -> int:
    """The effective value of a whole-number setting that stands in `DEFAULTS`.

    Raises ConfigError if the user's is none.
    """
    try:
        return int(settings(config)[name])
    except ValueError:
        raise ConfigError(f"client: {name!r} must be a whole number") from None


def connect(config: LoadConfig) -> Producer:
    """A producer that has reached a broker which knows the topic.

    Raises ConfigError for settings that librdkafka refuses, LoadError if no broker answers or it has no such
    topic.
    """
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
                f" ({reason(error)}); is it running, and is the address right?"
            ) from error
        if topic.error is None and topic.partitions:
            return producer
        if time.monotonic() > deadline:
            if topic.error is None or topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                where = config.bootstrap_servers
                raise LoadError(
                    f"there is no topic {config.topic!r} at {where}; create it first: kafka-topics.sh --create "
                    f"--topic {config.topic} --partitions 2 --bootstrap-server {where}"
                )
            raise LoadError(f"topic {config.topic!r} cannot be used: {topic.error.str()}")
        time.sleep(0.1)


def reason(error: KafkaException) -> str:
    """What librdkafka says went wrong, without the exception's wrapping."""
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(first)
