"""The broker that the suite starts: a real JVM, a real SIGKILL."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException, Producer
from kafka.admin import KafkaAdminClient

from oncebench.downloads.cache import cache_dir
from oncebench.downloads.java import find_java
from oncebench.errors import UserError
from oncebench.lab.provision import provision
from oncebench.processes.ports import free_ports, is_free
from oncebench.servers.kafka import broker as kafka_module
from oncebench.servers.kafka.broker import KafkaBroker, start_kafka
from oncebench.servers.kafka.class_archive import StartFiles, start_files
from oncebench.servers.kafka.external import external
from oncebench.servers.kafka.settings import CLIENTS
from oncebench.servers.kafka.topics import Kafka
from oncebench.servers.kafka.views import Seen, view
from tests import ROOT
from tests.reading import committed_records
from tests.waiting import gone, wait_for

pytestmark = pytest.mark.integration


def write(servers: str, topic: str, values: list[bytes], compression: str = "none") -> None:
    """Writes `values` to partition 0 and waits until all are acknowledged."""
    failed: list[object] = []
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": compression, "log_level": 0}
    )
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert failed == []


def values_in(servers: str, topic: str) -> list[bytes | None]:
    return [record.value() for record in committed_records(servers, topic)]


def test_it_listens_on_its_loopback_ports_only(kafka: KafkaBroker) -> None:
    connections = psutil.Process(kafka.pid).net_connections()
    listening = {(c.laddr.ip.removeprefix("::ffff:"), c.laddr.port) for c in connections if c.status == "LISTEN"}
    assert listening == {("127.0.0.1", port) for port in kafka.ports.values()}


def test_a_topic_reports_its_durability_settings(kafka: KafkaBroker) -> None:
    name = kafka.fresh_topic("in", 2, {"flush.messages": "1"})
    expected = {"replicas": "1", "min.insync.replicas": "1", "flush.messages": "1", "flush.ms": str(2**63 - 1)}
    assert kafka.durability(name) == expected
    with pytest.raises(UserError, match="does not return the settings of nowhere"):
        kafka.durability("nowhere")


def test_a_fresh_topic_is_usable_at_once_and_has_a_unique_name(kafka: KafkaBroker) -> None:
    names = {kafka.fresh_topic("in", 50) for _ in range(3)}
    found = kafka.admin().list_topics(timeout=10).topics
    assert len(names) == 3
    for name in names:
        assert name.startswith("in-")
        assert [partition.leader for partition in found[name].partitions.values()] == [1] * 50


def test_a_named_broker_reports_its_own_view_of_a_topic(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic("in", 2)
    seen = view(kafka.ports[CLIENTS], 30)
    assert seen is not None
    assert [seen[topic, partition] for partition in (0, 1)] == [Seen(leader=1, epoch=0, in_sync=True)] * 2
    assert view(free_ports(1)[0], 1) is None


def test_a_topic_has_the_settings_it_was_given(kafka: KafkaBroker) -> None:
    name = kafka.fresh_topic("in", 1, {"max.message.bytes": "100000"})
    write(kafka.bootstrap_servers, name, [b"x"])
    with pytest.raises(AssertionError):
        write(kafka.bootstrap_servers, name, [os.urandom(200_000)])


def test_an_existing_topic_and_an_unknown_setting_are_clear_errors(kafka: KafkaBroker) -> None:
    name = kafka.fresh_topic("in", 1)
    with pytest.raises(UserError, match=f"topic {name} can't be created on .*already exists"):
        kafka.create_topic(name, 1)
    with pytest.raises(UserError, match="Unknown topic config"):
        kafka.fresh_topic("in", 1, {"no.such.setting": "1"})


def test_writing_to_a_misspelt_topic_does_not_create_it(kafka: KafkaBroker) -> None:
    failed: list[object] = []
    impatient = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "message.timeout.ms": 1500}
    producer = Producer({**impatient, "topic.metadata.propagation.max.ms": 500})
    producer.produce("misspelt", b"x", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0
    assert len(failed) == 1
    assert failed[0] is not None
    assert "misspelt" not in kafka.admin().list_topics(timeout=10).topics


def test_its_features_are_those_of_kafkas_format_tool(kafka: KafkaBroker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    try:
        features = admin.describe_features()
    finally:
        admin.close()
    levels = {name: found["finalized"][0] for name, found in features.items() if "finalized" in found}
    # the defaults of Kafka 4.3: metadata 4.3, transaction protocol 2, the new group protocol
    assert levels["metadata.version"] == 30
    assert levels["transaction.version"] == 2
    assert levels["group.version"] == 1


def test_a_killed_broker_restarts_on_its_ports_with_every_acknowledged_record(kafka_own: KafkaBroker) -> None:
    topic = kafka_own.fresh_topic("in", 1)
    values = [b"%d" % number for number in range(5000)]
    write(kafka_own.bootstrap_servers, topic, values)
    before, pid = dict(kafka_own.ports), kafka_own.pid
    kafka_own.kill()
    assert gone(pid)
    assert not kafka_own.alive
    assert all(map(is_free, before.values()))
    kafka_own.restart()
    assert kafka_own.ports == before
    assert kafka_own.pid != pid
    assert values_in(kafka_own.bootstrap_servers, topic) == values


def test_a_restart_removes_the_temporary_files_of_a_killed_broker(kafka_own: KafkaBroker) -> None:
    def unpacked() -> list[Path]:
        return list(kafka_own.log.parents[1].glob("tmp/kafka/liblz4-java*"))

    write(kafka_own.bootstrap_servers, kafka_own.fresh_topic("in", 1), [b"x" * 1000], "lz4")
    assert unpacked()  # to check a compressed batch, the broker loads native code
    kafka_own.kill()
    kafka_own.restart()
    assert not unpacked()


def test_a_paused_broker_does_not_answer_until_it_is_resumed(kafka_own: KafkaBroker) -> None:
    kafka_own.pause()
    # A process that runs on the other core stops when it next enters the kernel.
    wait_for("it to stop", lambda: psutil.Process(kafka_own.pid).status() == psutil.STATUS_STOPPED)
    with pytest.raises(KafkaException):
        kafka_own.admin().list_topics(timeout=1)
    kafka_own.resume()
    assert kafka_own.admin().list_topics(timeout=30).cluster_id == kafka_own.cluster_id


def test_a_stopped_broker_ends_cleanly_and_refuses_faults(kafka_own: KafkaBroker) -> None:
    kafka_own.stop()
    assert (kafka_own.data / ".kafka_cleanshutdown").exists()
    assert "App info kafka.server for 1 unregistered" in kafka_own.log.read_text()
    kafka_own.stop()
    for act in (kafka_own.kill, kafka_own.pause, kafka_own.resume):
        with pytest.raises(UserError, match=r"does not run; see .*kafka.log"):
            act()


def test_a_broker_started_on_kept_data_has_its_topics(tmp_path: Path) -> None:
    folder = tmp_path / "Änderungen \\ 日本"  # Kafka reads a path of any form
    with start_kafka(folder) as broker:
        topic = broker.fresh_topic("out", 1)
        write(broker.bootstrap_servers, topic, [b"kept"])
        broker.stop()
    assert (folder / "kafka" / "data" / f"{topic}-0").is_dir()
    with start_kafka(folder) as broker:
        assert values_in(broker.bootstrap_servers, topic) == [b"kept"]


def test_a_failed_start_reports_the_end_of_the_log_and_leaves_no_process(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)the Kafka broker ended while starting.*kafka\.log:.*num\.io\.threads"):
        start_kafka(tmp_path, settings={"num.io.threads": "none"})
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]


def test_a_port_that_was_taken_meanwhile_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as other:
        choices = [(other.getsockname()[1], free_ports(1)[0])]
        monkeypatch.setattr(kafka_module, "free_ports", lambda count: choices.pop() if choices else free_ports(count))
        with start_kafka(tmp_path) as broker:
            assert broker.ports["PLAINTEXT"] != other.getsockname()[1]
            broker.fresh_topic("in", 1)
    assert choices == []


@pytest.mark.parametrize(
    "archive", [pytest.param(None, marks=pytest.mark.slow), b"not an archive"], ids=["missing", "damaged"]
)
def test_it_starts_without_its_class_archive(
    archive: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = start_files(find_java())
    (tmp_path / "bootstrap.checkpoint").write_bytes((files.folder / "bootstrap.checkpoint").read_bytes())
    if archive is not None:
        (tmp_path / "classes.jsa").write_bytes(archive)
    monkeypatch.setattr(kafka_module, "start_files", lambda _: StartFiles(tmp_path))
    with start_kafka(tmp_path / "work") as broker:
        broker.fresh_topic("in", 1)


def test_a_suite_killed_by_SIGKILL_leaves_no_broker(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from oncebench.servers.kafka.broker import start_kafka\n"
        "with start_kafka(Path(sys.argv[1])) as broker: print(broker.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as suite:
        assert suite.stdout is not None
        pid = int(suite.stdout.readline())
        assert not gone(pid)
        suite.kill()
    wait_for("the broker to end", lambda: gone(pid))


class Proxy:
    """A minimal TCP proxy in a thread, which counts bytes."""

    def __init__(self) -> None:
        self.target = 0
        self.bytes = 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                inner, _ = self.server.accept()
                outer = socket.create_connection(("127.0.0.1", self.target))
                for pair in ((inner, outer), (outer, inner)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(65536):
                self.bytes += len(chunk)
                sink.sendall(chunk)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.server.shutdown(socket.SHUT_RDWR)
    proxy.server.close()


def test_a_client_of_the_extra_listener_uses_the_proxy_for_everything(tmp_path: Path, proxy: Proxy) -> None:
    with start_kafka(tmp_path, extra_listeners={"PROXIED": proxy.port}) as broker:
        proxy.target = broker.ports["PROXIED"]
        topic = broker.fresh_topic("in", 1)
        assert proxy.bytes == 0
        write(f"127.0.0.1:{proxy.port}", topic, [b"x" * 1000] * 100)
        assert proxy.bytes > 100_000
        listening = {c.laddr.port for c in psutil.Process(broker.pid).net_connections() if c.status == "LISTEN"}
        assert listening == set(broker.ports.values())


def test_an_external_kafka_has_topics_and_no_process(kafka: KafkaBroker) -> None:
    handle = external(kafka.access)
    assert type(handle) is Kafka
    write(handle.bootstrap_servers, handle.fresh_topic("in", 2), [b"x"])


def test_one_reachable_address_of_several_is_enough(kafka: KafkaBroker) -> None:
    external(kafka.access.at(f"127.0.0.1:1,{kafka.bootstrap_servers}")).fresh_topic("in", 1)


def test_an_unreachable_advertised_address_is_named(tmp_path: Path) -> None:
    (nowhere,) = free_ports(1)
    with (
        start_kafka(tmp_path, extra_listeners={"LOST": nowhere}) as broker,
        pytest.raises(UserError, match=f"directs clients to 127.0.0.1:{nowhere}.*advertised.listeners"),
    ):
        external(broker.access.at(f"127.0.0.1:{broker.ports['LOST']}"))


def test_a_broker_killed_from_outside_is_reaped_and_can_be_restarted(kafka_own: KafkaBroker) -> None:
    pid = kafka_own.pid
    os.kill(pid, signal.SIGKILL)
    wait_for("the broker to be seen dead", lambda: not kafka_own.alive)
    kafka_own.start()
    assert not psutil.pid_exists(pid)
    kafka_own.fresh_topic("in", 1)


@pytest.mark.slow
def test_the_first_run_prepares_the_cache_for_later_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = cache_dir()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "jars").symlink_to(real / "jars")  # saves the download of the jars
    monkeypatch.setenv("ONCEBENCH_CACHE", str(tmp_path / "cache"))
    java = provision()
    files = start_files(java)
    made = {path.name: path.stat().st_mtime_ns for path in files.folder.iterdir()}
    assert made.keys() == {"bootstrap.checkpoint", "classes.jsa"}
    assert [path.name for path in files.folder.parent.iterdir()] == [files.folder.name]
    before = sorted((cache_dir() / "spark").iterdir())
    spark, home = before
    assert home.name.startswith("home-")
    assert {path.name for path in spark.iterdir()} == {"classes.jsa", "made-for"}
    assert start_files(provision()) == files
    assert {path.name: path.stat().st_mtime_ns for path in files.folder.iterdir()} == made
    assert sorted((cache_dir() / "spark").iterdir()) == before


def test_the_broker_uses_the_class_archive(kafka: KafkaBroker) -> None:
    mapped = {region.path for region in psutil.Process(kafka.pid).memory_maps()}
    assert any(path.endswith("/classes.jsa") and str(cache_dir()) in path for path in mapped)
