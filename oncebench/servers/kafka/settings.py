"""The settings of our one-node broker, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from oncebench.processes.ports import LOOPBACK

CLIENTS = "PLAINTEXT"  # Kafka's name for its first listener, and ours for the one in `bootstrap_servers`
CONTROLLER = "CONTROLLER"

# without its own shutdown hook, or the end of an orderly stop would not be in the log
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

_ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": CONTROLLER,
    "inter.broker.listener.name": CLIENTS,
    # one node can't replicate
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # 50 each by default: so many folders to make and recover, for a handful of groups and transactional ids
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    # the wait for more members before a group's first assignment (3 s by default): there are none
    "group.initial.rebalance.delay.ms": "0",
    # a misspelt topic name must be an error, not an empty topic
    "auto.create.topics.enable": "false",
    # the audit reads whole topics after the run: nothing may be deleted by age or size
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    # the compactor's table, 128 MB by default, for internal topics of a few kB
    "log.cleaner.dedupe.buffer.size": "8388608",
    # After a SIGKILL the controller takes the restarted broker for a duplicate until the old one's session has ended:
    # 9 s by default, which would be most of every measured recovery and comes only of one node being both.
    # Not less than 3 s: on a busy machine a broker must not lose its session while it waits for a processor.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",  # also the pause between two tries to register
}


@dataclass(frozen=True)
class BrokerSettings:
    """What one broker needs to know: the `ports` where its listeners listen, and what they tell clients if not that."""

    data: Path
    ports: Mapping[str, int]
    advertised: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)

    def properties(self) -> str:
        """The text of server.properties; `extra` overrides everything."""
        told = {name: self.advertised.get(name, port) for name, port in self.ports.items() if name != CONTROLLER}
        values = {
            **_ONE_NODE,
            "controller.quorum.voters": f"1@{LOOPBACK}:{self.ports[CONTROLLER]}",
            # explicit addresses: an empty host would listen on every network
            "listeners": _listeners(self.ports),
            "advertised.listeners": _listeners(told),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in self.ports),
            "log.dirs": str(self.data),
            # three threads by default: what is for a proxy stands idle in most runs, and serves one pipeline in others
            **{f"listener.name.{name.lower()}.num.network.threads": "1" for name in self.advertised},
            **self.extra,
        }
        return "".join(f"{key}={value}\n" for key, value in values.items())


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())
