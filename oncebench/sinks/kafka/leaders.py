"""Lists open transactions at the leaders of partitions, and ends them there (KIP-664).

Promise: the answers are the leaders' alone. A leader has the producers of its partition and where their open
transactions begin. It has no transactional ids: `oncebench.sinks.kafka.coordinator` asks for those. Decisions are in
the journal only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafka.admin import KafkaAdminClient
from kafka.errors import for_code
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest
from kafka.structs import TopicPartition

from oncebench.sinks.kafka import wire
from oncebench.sinks.kafka.wire import NONE

# The coordinator's epoch in a transaction marker that an operator writes. The leader then checks only the producer's.
NO_COORDINATOR = -1


@dataclass(frozen=True, order=True)
class OpenIn:
    """A transaction of a producer that is open in a partition since the record at `offset`."""

    topic: str
    partition: int
    offset: int
    producer_id: int


class Leaders:
    """The leaders of a cluster's partitions. Two threads must not use them at once.

    Args:
        admin: a client of `wire.connect`. Its owner closes it.
    """

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    def open_in(self, topic: str) -> list[OpenIn]:
        """Returns the open transactions of a topic.

        Raises:
            KafkaError: the topic does not exist, or this user may not describe it.
        """
        metadata = self._admin.describe_topics([topic])[0]
        if metadata["error_code"] != NONE:  # without rights the answer looks like a topic without partitions
            raise for_code(metadata["error_code"])(f"the metadata of {topic}")
        return list(self.open_since(topic, [partition["partition_index"] for partition in metadata["partitions"]]))

    def open_since(self, topic: str, partitions: Sequence[int]) -> Iterator[OpenIn]:
        """Yields the open transactions of some partitions (DescribeProducers). Raises KafkaError."""
        answer = self._admin.describe_producers([TopicPartition(topic, number) for number in partitions])
        for place, state in answer.items():
            for producer in state.active_producers:
                if producer.current_transaction_start_offset >= 0:
                    offset = producer.current_transaction_start_offset
                    yield OpenIn(place.topic, place.partition, offset, producer.producer_id)

    def write_transaction_marker(self, place: OpenIn, epoch: int, commit: bool) -> None:
        """Ends a transaction in one partition without its coordinator (WriteTxnMarkers).

        Args:
            place: the open transaction.
            epoch: the producer's epoch that its coordinator has.
            commit: whether the transaction is committed; otherwise it is aborted.

        Raises:
            KafkaError: the broker does not allow it.
        """
        markers = WriteTxnMarkersRequest.WritableTxnMarker
        marker = markers(
            producer_id=place.producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[markers.WritableTxnMarkerTopic(name=place.topic, partition_indexes=[place.partition])],
            coordinator_epoch=NO_COORDINATOR,
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        answer = wire.ask_leader(self._admin, request, place.topic, place.partition)
        codes = {part.error_code for each in answer.markers for topic in each.topics for part in topic.partitions}
        if codes != {NONE}:
            raise for_code(max(codes - {NONE}, default=-1))(f"WriteTxnMarkers for {place}: error codes {sorted(codes)}")
