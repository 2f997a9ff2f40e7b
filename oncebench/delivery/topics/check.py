"""The start's check of topics: they exist and can be used; a typing error creates none.

Promise: a start is refused if a topic cannot be used, also under at-most-once, where the broker reports no error. The
check creates no topic, also on brokers with `auto.create.topics.enable`. A topic can be deleted later: the check looks
once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.topics.settings import topic_setting

# Kafka's own rule (org.apache.kafka.common.internals.Topic).
TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
# Kafka keeps its own records there. It makes these topics when it needs them, so a description may not show them yet
# (Topic.INTERNAL_TOPICS and Topic.CLUSTER_METADATA_TOPIC_NAME of Kafka 4.3.1).
_OWN = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
_INTERNAL = "internal"
# What messages call such a topic.
QUARANTINE = "the quarantine topic"
READ, WRITE = AclOperation.READ, AclOperation.WRITE
# What a broker answers about a topic that cannot be used, and what to do then.
_UNFIT: Mapping[int | str, str] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "does not exist. Create it, or correct its name",
    KafkaError.TOPIC_EXCEPTION: "has a name that Kafka does not allow. Take another name",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "is closed to this user. Grant {rights} on it (kafka-acls.sh "
    "--bootstrap-server HOST:PORT --add --allow-principal User:NAME {operations} --topic {topic})",
    _INTERNAL: "is internal to Kafka, which keeps its own records there. Name another topic",
}
# A broker learns of a new topic some milliseconds after the controller has made it. One that has just started, or was
# cut off, may lack an old one for as long as it takes to catch up.
APPEARS_S = 3.0
PAUSE_S = 0.2


def refuse_unfit(
    admin: AdminClient, topics: Mapping[str, str], limit_s: float, rights: Sequence[AclOperation] = (WRITE,)
) -> None:
    """Refuses a start whose topics cannot be used. Creates no topic.

    Args:
        admin: a client of the cluster.
        topics: the use of each topic, by the topic's name.
        limit_s: for the broker's answer.
        rights: what the client needs on each of the topics.

    Raises:
        RefusedStart: a topic does not exist, is closed to this client, is internal to Kafka, or has a name that Kafka
            does not allow.
        KafkaException: the broker does not answer.
    """
    for name, use in topics.items():
        if not TOPIC_NAME.fullmatch(name):
            raise _refused(name, use, KafkaError.TOPIC_EXCEPTION, rights)
        if name in _OWN:
            raise _refused(name, use, _INTERNAL, rights)
    deadline = time.monotonic() + APPEARS_S
    while True:
        found = _unfit(admin, topics, limit_s, rights)
        if found is None:
            return
        name, code = found
        if code != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
            raise _refused(name, topics[name], code, rights)
        time.sleep(PAUSE_S)


def refuse_unfit_quarantine(admin: AdminClient, topic: str, limit_s: float) -> None:
    """Refuses a quarantine topic that cannot be written, or that is compacted.

    In a compacted topic Kafka keeps only the newest record of each key. Copies of rejected records keep their keys, so
    compaction would delete all but one of a key. The broker refuses copies without a key.

    Raises:
        RefusedStart: see `refuse_unfit`; or the topic's `cleanup.policy` compacts.
        KafkaException: the broker does not answer.
    """
    refuse_unfit(admin, {topic: QUARANTINE}, limit_s)
    policy = topic_setting(admin, topic, "cleanup.policy") or ""
    if "compact" in policy:
        raise RefusedStart(
            f"{QUARANTINE} {topic!r} has cleanup.policy={policy}: Kafka would keep only the newest copy of each key, "
            "and refuse copies without a key. Nothing was read or written. Name another topic or, if no other program "
            "uses it: kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics "
            f"--entity-name {topic} --add-config cleanup.policy=delete"
        )


def _unfit(
    admin: AdminClient, topics: Mapping[str, str], limit_s: float, rights: Sequence[AclOperation]
) -> tuple[str, int | str] | None:
    """Returns the first topic that cannot be used, and why."""
    described = admin.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=limit_s
    )
    for name in topics:
        try:
            found = described[name].result()
        except KafkaException as error:
            code = error.args[0].code()
            if code in _UNFIT:
                return name, code
            if code != KafkaError.LEADER_NOT_AVAILABLE:  # it exists, and a leader is being elected
                raise
        else:
            if found.is_internal:
                return name, _INTERNAL
            allowed = found.authorized_operations  # None: the broker does not say
            if allowed is not None and not set(rights) <= set(allowed):
                return name, KafkaError.TOPIC_AUTHORIZATION_FAILED
    return None


def _refused(name: str, use: str, code: int | str, rights: Sequence[AclOperation]) -> RefusedStart:
    words = [right.name.capitalize() for right in rights]
    why = _UNFIT[code].format(
        rights=" and ".join(words), operations=" ".join(f"--operation {word}" for word in words), topic=name
    )
    return RefusedStart(f"{use} {name!r} {why}, then start again. Nothing was read or written.")
