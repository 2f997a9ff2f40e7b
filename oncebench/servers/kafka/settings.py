"""Settings of our brokers, each with its reason: one broker, or several that form a cluster.

Every broker is also a controller (KRaft), so a cluster of three survives the loss of any one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from oncebench.disk_errors import refuse_marks
from oncebench.kafka_access.properties import line_of
from oncebench.processes.ports import LOOPBACK

CLIENTS = "PLAINTEXT"  # Kafka's default listener; `bootstrap_servers` names it
CONTROLLER = "CONTROLLER"
BROKERS = "BROKERS"  # for the other brokers only; without it they use the listener of the clients

# log4j's own shutdown hook is off, or the end of a clean stop would be missing from the log
LOG4J = """\
status = error
shutdownHook = disable
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c{1})%n%throwable
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""

_EVERY_NODE = {
    "process.roles": "broker,controller",
    "controller.listener.names": CONTROLLER,
    # 50 each by default: too many folders to create and recover for a few groups and transactional ids
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    # how long a new group waits for more members (3 s by default), which never come here
    "group.initial.rebalance.delay.ms": "0",
    # a misspelt topic name must cause an error, not an empty topic
    "auto.create.topics.enable": "false",
    # the audit reads whole topics after the run, so no record may be deleted by age or size
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    # the table of the log cleaner, 128 MB by default, serves internal topics of a few kB
    "log.cleaner.dedupe.buffer.size": "8388608",
}
# Of a broker without others. A cluster has Kafka's defaults (9 s and 2 s), because there the session's end is part of
# each failover: a leader moves when the session of its broker has ended.
_ALONE = {
    # After a SIGKILL the controller rejects the restarted broker as a duplicate until the old session has ended. The
    # default of 9 s would dominate every measured recovery, and arises only because one node is broker and controller.
    # It is not below 3 s, or a broker on a busy machine could lose its session while it waits for a CPU.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",  # also the interval between two attempts to register
}
# Topics that Kafka makes itself: the prefix of their settings, and that of their minimum of in-sync replicas.
_INTERNAL = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
_INTERNAL_MINIMUM = ("transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr")


def _replication(brokers: int) -> dict[str, str]:
    """Every topic has a replica on each broker, and takes rows while one broker is away."""
    minimum = str(max(1, brokers - 1))
    factors = (*(f"{topic}.replication.factor" for topic in _INTERNAL), "default.replication.factor")
    return {
        **dict.fromkeys(factors, str(brokers)),
        **dict.fromkeys((*_INTERNAL_MINIMUM, "min.insync.replicas"), minimum),
    }


@dataclass(frozen=True)
class BrokerSettings:
    """Settings of one broker.

    Attributes:
        data: the data folder.
        ports: where each listener listens.
        advertised: the port that a listener advertises, if it is another one.
        extra: additional settings.
        node: the broker's number in its cluster.
        controllers: the controller port of every broker of the cluster, by number. Empty: this broker is alone.
        names: the host names by which the brokers of the cluster reach each other, by number. Empty: no names.
        hosts: the hosts file of this broker, which resolves these names.
    """

    data: Path
    ports: Mapping[str, int]
    advertised: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    node: int = 1
    controllers: Mapping[int, int] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    hosts: str = ""

    def properties(self) -> str:
        """The text of server.properties, which is ASCII. `extra` overrides everything.

        Raises `MissingEnvironment` for a data folder that Kafka would read as two.
        """
        refuse_marks(self.data, ",", "Kafka")
        advertised = {name: self.advertised.get(name, port) for name, port in self.ports.items()}
        if not self.names:
            del advertised[CONTROLLER]  # Kafka advertises it where it listens
        host = {name: self.names.get(self.node, LOOPBACK) for name in (BROKERS, CONTROLLER)}
        voters = self.controllers or {self.node: self.ports[CONTROLLER]}
        values = {
            **_EVERY_NODE,
            **_replication(len(voters)),
            **(_ALONE if len(voters) == 1 else {}),
            "node.id": str(self.node),
            "inter.broker.listener.name": BROKERS if BROKERS in self.ports else CLIENTS,
            "controller.quorum.voters": ",".join(
                f"{node}@{self.names.get(node, LOOPBACK)}:{port}" for node, port in voters.items()
            ),
            # explicit addresses, because an empty host listens on every network
            "listeners": _listeners(self.ports),
            "advertised.listeners": _listeners(advertised, host),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in self.ports),
            "log.dirs": str(self.data),
            # three threads by default; a proxy's listener is idle in most runs, and serves one pipeline in the others
            **{f"listener.name.{name.lower()}.num.network.threads": "1" for name in self.advertised},
            **self.extra,
        }
        return "".join(line_of(*pair) for pair in values.items())


def _listeners(ports: Mapping[str, int], host: Mapping[str, str] = MappingProxyType({})) -> str:
    return ",".join(f"{name}://{host.get(name, LOOPBACK)}:{port}" for name, port in ports.items())
