"""Clients that lost every address while their broker shut down work again.

They are as good as new when the broker is back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer

from oncebench.kafka_repair.addresses import RECOVERY, flush
from oncebench.servers.kafka.broker import KafkaBroker, start_kafka
from oncebench.sinks.kafka.names import Names
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.kafka.rows.transactional import TransactionalProducer
from tests.lost_addresses import HEALTHY_S, lose_addresses

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

LIMIT_S = 30.0


@dataclass(frozen=True)
class Lost:
    """A broker that is back, and clients that have lost its address."""

    kafka: KafkaBroker
    topic: str
    producer: Producer
    reader: KafkaReader
    transactional: TransactionalProducer


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    with start_kafka(tmp_path_factory.mktemp("kafka-lost")) as kafka:
        topic, servers = kafka.create_topic("lost", 1), kafka.bootstrap_servers
        client = {"bootstrap.servers": servers, "log_level": 0}
        reconnects = {"reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 1_000}
        producer = Producer({**client, **reconnects, **RECOVERY, "enable.idempotence": True})
        producer.produce(topic, b"before")
        assert producer.flush(LIMIT_S) == 0
        reader = KafkaReader(servers, topic)
        transactional = TransactionalProducer({**client, **reconnects}, Names("s", 1, topic), 60_000, None)
        transactional.look()
        assert transactional.sound, "to remove a bootstrap address is no harm"
        lose_addresses(kafka, topic, (producer, reader._consumer, transactional.producer))
        yield Lost(kafka, topic, producer, reader, transactional)
        reader.close()


def test_a_reader_finds_the_ends(lost: Lost) -> None:
    """It comes first: a poll gives the reader's own client its addresses again."""
    assert lost.reader.ends()[0].low == 0


def test_a_producer_sends_each_record_once_and_a_reader_gets_it(lost: Lost) -> None:
    lost.producer.produce(lost.topic, b"after")
    assert lost.producer.flush(HEALTHY_S) == 1, "librdkafka has mended its fault: kafka_repair is not needed any more"
    assert flush(lost.producer, lost.kafka.bootstrap_servers, LIMIT_S) == 0
    values: list[bytes | None] = []
    until = time.monotonic() + LIMIT_S
    while len(values) < 2 and time.monotonic() < until:
        values += lost.reader.poll(0.2).value
    values += lost.reader.poll(0.2).value
    assert values == [b"before", b"after"]


def test_a_transactional_producer_that_lost_a_broker_is_not_sound(lost: Lost) -> None:
    lost.transactional.look()
    assert not lost.transactional.sound
