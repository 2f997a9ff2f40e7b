"""Too few in-sync replicas stop writes for a while.

The job waits and reports it. It loses and duplicates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka.admin import NewTopic

from oncebench.delivery.topics import replicas
from oncebench.downloads.java import find_java
from oncebench.processes.ports import LOOPBACK, free_ports
from oncebench.servers.kafka.broker import KafkaBroker, start_kafka
from oncebench.servers.kafka.class_archive import start_files
from oncebench.servers.kafka.settings import CLIENTS, CONTROLLER, BrokerSettings
from oncebench.sinks.kafka import sink as kafka
from oncebench.sinks.kafka.coordinator import Coordinator
from tests.integration.sinks.kafka_output import Output, Task, rows, write
from tests.waiting import wait_for

pytestmark = pytest.mark.integration
QUICK = {
    "broker.session.timeout.ms": "3000", "replica.lag.time.max.ms": "3000",
    # The coordinators stay while the second broker is away.
    "offsets.topic.replication.factor": "2", "transaction.state.log.replication.factor": "2",
}  # fmt: skip


class Second:
    """A second broker of a cluster, which can be killed and started again."""

    def __init__(self, first: KafkaBroker, folder: Path) -> None:
        port = free_ports(1)[0]
        data = folder / "kafka" / "data"
        data.mkdir(parents=True)
        meta = f"version=1\nnode.id=2\ncluster.id={first.cluster_id}\ndirectory.id=AAAAAAAAAAAAAAAAAAAAZg\n"
        files = start_files(find_java())
        (data / "meta.properties").write_text(meta)
        (data / "bootstrap.checkpoint").write_bytes((files.folder / "bootstrap.checkpoint").read_bytes())
        listener = f"{CLIENTS}://{LOOPBACK}:{port}"
        own = {
            **QUICK, "process.roles": "broker", "node.id": "2", "listeners": listener, "advertised.listeners": listener,
            "controller.quorum.voters": f"1@{LOOPBACK}:{first.ports[CONTROLLER]}",
            "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{CONTROLLER}:PLAINTEXT",
        }  # fmt: skip
        settings = BrokerSettings(data, {CLIENTS: port, CONTROLLER: first.ports[CONTROLLER]}, {}, own)
        self.broker = KafkaBroker(folder, settings, find_java(), files, 512)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[KafkaBroker, KafkaBroker]]:
    with start_kafka(tmp_path / "first", settings=QUICK) as first, Second(first, tmp_path / "second").broker as second:
        second.start()
        yield first, second


def replicated(first: KafkaBroker, name: str) -> str:
    """A topic with its leader on the first broker, and a replica on the second."""
    topic = NewTopic(name, 1, config={"min.insync.replicas": "2"}, replication_factor=2)
    admin = first.admin()
    admin.create_topics([topic])[name].result(30)
    return name


def in_sync(first: KafkaBroker, topic: str) -> int:
    partitions = first.admin().list_topics(topic, timeout=30).topics[topic].partitions.values()
    return min((len(partition.isrs) for partition in partitions), default=0)


@contextmanager
def started_after_a_warning(broker: KafkaBroker, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Starts a broker once the job warns of missing replicas, or once the block ends."""
    over = Event()

    def start() -> None:
        try:
            wait_for("the warning", lambda: over.is_set() or "not enough in-sync" in caplog.text)
        finally:  # without the broker, the block would wait for ever
            broker.start()

    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(start)
        try:
            yield
        finally:
            over.set()
            started.result()


@pytest.mark.parametrize("variant", ["two-phase", pytest.param("idempotent", marks=pytest.mark.slow)])
def test_a_start_waits_for_replicas_and_says_so(
    cluster: tuple[KafkaBroker, KafkaBroker],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variant: str,
) -> None:
    monkeypatch.setattr(replicas, "LOOK_S", 1.0)
    first, second = cluster
    output = Output(first)
    output.topic = replicated(first, f"replicated-{variant}")
    wait_for("both replicas", lambda: in_sync(first, output.topic) == 2)
    driver = output.driver("two-phase", 1)
    prepared = write(driver.prepare_writer(), 1, "early")
    second.kill()
    wait_for("one replica", lambda: in_sync(first, output.topic) == 1)
    assert driver.commit(1, {0: prepared}) == set(), "decided; the end of the transaction cannot be written yet"
    with started_after_a_warning(second, caplog):
        successor = output.driver(variant, 2)  # must fence the id, whose transaction has not ended
    assert "waiting for" in caplog.text
    assert "not enough in-sync replicas: topic" in caplog.text
    writer = successor.prepare_writer() if variant == "two-phase" else successor.idempotent_writer()
    late = dict(writer.write(Task(2), rows("late"))[0])
    if variant == "two-phase":
        assert successor.commit(2, {0: late}) == set()
    wait_for("all rows", lambda: output.visible() == {"early": 20, "late": 20})


def test_a_commit_waits_for_replicas(
    cluster: tuple[KafkaBroker, KafkaBroker], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kafka, "COMMIT_LIMIT_S", 2.0)
    monkeypatch.setattr(replicas, "LOOK_S", 1.0)
    first, second = cluster
    output = Output(first)
    output.topic = replicated(first, "replicated-commit")
    wait_for("both replicas", lambda: in_sync(first, output.topic) == 2)
    driver = output.driver("two-phase", 1)
    prepared = write(driver.prepare_writer(), 1, "early")
    second.kill()
    wait_for("one replica", lambda: in_sync(first, output.topic) == 1)
    assert driver.commit(1, {0: prepared}) == set()
    with started_after_a_warning(second, caplog):
        assert driver.commit(1, {0: prepared}) == set(), "a replay commits again, and waits for the first to end"
    assert "not enough in-sync replicas" in caplog.text
    wait_for("all rows", lambda: output.visible() == {"early": 20})
    with closing(Coordinator({"bootstrap_servers": output.servers})) as coordinator:
        assert {txn.state for txn in coordinator.listed(driver._names.prefix)} == {"CompleteCommit"}


def test_a_topic_that_can_never_have_enough_replicas_is_a_warning_at_the_start(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    output = Output(kafka)
    output.topic = kafka.fresh_topic("short", 1, {"min.insync.replicas": "2"})
    output.driver("two-phase", 1)
    assert f"topic {output.topic} has 1 replicas and min.insync.replicas=2" in caplog.text
