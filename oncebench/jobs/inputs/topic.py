"""Asks Kafka about the input topic: its identity, and the offsets that it has."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import cached_property

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec
from kafka.admin import KafkaAdminClient
from kafka.errors import for_code
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from oncebench.delivery.errors import RefusedStart
from oncebench.kafka_access.forms import to_kafka_python
from oncebench.kafka_repair.admin import admin_client
from oncebench.kafka_repair.offsets import answered
from oncebench.sinks.kafka import topics, wire

# A broker that has just started answers within seconds.
LIMIT_S = 20.0
PAUSE_S = 0.05
# A leader is being elected, or has not yet learnt how far the records are replicated (KIP-207).
_RETRIABLE = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.OFFSET_NOT_AVAILABLE}
)


class InputTopic:
    """The input topic of a job.

    Args:
        client: librdkafka settings of the cluster.
        name: the topic.
    """

    def __init__(self, client: Mapping[str, object], name: str) -> None:
        self._client = dict(client)
        self._name = name

    @cached_property
    def _admin(self) -> AdminClient:
        return admin_client(self._client)

    def identity(self) -> dict[str, str]:
        """Returns the ids of cluster and topic.

        Raises:
            RefusedStart: there is no such topic.
            KafkaException: the cluster does not answer.
        """
        found = topics.identity(self._admin, self._name, LIMIT_S)
        if not found:
            raise RefusedStart(
                f"the input topic {self._name!r} does not exist. Correct its name or bootstrap_servers, then start "
                "again. If it was deleted, its records are lost: create it again, and the next start asks whether to "
                "go on."
            )
        return found

    def offsets(self) -> dict[str, tuple[int, int]]:
        """Returns partition -> (beginning, end) of the records in the topic.

        Raises:
            KafkaException: the cluster does not answer.
        """
        described = self._admin.describe_topics(TopicCollection([self._name]), request_timeout=LIMIT_S)
        partitions = [TopicPartition(self._name, each.id) for each in described[self._name].result().partitions]
        beginnings, ends = (self._listed(partitions, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
        return {partition: (beginnings[partition].offset, ends[partition].offset) for partition in beginnings}

    def leader_epochs(self, partitions: Iterable[str]) -> dict[str, int]:
        """Returns the epoch of each partition's leader; -1: unknown.

        Raises:
            KafkaException: the cluster does not answer.
        """
        places = [TopicPartition(self._name, int(partition)) for partition in partitions]
        return {p: found.leader_epoch for p, found in self._listed(places, OffsetSpec.latest()).items()}

    def end_of_epoch(self, partition: str, epoch: int) -> int:
        """Returns the offset where the records of leader epochs up to this one end.

        Returns -1 if the broker does not know the epoch.

        Raises:
            KafkaError: the leader does not answer.
        """
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = topic.OffsetForLeaderPartition(partition=int(partition), current_leader_epoch=-1, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=self._name, partitions=[asked])])
        answer = wire.ask_leader(self._wire, request, self._name, int(partition))
        (found,) = (each for named in answer.topics for each in named.partitions)
        if found.error_code:
            raise for_code(found.error_code)(f"OffsetForLeaderEpoch of {self._name} {partition}")
        return int(found.end_offset)

    def stable_ends(self, partitions: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Returns partition -> (end for committed readers, end).

        Raises:
            KafkaException: the cluster does not answer.
        """
        places = [TopicPartition(self._name, int(partition)) for partition in partitions]
        stable = self._listed(places, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        ends = self._listed(places, OffsetSpec.latest())
        return {p: (stable[p].offset, ends[p].offset) for p in ends}

    @cached_property
    def _wire(self) -> KafkaAdminClient:
        return wire.connect(to_kafka_python(self._client))

    def _listed(
        self,
        partitions: list[TopicPartition],
        spec: OffsetSpec,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[str, ListOffsetsResultInfo]:
        deadline = time.monotonic() + LIMIT_S
        while True:
            asked = self._admin.list_offsets(
                dict.fromkeys(partitions, spec),
                isolation_level=level,
                request_timeout=LIMIT_S,
            )
            try:
                return {str(partition): found for partition, found in answered(asked).items()}
            except KafkaException as error:
                if error.args[0].code() not in _RETRIABLE or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_S)
