"""Finds partitions that take no rows: without a leader, or with too few in-sync replicas.

The topic's `min.insync.replicas` sets the required number. In both cases, Kafka refuses writes with acks=all and
cannot end transactions, until the missing brokers are back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, PartitionMetadata

from oncebench.delivery.topics.settings import topic_setting

# Asked while something waits or fails anyway; a cluster that answers does so in milliseconds.
LIMIT_S = 5.0
# A wait that is shorter than this needs no words; a longer one repeats them as often.
LOOK_S = 10.0
# Lets a replica lead that is not in sync. Kafka's default is false.
UNCLEAN = "unclean.leader.election.enable"
_log = logging.getLogger(__name__)


def shortage(admin: AdminClient, topics: Sequence[str]) -> str | None:
    """Returns which partition lacks its leader or in-sync replicas.

    None if all have enough, or if Kafka did not answer.
    """
    try:
        for topic in topics:
            described = admin.list_topics(topic, timeout=LIMIT_S).topics[topic]
            required = int(topic_setting(admin, topic, "min.insync.replicas") or 1)
            for partition in sorted(described.partitions.values(), key=lambda each: each.id):
                found = lack_of(topic, partition, required)
                if found is not None:
                    return found
    except KafkaException as error:
        _log.debug("cannot read the replicas: %s", error)
    return None


def lack_of(topic: str, partition: PartitionMetadata, required: int) -> str | None:
    """Returns what a partition lacks: its leader or in-sync replicas; None if it takes rows.

    Args:
        required: the topic's `min.insync.replicas`.
    """
    where = f"topic {topic} partition {partition.id}"
    if partition.leader < 0:
        brokers = ", ".join(map(str, sorted(partition.replicas)))
        return (
            f"{where} has no leader, because its brokers are away (numbers {brokers}). Start them; Kafka then "
            "continues by itself"
        )
    # A topic with fewer replicas than required takes writes as soon as all of them are in sync (KIP-966).
    needed = min(required, len(partition.replicas))
    if len(partition.isrs) < needed:
        return (
            f"not enough in-sync replicas: {where} has {len(partition.isrs)} of {needed} (min.insync.replicas). Start "
            "the missing brokers; Kafka then continues by itself"
        )
    return None


def warn_of_replicas(admin: AdminClient, topic: str) -> None:
    """Warns about an output topic whose replicas cannot keep what its guarantee promises.

    The topic may have fewer replicas than its `min.insync.replicas`: Kafka 4 takes writes to it as long as all replicas
    are in sync, and older brokers refuse every write. Or it may allow unclean leader elections: a replica that lacks
    acknowledged records may then lead, and these records are lost.
    """
    required = int(topic_setting(admin, topic, "min.insync.replicas") or 1)
    partitions = admin.list_topics(topic, timeout=LIMIT_S).topics[topic].partitions.values()
    replicas = min((len(partition.replicas) for partition in partitions), default=required)
    if replicas < required:
        _log.warning(
            "topic %s has %d replicas and min.insync.replicas=%d. Brokers before 4.0 refuse every write to it: lower "
            "min.insync.replicas, or add replicas.",
            *(topic, replicas, required),
        )
    if replicas > 1 and topic_setting(admin, topic, UNCLEAN) == "true":
        _log.warning(
            "topic %s has %s=true. When its leader fails, Kafka may lose rows that it has acknowledged, and no "
            "guarantee prevents that. Set it to false.",
            *(topic, UNCLEAN),
        )


class Waiting:
    """Explains a wait for Kafka, in the log while it lasts.

    Args:
        admin: a client of the cluster.
        topics: whose replicas may be the reason.
        until: what is waited for.
    """

    def __init__(self, admin: AdminClient, topics: Sequence[str], until: str) -> None:
        self._admin, self._topics, self._until = admin, topics, until
        self._began = self._looked = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long the wait has lasted."""
        return time.monotonic() - self._began

    def look(self) -> None:
        """Logs the reason of the wait, every LOOK_S."""
        if time.monotonic() > self._looked + LOOK_S:
            why = shortage(self._admin, self._topics) or "the transaction coordinator is busy"
            _log.warning("waiting for %.0f s until %s: %s", self.seconds, self._until, why)
            self._looked = time.monotonic()

    def why(self) -> str:
        """Returns the reason as a sentence with a space behind it; empty without a reason."""
        found = shortage(self._admin, self._topics)
        return "" if found is None else f"{found[0].upper()}{found[1:]}. "
