"""Markers that get into their transaction while librdkafka waits for a broker.

The broker has left the cluster.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

import pytest
from kafka.errors import ProducerFencedError, TransactionAbortableError, for_code
from kafka.protocol.metadata import CoordinatorType

from oncebench.faults.replicas.roles import GROUPS, TRANSACTIONS, stored_in
from oncebench.kafka_access.forms import to_kafka_python
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.servers.kafka.cluster import KafkaCluster, start_cluster
from oncebench.sinks.kafka import wire
from oncebench.sinks.kafka.markers import read
from oncebench.sinks.kafka.names import Names
from oncebench.sinks.kafka.rows.marking import Marker, offset_commit, put_marker
from oncebench.sinks.kafka.rows.transactional import TransactionalProducer, run_in_thread
from oncebench.sinks.kafka.rows.writers import TransactionalWriter

pytestmark = pytest.mark.integration
LIMIT_S = 30.0


@dataclass
class Task:
    batch: int = 7
    partition: int = 0


def opened(client: Mapping[str, Any], names: Names) -> TransactionalProducer:
    made = TransactionalProducer(client, names, 120_000, None)
    made.producer.begin_transaction()
    made.producer.produce(names.topic, b"row", partition=0)
    assert made.producer.flush(LIMIT_S) == 0
    return made


@pytest.mark.parametrize("metadata", ["{}", '{"rows": 1}'])  # librdkafka reads beyond the end of some texts
def test_a_marker_without_librdkafka_is_committed_with_its_rows(kafka: KafkaBroker, metadata: str) -> None:
    topic = kafka.fresh_topic("marking", 1)
    client, names = {"bootstrap.servers": kafka.bootstrap_servers}, Names(f"s-{uuid.uuid4().hex}", 1, topic)
    transactional, marker = opened(client, names), Marker(names.marker_group(0), topic, 8, metadata)
    put_marker(client, transactional.transaction, marker, LIMIT_S)
    assert read(client, marker.group, topic, stable=False) is None
    transactional.waits = True
    transactional.commit()
    found = read(client, marker.group, topic)
    assert found is not None
    assert (found.number, found.metadata) == (8, metadata)
    # librdkafka's own request may still come: it must not mark another batch
    late = offset_commit(transactional.transaction, Marker(marker.group, topic, 3, "late"))
    with closing(wire.connect(to_kafka_python(client))) as admin:
        answer = wire.ask_coordinator(admin, late, CoordinatorType.GROUP, marker.group)
    assert for_code(answer.topics[0].partitions[0].error_code) is TransactionAbortableError
    transactional.retire()
    with pytest.raises(ProducerFencedError):  # nor must it begin another transaction
        put_marker(client, transactional.transaction, marker, LIMIT_S)
    assert read(client, marker.group, topic) == found


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with start_cluster(tmp_path_factory.mktemp("three")) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("commits", [False, True], ids=["two-phase", "idempotent"])
def test_a_lost_coordinator_of_transaction_and_group_costs_no_restart(three: KafkaCluster, commits: bool) -> None:
    """Without `put_marker` librdkafka waits for ever.

    It has removed the broker (its issue 5511).
    """
    topic = three.fresh_topic("marking", 1)
    client = {"bootstrap.servers": three.bootstrap_servers, "log_level": 0}
    names = Names(f"s-{uuid.uuid4().hex}", 1, topic)
    writer = TransactionalWriter(client, names, 120_000, commits, ended={}, retired=frozenset())
    first = opened(client, names)
    writer._mark(first.producer, Marker(names.marker_group(0), topic, 1, "{}"))  # makes the topic of the groups
    first.commit()
    number = three.leader(TRANSACTIONS, stored_in(first.name, three.partitions(TRANSACTIONS)))
    assert number is not None
    partition = next(p for p in count() if leads_group(three, names.marker_group(p), number))
    marker = Marker(names.marker_group(partition), topic, 8, "{}")
    first.producer.begin_transaction()
    first.producer.produce(topic, b"before", partition=0)
    writer._mark(first.producer, Marker(marker.group, topic, 7, "{}"))  # librdkafka remembers the coordinator
    first.commit()
    first.producer.begin_transaction()
    first.producer.produce(topic, b"row", partition=0)
    assert first.producer.flush(LIMIT_S) == 0
    three.brokers[number].kill()
    try:
        marking = run_in_thread(lambda: writer._mark(first.producer, marker))
        others = three.other_than(number).admin()
        while number in others.list_topics(timeout=LIMIT_S).brokers:  # until the session of the broker ends
            time.sleep(0.2)
        first.producer.list_topics(timeout=LIMIT_S)
        writer._wait(marking, first, cast("Any", Task(partition=partition)), marker)
        assert first.waits, "librdkafka has mended its fault: put_marker is not needed any more"
        first.commit()
    finally:
        three.brokers[number].start()
    found = read(client, marker.group, topic)
    assert found is not None
    assert found.number == 8


def leads_group(three: KafkaCluster, group: str, number: int) -> bool:
    return three.leader(GROUPS, stored_in(group, three.partitions(GROUPS))) == number
