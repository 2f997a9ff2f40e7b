"""Several Kafka brokers of our own that form one cluster.

They are started, stopped and broken together, or one at a time.

Promise: when `start_cluster` returns, every broker serves. When its context ends, all are gone. Every topic has a
replica on each broker, and takes rows while one broker is away (`min.insync.replicas`). Failure modes: those of a
single broker (see `broker`). If one broker does not start, all are killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from oncebench.downloads.java import Java, find_java
from oncebench.errors import UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.processes.ports import free_ports
from oncebench.servers.kafka.broker import STARTS, KafkaBroker
from oncebench.servers.kafka.class_archive import StartFiles, start_files
from oncebench.servers.kafka.process import PortTakenError
from oncebench.servers.kafka.settings import BROKERS, CLIENTS, CONTROLLER, BrokerSettings
from oncebench.servers.kafka.topics import Kafka
from oncebench.servers.kafka.views import view
from oncebench.servers.proxy.network import Network, name_of

# Half of what a broker that is alone may take: three brokers must leave room for Spark on a machine with 8 GB.
_HEAP_MB = 512
_ANSWER_TIMEOUT_S = 30.0  # two of three brokers serve, and only a starved machine needs more than some ms


class KafkaCluster(Kafka):
    """Brokers that the suite started, by number.

    Attributes:
        brokers: the brokers by number.
        network: the proxies through which the brokers reach each other; None: they connect directly.
        disturbed: whether a fault takes brokers away at this time. Until it is over, no other fault may.
    """

    def __init__(self, brokers: Mapping[int, KafkaBroker], network: Network | None = None) -> None:
        super().__init__(KafkaAccess(",".join(broker.bootstrap_servers for broker in brokers.values())))
        self.brokers = dict(brokers)
        self.network = network
        self.disturbed = False

    @property
    def alive(self) -> bool:
        """Whether every broker runs."""
        return all(broker.alive for broker in self.brokers.values())

    @property
    def log(self) -> Path:
        """The log of a broker that does not run; if all run, of the first."""
        logs = [broker.log for broker in self.brokers.values() if not broker.alive]
        return [*logs, *(broker.log for broker in self.brokers.values())][0]

    def start(self) -> None:
        """Starts the brokers that do not run, and returns when all serve.

        If a broker does not serve, this kills all of them. The network stays open, so the brokers can be started again.
        """
        try:
            self._each(KafkaBroker.begin_start)  # none of them serves before most of them run
            self._each(KafkaBroker.wait_until_serving)
        except BaseException:
            self._end()
            raise

    def kill(self) -> None:
        """SIGKILL for every broker. Returns when all are gone."""
        self._each(KafkaBroker.kill)

    def stop(self) -> None:
        """Shuts all down cleanly (SIGTERM), and kills what is left after 30 s."""
        for broker in self.brokers.values():
            if broker.alive:
                broker.begin_stop()  # all at once: the last one alone would find no controller to leave from
        self._each(KafkaBroker.stop)

    def pause(self) -> None:
        """SIGSTOP for every broker."""
        self._each(KafkaBroker.pause)

    def resume(self) -> None:
        """SIGCONT for every broker after `pause`."""
        self._each(KafkaBroker.resume)

    def controller(self) -> int | None:
        """The number of the active controller (KIP-595); None without an answer."""
        try:
            with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)) as admin:
                quorum = admin.describe_metadata_quorum()
        except KafkaError:
            return None
        return int(quorum["topics"][0]["partitions"][0]["leader_id"])

    def existing(self, *topics: str) -> list[str]:
        """Returns the topics among these that exist.

        Kafka makes its internal topics when they are first needed.
        """
        found = self.admin().list_topics(timeout=_ANSWER_TIMEOUT_S).topics
        return [topic for topic in topics if topic in found]

    def configure(self, topic: str, name: str, value: str) -> None:
        """Changes one setting of a topic. Raises `UserError` if Kafka does not take it within 30 s."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = self.admin()  # it must live until the answer comes
        try:
            admin.incremental_alter_configs([resource])[resource].result(_ANSWER_TIMEOUT_S)
        except KafkaException as error:
            raise UserError(f"Kafka did not set {name}={value} for {topic}: {error.args[0].str()}") from error
        except TimeoutError as error:
            late = f"no answer within {_ANSWER_TIMEOUT_S:g} s"
            raise UserError(f"Kafka did not set {name}={value} for {topic}: {late}") from error

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Gives a partition these replicas (KIP-455); the first is its preferred leader.

        Returns when Kafka has begun to move them. Raises `UserError` if Kafka refuses.
        """
        place = TopicPartition(topic, partition)
        try:
            with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)) as admin:
                failed = admin.alter_partition_reassignments({place: list(replicas)})[place]
        except KafkaError as error:
            failed = error
        if failed is not None:
            raise UserError(f"Kafka did not move partition {partition} of {topic} to brokers {replicas}: {failed}")

    def in_sync_replicas(self, topic: str, partition: int, timeout_s: float) -> set[int]:
        """Returns the numbers of the replicas in sync; empty without an answer in time."""
        try:
            found = self.admin().list_topics(topic, timeout=timeout_s).topics[topic].partitions[partition]
        except (KafkaException, KeyError):
            return set()
        return set(found.isrs)

    def committed_end(self, topic: str, partition: int) -> int:
        """Returns the last stable offset of a partition, where its committed readers wait.

        Raises `UserError` without an answer within 30 s.
        """
        place = Place(topic, partition)
        try:
            admin = self.admin()  # it must live until the answer comes
            found = admin.list_offsets(
                {place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=_ANSWER_TIMEOUT_S,
            )[place]  # fmt: skip
            return int(found.result(_ANSWER_TIMEOUT_S).offset)
        except (KafkaException, TimeoutError) as error:
            raise UserError(f"Kafka did not return the end of partition {partition} of {topic}: {error}") from error

    def other_than(self, number: int) -> Kafka:
        """Another broker of the cluster, which answers while broker `number` is away."""
        return next(broker for other, broker in self.brokers.items() if other != number)

    def leader_without(self, number: int, topic: str, partition: int, timeout_s: float) -> int | None:
        """Returns the leader of a partition as a broker other than `number` itself sees it.

        Returns None without a leader, or without an answer in time.
        """
        seen = view(next(b for other, b in self.brokers.items() if other != number).ports[CLIENTS], timeout_s)
        found = None if seen is None else seen.get((topic, partition))
        return None if found is None or found.leader < 0 else found.leader

    def agrees(self, timeout_s: float) -> bool:
        """Returns whether every broker sees the same leaders, and every replica in sync.

        Each broker answers for itself. Returns False without an answer in time.
        """
        views = [view(broker.ports[CLIENTS], timeout_s) for broker in self.brokers.values()]
        first = views[0]
        return first is not None and all(each == first for each in views) and all(p.in_sync for p in first.values())

    def _each(self, call: Callable[[KafkaBroker], None]) -> None:
        for broker in self.brokers.values():
            call(broker)

    def _end(self) -> None:
        """Kills every broker that runs."""
        with ExitStack() as stack:  # each is killed, even if another one cannot be
            for broker in self.brokers.values():
                stack.enter_context(broker)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            if self.network is not None:
                stack.callback(self.network.close)
            stack.callback(self._end)


def start_cluster(
    work_dir: Path,
    java: Java | None = None,
    *,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
    separable: bool = False,
) -> KafkaCluster:
    """Starts brokers that form one cluster, and returns when every broker serves.

    Data are in ``work_dir/kafka/<number>``, logs in ``work_dir/logs/kafka-<number>.log``.
    The brokers continue with data that exist. Raises `UserError` and `MissingEnvironment`.

    Args:
        settings: additional lines of server.properties.
        separable: whether the brokers reach each other through proxies, which can cut one off from the others. The
            proxies cost time, so most clusters have none.
    """
    java = java or find_java()
    files = start_files(java)
    for attempt in range(1, STARTS + 1):
        try:
            cluster = _described(work_dir, java, files, brokers, settings or {}, separable)
            with ExitStack() as stack:
                stack.enter_context(cluster)
                cluster.start()
                stack.pop_all()  # the caller ends the cluster
            break
        except PortTakenError:
            if attempt == STARTS:
                raise
    return cluster


def _described(
    work_dir: Path, java: Java, files: StartFiles, brokers: int, settings: Mapping[str, str], separable: bool
) -> KafkaCluster:
    """Returns a cluster that does not run yet, on free ports.

    Its network is open. Raises `PortTakenError`.
    """
    names = (CLIENTS, CONTROLLER, *((BROKERS,) if separable else ()))
    found = iter(free_ports(len(names) * brokers))
    ports = {number: {name: next(found) for name in names} for number in range(1, brokers + 1)}
    controllers = {number: own[CONTROLLER] for number, own in ports.items()}
    network = _network(ports) if separable else None
    hosts = {number: name_of(number) for number in ports} if separable else {}
    members: dict[int, KafkaBroker] = {}
    cluster_id = None
    for number, own in ports.items():
        data = work_dir / "kafka" / str(number) / "data"
        described = BrokerSettings(
            data, own, {}, settings, number, controllers, hosts, "" if network is None else network.hosts(number)
        )
        members[number] = KafkaBroker(work_dir, described, java, files, _HEAP_MB, cluster_id, f"kafka-{number}.log")
        cluster_id = members[number].cluster_id
    return KafkaCluster(members, network)


def _network(ports: Mapping[int, Mapping[str, int]]) -> Network:
    """The network between brokers with these ports. Raises `PortTakenError`."""
    try:
        return Network({number: (own[CONTROLLER], own[BROKERS]) for number, own in ports.items()})
    except OSError as error:
        raise PortTakenError(
            f"no proxy between the brokers can listen ({error}). They need the addresses 127.0.x.x of Linux's loopback"
        ) from error
