"""Provides the shared parts of several cells: Java, jars, a running Kafka, sinks' servers.

Promise: each part is found or started once, and everything that the lab started is stopped when its context ends.
Failures: no Java, no jars, no broker. Each raises a `UserError` or `MissingEnvironment` that names the next step.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncebench.delivery.contract import SinkKind
from oncebench.downloads.java import Java, find_java
from oncebench.downloads.maven import jars
from oncebench.errors import MissingEnvironment
from oncebench.faults.server import KAFKA
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.spark.class_archive import prepare_spark
from oncebench.lab.spark.home import spark_home
from oncebench.lab.spark.stale_sockets import remove_stale_sockets
from oncebench.servers.kafka.broker import KafkaBroker, start_kafka
from oncebench.servers.kafka.cluster import KafkaCluster, start_cluster
from oncebench.servers.kafka.external import external
from oncebench.servers.kafka.topics import Kafka
from oncebench.servers.proxy.framing import KafkaFraming
from oncebench.servers.proxy.tcp import Proxy
from oncebench.servers.sink_servers import open_services, ours, service
from oncebench.servers.spark_cluster import SparkCluster
from oncebench.sinks.registry import SINKS, suite_sinks

_LOG = logging.getLogger(__name__)

# The broker looks for timed-out transactions every 10 s by default. A shorter interval shortens runs that wait for such
# an abort. The interval changes when an abort happens, not whether it happens.
QUICK_ABORTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
# A plan for a long outage has a longer transaction time-out than Kafka's default limit of 15 minutes, and its command
# runs on these brokers.
_LONG_TRANSACTIONS = {"transaction.max.timeout.ms": str(2**31 - 1)}
_SETTINGS = {**QUICK_ABORTS, **_LONG_TRANSACTIONS}

# Spark and its JVM start in 5 to 10 s on two idle cores. A machine under load may be silent for several times as long.
START_TIMEOUT_S = 120.0

# The broker's second listener advertises the port of a proxy. The proxy is open only during runs that need it.
LINK = "LINK"


@dataclass(frozen=True)
class Lab:
    """Everything that a cell needs in addition to its work dir.

    Attributes:
        theirs: the user's own servers: name and address.
        servers: the servers that the suite started, by name.
        link: the proxy in front of the suite's Kafka, not open yet, and the port to which it forwards connections.
            None in front of several brokers.
        cluster: the Spark cluster of the run; None: the Spark of the cell's master.
        start_timeout_s: how long a starting pipeline may give no sign of life.
    """

    kafka: Kafka
    java: Java
    class_path: tuple[Path, ...]
    jvm_options: tuple[str, ...] = ()
    theirs: Mapping[str, str] = field(default_factory=dict)
    servers: Mapping[str, Any] = field(default_factory=dict)
    link: tuple[Proxy, int] | None = None
    cluster: SparkCluster | None = None
    start_timeout_s: float = START_TIMEOUT_S

    @property
    def own_kafka(self) -> KafkaBroker | KafkaCluster | None:
        """The Kafka if the suite started it, else None."""
        return self.kafka if isinstance(self.kafka, KafkaBroker | KafkaCluster) else None

    @property
    def brokers(self) -> int:
        """The number of brokers that the suite started."""
        return len(self.kafka.brokers) if isinstance(self.kafka, KafkaCluster) else int(self.own_kafka is not None)

    @property
    def separable(self) -> bool:
        """Whether one of the brokers can be cut off from the others."""
        return isinstance(self.kafka, KafkaCluster) and self.kafka.network is not None

    def processes(self, names: Iterable[str]) -> dict[str, Any]:
        """Returns the processes of these servers.

        The brokers of a cluster are named `kafka 1`, `kafka 2`, ...
        """
        found: dict[str, Any] = {}
        for name in names:
            server = self.servers.get(name)
            if isinstance(server, KafkaCluster):
                found |= {f"{name} {number}": broker for number, broker in server.brokers.items()}
            elif server is not None:
                found[name] = server
        return found

    def spark(self, kinds: Iterable[SinkKind], object_store: bool = False) -> dict[str, Any]:
        """Returns the fields of a pipeline's configuration for Spark's jars and these sinks' jars.

        Args:
            kinds: the sinks.
            object_store: whether the checkpoint is in one. Its client is a jar of 686 MB.
        """
        bundles = sorted({bundle for kind in kinds for bundle in kind.jars})
        return {
            "jars": tuple(str(jar) for bundle in bundles for jar in jars(bundle)),
            "driver_jars": tuple(map(str, (*self.class_path, *(jars("spark-s3") if object_store else ())))),
            # The archive of classes fits one class path only.
            "jvm_options": () if object_store else self.jvm_options,
        }

    def durability(self, topic: str, services: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns the settings that decide when data is durable, per server of a sink.

        Each server reports its own settings.
        """
        others = {name: dict(service(name).durability()) for name in services}
        return {KAFKA: self.kafka.durability(topic), **{name: found for name, found in others.items() if found}}

    def environment(self) -> dict[str, str]:
        """Returns the environment of a pipeline process."""
        return environment(self.java)


