"""A reachable Kafka, ours or the user's: its address and its topics."""

import time
import uuid
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from oncebench.errors import UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.kafka_access.acls import PREFIXED, TOPIC, Resource, advice
from oncebench.kafka_repair.admin import admin_client

# The names of topics, groups and transactional ids of each run begin so (oncebench.run.cell), and of topics that
# `oncebench load` makes.
RUNS = "ob-"
_TIMEOUT_S = 30.0  # for one request; a broker on a loaded laptop may pause for seconds
_LATE = f"no answer within {_TIMEOUT_S:g} s"
_POLL_S = 0.02
# Settings of a topic that decide when a record is durable: the minimum number of copies for acks=all, and when a broker
# forces records to its disk (by default it never does before it acknowledges them).
_DURABILITY = ("min.insync.replicas", "flush.messages", "flush.ms")


class Kafka:
    """A reachable Kafka.

    Faults need a `KafkaBroker` or `KafkaCluster`, which the suite started itself.
    """

    def __init__(self, access: KafkaAccess) -> None:
        self.access = access

    @property
    def bootstrap_servers(self) -> str:
        """Its addresses, `host:port,...`."""
        return self.access.bootstrap_servers

    def admin(self) -> AdminClient:
        """A new admin client. It prints nothing; errors are raised as exceptions."""
        return admin_client({"log_level": 0, **self.access.client})

    def create_topic(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, str] | None = None,
        begins: str = RUNS,
        replication: int | None = None,
    ) -> str:
        """Creates topic `name` and returns the name when every partition has a leader.

        Raises `UserError` if the broker refuses (the topic exists, a setting is unknown, this user lacks a right) or
        takes more than 30 s. `begins` is how names of such topics begin: rights on this name alone would not help the
        next call.

        Args:
            replication: replicas of each partition; None: the cluster's default.
        """
        admin = self.admin()
        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=replication or -1, config=dict(config or {})
        )
        deadline = time.monotonic() + _TIMEOUT_S
        try:
            admin.create_topics([topic], request_timeout=_TIMEOUT_S)[name].result(_TIMEOUT_S)
            while not _has_leaders(admin, name, partitions, begins):
                if time.monotonic() > deadline:
                    raise UserError(
                        f"topic {name} did not get a leader for each of its {partitions} partitions in time"
                    )
                time.sleep(_POLL_S)
        except KafkaException as error:
            failed = error.args[0]
            refused = failed.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            right = f". {_advice('Create', name, begins)}" if refused else ""
            reason = failed.str().rstrip(".")
            raise UserError(f"topic {name} can't be created on {self.bootstrap_servers}: {reason}{right}") from error
        except TimeoutError as error:
            raise UserError(f"topic {name} can't be created on {self.bootstrap_servers}: {_LATE}") from error
        return name

    def fresh_topic(self, prefix: str, partitions: int, config: Mapping[str, str] | None = None) -> str:
        """Creates a topic with a new name that begins with `prefix`, and returns the name."""
        return self.create_topic(f"{prefix}-{uuid.uuid4().hex[:12]}", partitions, config, f"{prefix}-")

    def durability(self, topic: str) -> dict[str, str]:
        """The settings that decide when a record of this topic is durable.

        They include `replicas`, of the partition with the fewest. Raises `UserError` if the broker does not answer
        within 30 s.
        """
        admin, resource = self.admin(), ConfigResource(ResourceType.TOPIC, topic)
        try:
            partitions = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions.values()
            config = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result(_TIMEOUT_S)
        except KafkaException as error:
            reason = error.args[0].str()
            refused = error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            right = f" {_advice('DescribeConfigs', topic, RUNS)}" if refused else ""
            raise UserError(
                f"{self.bootstrap_servers} does not return the settings of {topic}: {reason}{right}"
            ) from error
        except TimeoutError as error:
            raise UserError(f"{self.bootstrap_servers} does not return the settings of {topic}: {_LATE}") from error
        replicas = min(len(partition.replicas) for partition in partitions)
        return {"replicas": str(replicas), **{name: config[name].value for name in _DURABILITY}}

    def partitions(self, topic: str) -> int:
        """The number of a topic's partitions. Raises `UserError` without an answer within 30 s."""
        try:
            return len(self.admin().list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions)
        except KafkaException as error:
            reason = error.args[0].str()
            raise UserError(f"{self.bootstrap_servers} does not list the partitions of {topic}: {reason}") from error

    def leader(self, topic: str, partition: int, timeout_s: float = _TIMEOUT_S) -> int | None:
        """Returns the number of the broker that leads a partition.

        Returns None without a leader, or without an answer in time.
        """
        try:
            found = self.admin().list_topics(topic, timeout=timeout_s).topics[topic].partitions.get(partition)
        except KafkaException:
            return None
        return None if found is None or found.leader < 0 else int(found.leader)

    def in_sync(self, timeout_s: float = _TIMEOUT_S) -> bool:
        """Returns whether every partition of every topic has all of its replicas in sync.

        Returns False without an answer in time.
        """
        try:
            topics = self.admin().list_topics(timeout=timeout_s).topics.values()
        except KafkaException:
            return False
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return all(len(partition.isrs) == len(partition.replicas) for partition in partitions)


def _advice(operation: str, name: str, begins: str) -> str:
    return advice((operation,), Resource(TOPIC, begins, PREFIXED) if name.startswith(begins) else Resource(TOPIC, name))


def _has_leaders(admin: AdminClient, name: str, partitions: int, begins: str) -> bool:
    topic = admin.list_topics(name, timeout=_TIMEOUT_S).topics[name]
    if topic.error is not None and topic.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise UserError(f"topic {name} was created, and is closed to this user. {_advice('Write', name, begins)}")
    ready = [p for p in topic.partitions.values() if p.error is None and p.leader >= 0]
    return topic.error is None and len(ready) == partitions
