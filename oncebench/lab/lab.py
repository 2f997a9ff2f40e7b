"""What several cells share: a Java, the jars, a Kafka that serves; found or started once, reaped at the end.

Promise: leaving the lab leaves nothing running that it started. What can go wrong: no Java, no jars, no broker; each a
`UserError` or `MissingEnvironment` that says what to do.
"""

from __future__ import annotations

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
from oncebench.run.spark.class_archive import prepare_spark
from oncebench.run.spark.home import spark_home
from oncebench.run.spark.stale_sockets import sweep_left
from oncebench.servers.kafka.broker import KafkaBroker, start_kafka
from oncebench.servers.kafka.external import external
from oncebench.servers.kafka.topics import Kafka
from oncebench.servers.proxy.framing import KafkaFraming
from oncebench.servers.proxy.tcp import Proxy
from oncebench.servers.sink_servers import SERVICES, open_services
from oncebench.sinks.registry import SINKS, suite_sinks

# The broker looks for timed-out transactions every 10 s by default; a run that waits for one must not wait so long.
# It changes when an abort is seen, not whether it happens.
QUICK_ABORTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}

# The broker's second listener: it tells clients the port of a proxy, which is opened for the runs that need it.
LINK = "LINK"


@dataclass(frozen=True)
class Lab:
    """Everything a cell needs beside its own work dir.

    `theirs`: services of the user's own, and where they are. `servers`: those that were started here, by name.
    `link`: the proxy before our Kafka, not open yet, and the port that it is to pass connections on to.
    """

    kafka: Kafka
    java: Java
    class_path: tuple[Path, ...]
    jvm_options: tuple[str, ...] = ()
    theirs: Mapping[str, str] = field(default_factory=dict)
    servers: Mapping[str, Any] = field(default_factory=dict)
    link: tuple[Proxy, int] | None = None

    @property
    def own_broker(self) -> KafkaBroker | None:
        """The broker, if the suite started it."""
        return self.kafka if isinstance(self.kafka, KafkaBroker) else None

    def spark(self, kinds: Iterable[SinkKind]) -> dict[str, Any]:
        """The fields of a pipeline's configuration that tell Spark where its jars are, with those of these sinks."""
        bundles = sorted({bundle for kind in kinds for bundle in kind.jars})
        return {
            "jars": tuple(str(jar) for bundle in bundles for jar in jars(bundle)),
            "driver_jars": tuple(map(str, self.class_path)),
            "jvm_options": self.jvm_options,
        }

    def durability(self, topic: str, services: Iterable[str]) -> dict[str, dict[str, str]]:
        """By server that a sink writes through: when it says that something is safe, asked of itself."""
        others = {name: dict(SERVICES[name].durability()) for name in services}
        return {KAFKA: self.kafka.durability(topic), **{name: told for name, told in others.items() if told}}

    def environment(self) -> dict[str, str]:
        """Environment of a pipeline process."""
        return environment(self.java)


def environment(java: Java) -> dict[str, str]:
    """Environment of a process that starts Spark: this Java, and no Spark of somebody else's."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    home = spark_home()
    own = {} if home is None else {"SPARK_HOME": str(home)}
    return {**inherited, **own, "JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": "127.0.0.1"}


def spark_of(java: Java) -> dict[str, Any]:
    """The fields of a lab that let Spark start: its class path, and what makes the start fast."""
    class_path = (*jars("spark-bare-fs"), *jars("spark-kafka"))
    return {"class_path": class_path, "jvm_options": prepare_spark(java, class_path, environment(java))}


@contextmanager
def own_kafka(folder: Path, java: Java) -> Iterator[tuple[KafkaBroker, tuple[Proxy, int]]]:
    """A broker of ours with its data and log below `folder`, and the `link` of a lab that has it."""
    with ExitStack() as stack:
        proxy = stack.enter_context(closing(Proxy(KafkaFraming())))
        kafka = stack.enter_context(
            start_kafka(folder, java, extra_listeners={LINK: proxy.port}, settings=QUICK_ABORTS)
        )
        yield kafka, (proxy, kafka.ports[LINK])
        kafka.stop()  # in good order, so that what is kept can be read again


@contextmanager
def open_lab(folder: Path, bootstrap_servers: str | None = None, sinks: Collection[str] = ()) -> Iterator[Lab]:
    """A lab with its broker's data and log below `folder`, or on the Kafka at `bootstrap_servers`.

    `sinks`: the names of those whose services and jars will be needed. Raises `MissingEnvironment` where one of them
    misses an extra.
    """
    kinds = [SINKS[name] for name in sorted(set(sinks))]
    for kind in kinds:
        if kind.missing:
            raise MissingEnvironment(f"sink {kind.name} cannot be used here: {kind.missing}")
    sweep_left()
    java = find_java()
    theirs = None if bootstrap_servers is None else external(bootstrap_servers)
    spark = spark_of(java)
    for bundle in {bundle for kind in kinds for bundle in kind.jars}:
        jars(bundle)
    with ExitStack() as stack:
        opened = stack.enter_context(
            open_services({name for sink in set(sinks) for name in suite_sinks()[sink].traits.services}, folder)
        )
        servers = {name: each.ours for name, each in opened.items() if each.ours is not None}
        named = {name: each.theirs for name, each in opened.items() if each.theirs is not None}
        link = None
        if theirs is None:
            servers[KAFKA], link = stack.enter_context(own_kafka(folder, java))
        yield Lab(theirs or servers[KAFKA], java, **spark, theirs=named, servers=servers, link=link)
