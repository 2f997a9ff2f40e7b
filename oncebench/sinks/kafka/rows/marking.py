"""Puts a marker into an open transaction without librdkafka, which may wait for ever.

The fault: a broker that is stopped or killed leaves the cluster's metadata when its session ends, after 9 s. librdkafka
then removes it, but still takes it for the coordinator of its groups, and waits for a connection that nobody makes
(its issue 5511). The transaction is sound meanwhile: only its marker is missing. Kafka's Java client looks the
coordinator up again after every lost connection (TransactionManager.TxnRequestHandler.onComplete), and so does this
module before every request.

Promise: when `put_marker` returns, the marker is in the transaction. A repeated request stores the same offset again.
The waiting call of librdkafka may send the same request later. Until the commit it changes nothing. After the commit
the broker refuses it, because the transaction does not contain the group (transaction verification, KIP-890).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from kafka.errors import AuthorizationError, KafkaError, KafkaTimeoutError, for_code
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer.transaction import AddOffsetsToTxnRequest, TxnOffsetCommitRequest

from oncebench.kafka_access.forms import to_kafka_python
from oncebench.sinks.kafka import wire
from oncebench.sinks.kafka.coordinator import REQUEST_TIMEOUT_MS, RETRIABLE, Transaction, answered
from oncebench.sinks.kafka.wire import NONE

# The last versions of the old transaction protocol (see oncebench.sinks.kafka.coordinator).
ADD_OFFSETS_VERSION, OFFSET_COMMIT_VERSION = 3, 4
# Also passes: the coordinator has not yet heard of the topic, or its replicas did not answer in time.
PASSES = RETRIABLE | {3, 7}
# confluent-kafka ends metadata so, and reads metadata up to this character: without it, beyond the end of the text.
END = "\0"
# Between two tries while a coordinator moves to another broker, which takes from milliseconds to seconds.
PAUSE_S = 0.1


@dataclass(frozen=True)
class Marker:
    """An offset of partition 0 of a topic, as a consumer group stores it."""

    group: str
    topic: str
    offset: int
    metadata: str


def put_marker(client: Mapping[str, Any], transaction: Transaction, marker: Marker, limit_s: float) -> None:
    """Adds the marker's group to the transaction, and stores the offset in it.

    Args:
        client: librdkafka settings of the cluster.
        transaction: an open transaction, by id, producer id and epoch.

    Raises:
        KafkaError: a coordinator refuses, or gives no definite answer within `limit_s`.
    """
    add = AddOffsetsToTxnRequest(**_names(transaction, marker), max_version=ADD_OFFSETS_VERSION)
    commit = offset_commit(transaction, marker)
    deadline = time.monotonic() + limit_s
    settings = {"request_timeout_ms": REQUEST_TIMEOUT_MS, **to_kafka_python(client)}
    with closing(wire.connect(settings)) as admin:

        def ask(kind: CoordinatorType, key: str, request: Any) -> Any:
            return wire.ask_coordinator(admin, request, kind, key)

        _repeat(lambda: ask(CoordinatorType.TRANSACTION, transaction.transactional_id, add).error_code, deadline)
        _repeat(lambda: ask(CoordinatorType.GROUP, marker.group, commit).topics[0].partitions[0].error_code, deadline)


def offset_commit(transaction: Transaction, marker: Marker) -> Any:
    """Returns the request that stores the offset in the transaction."""
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    place = topic.TxnOffsetCommitRequestPartition(
        partition_index=0,
        committed_offset=marker.offset,
        committed_leader_epoch=-1,
        committed_metadata=f"{marker.metadata}{END}",
    )
    return TxnOffsetCommitRequest(
        **_names(transaction, marker),
        generation_id=-1,  # of a group without members
        member_id="",
        group_instance_id=None,
        topics=[topic(name=marker.topic, partitions=[place])],
        max_version=OFFSET_COMMIT_VERSION,
    )


def _names(transaction: Transaction, marker: Marker) -> dict[str, Any]:
    return {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "group_id": marker.group,
    }


def _repeat(ask: Callable[[], int], deadline: float) -> None:
    """Asks until the answer is definite. Raises KafkaError, see `put_marker`."""
    while True:
        try:
            code = ask()
        except AuthorizationError:
            raise
        except KafkaError as error:  # of kafka-python: no answer, or no broker is the coordinator yet
            missing = str(error)
        else:
            if code == NONE:
                return
            if code not in PASSES:
                raise for_code(code)(f"a coordinator refused the marker: {answered(code)}")
            missing = answered(code)
        if time.monotonic() > deadline:
            raise KafkaTimeoutError(f"no coordinator took the marker: {missing}")
        time.sleep(PAUSE_S)