def environment(java: Java) -> dict[str, str]:
    """Returns the environment of a process that starts Spark, without the user's own Spark."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    home = spark_home()
    own = {} if home is None else {"SPARK_HOME": str(home)}
    return {**inherited, **own, "JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": "127.0.0.1"}


def spark_of(java: Java) -> dict[str, Any]:
    """Returns the fields of a lab for Spark: class path, and JVM options for a fast start."""
    class_path = (*jars("spark-bare-fs"), *jars("spark-kafka"))
    return {"class_path": class_path, "jvm_options": prepare_spark(java, class_path, environment(java))}


@contextmanager
def own_kafka(folder: Path, java: Java) -> Iterator[tuple[KafkaBroker, tuple[Proxy, int]]]:
    """Starts a broker with its files below `folder`; yields it and the lab's `link` to it."""
    with ExitStack() as stack:
        proxy = stack.enter_context(closing(Proxy(KafkaFraming())))
        kafka = stack.enter_context(start_kafka(folder, java, extra_listeners={LINK: proxy.port}, settings=_SETTINGS))
        yield kafka, (proxy, kafka.ports[LINK])
        kafka.stop()  # a clean stop, so that a kept data folder can be read again


@contextmanager
def own_brokers(
    folder: Path, java: Java, brokers: int, separable: bool = False
) -> Iterator[tuple[KafkaBroker | KafkaCluster, tuple[Proxy, int] | None]]:
    """Yields this number of brokers, with the lab's `link` to them, as `own_kafka` does.

    Several brokers have no link. `separable`: see `start_cluster`.
    """
    if brokers == 1:
        with own_kafka(folder, java) as (kafka, link):
            yield kafka, link
        return
    with start_cluster(folder, java, brokers=brokers, settings=_SETTINGS, separable=separable) as cluster:
        yield cluster, None
        cluster.stop()


@contextmanager
def open_lab(
    folder: Path,
    theirs: KafkaAccess | None = None,
    sinks: Collection[str] = (),
    start_timeout_s: float = START_TIMEOUT_S,
    brokers: int = 1,
    separable: bool = False,
) -> Iterator[Lab]:
    """Opens a lab with a broker below `folder`, or on the user's own Kafka.

    Args:
        theirs: the user's own Kafka.
        sinks: names of the sinks whose servers and jars the cells need.
        start_timeout_s: see `Lab`.
        brokers: the number of brokers to start.
        separable: whether one of several brokers can be cut off from the others (`start_cluster`).

    Raises:
        MissingEnvironment: a sink needs an extra that is not installed.
    """
    kinds = [SINKS[name] for name in sorted(set(sinks))]
    for kind in kinds:
        if kind.missing:
            raise MissingEnvironment(f"sink {kind.name} cannot be used here: {kind.missing}")
    remove_stale_sockets()
    java = find_java()
    reached = None if theirs is None else external(theirs)
    spark = spark_of(java)
    for bundle in {bundle for kind in kinds for bundle in kind.jars}:
        jars(bundle)
    services = {name for sink in set(sinks) for name in suite_sinks()[sink].traits.services}
    if starting := sorted(ours(theirs) & {KAFKA, *services}):
        _LOG.info("starting servers: %s", ", ".join(starting))
    with ExitStack() as stack:
        opened = stack.enter_context(open_services(services, folder))
        servers = {name: each.ours for name, each in opened.items() if each.ours is not None}
        named = {name: each.theirs for name, each in opened.items() if each.theirs is not None}
        link = None
        if reached is None:
            servers[KAFKA], link = stack.enter_context(own_brokers(folder, java, brokers, separable))
        yield Lab(
            reached or servers[KAFKA], java, **spark, theirs=named, servers=servers, link=link,
            start_timeout_s=start_timeout_s,
        )  # fmt: skip
