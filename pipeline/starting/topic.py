"""Asks Kafka about the input topic: its identity, and the offsets that it has."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.kafka import topics

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
        return AdminClient(self._client)

    def identity(self) -> dict[str, str]:
        """Returns the ids of cluster and topic.

        Raises:
            RefusedStart: there is no such topic.
            KafkaException: the cluster does not answer.
        """
        found = topics.identity(self._admin, self._name, LIMIT_S)
        if not found:
            raise RefusedStart(
                f"the input topic {self._name!r} does not exist. Nothing was read or written. Correct its name or "
                "bootstrap_servers; if it was deleted, its records are lost: create it again, and start again."
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
        return {partition: (beginnings[partition], ends[partition]) for partition in beginnings}

    def _listed(self, partitions: list[TopicPartition], spec: OffsetSpec) -> dict[str, int]:
        deadline = time.monotonic() + LIMIT_S
        while True:
            asked = self._admin.list_offsets(
                dict.fromkeys(partitions, spec),
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=LIMIT_S,
            )
            try:
                return {str(each.partition): found.result().offset for each, found in asked.items()}
            except KafkaException as error:
                if error.args[0].code() not in _RETRIABLE or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_S)
