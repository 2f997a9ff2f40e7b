"""Settings of a broker, its ports, and errors about a missing Kafka. No JVM."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncebench.errors import ExitCode, MissingEnvironment, UserError
from oncebench.kafka_access import properties
from oncebench.kafka_access.access import KafkaAccess
from oncebench.processes import ports
from oncebench.servers.kafka import external as external_kafka
from oncebench.servers.kafka import topics
from oncebench.servers.kafka.class_archive import StartFiles, make_data_folder
from oncebench.servers.kafka.external import external
from oncebench.servers.kafka.settings import BROKERS, CLIENTS, CONTROLLER, BrokerSettings

PORTS = {CLIENTS: 20001, CONTROLLER: 20002, "PROXIED": 20003}


def parsed(settings: BrokerSettings) -> dict[str, str]:
    return properties.parsed(settings.properties())


def test_every_listener_has_an_explicit_loopback_address() -> None:
    properties = parsed(BrokerSettings(Path("/data"), PORTS, {"PROXIED": 9999}))
    for key in ("listeners", "advertised.listeners"):
        addresses = [listener.split("://")[1] for listener in properties[key].split(",")]
        assert all(address.startswith("127.0.0.1:") for address in addresses), properties[key]
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:20002"


@pytest.mark.parametrize("name", ["josé", "Änderungen", "日本", "a b", "back\\slash", "n\new"])
def test_java_reads_the_path_of_the_data_as_it_is(name: str, tmp_path: Path) -> None:
    settings = BrokerSettings(tmp_path / name / "data", PORTS)
    assert settings.properties().isascii(), "java.util.Properties reads Latin-1"
    assert parsed(settings)["log.dirs"] == str(tmp_path / name / "data")


def test_a_path_that_kafka_reads_as_two_is_refused() -> None:
    with pytest.raises(MissingEnvironment, match=r"Kafka can't use the path /a,b/data.*Choose another --work-dir"):
        BrokerSettings(Path("/a,b/data"), PORTS).properties()


def test_a_proxied_listener_advertises_another_port() -> None:
    properties = parsed(BrokerSettings(Path("/data"), PORTS, {"PROXIED": 9999}))
    assert "PROXIED://127.0.0.1:20003" in properties["listeners"]
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20001,PROXIED://127.0.0.1:9999"


def test_extra_settings_override_the_usual_ones() -> None:
    properties = parsed(BrokerSettings(Path("/data"), PORTS, extra={"offsets.topic.num.partitions": "7"}))
    assert properties["offsets.topic.num.partitions"] == "7"


def test_three_brokers_are_one_quorum_with_three_replicas_of_everything() -> None:
    ports = {number: {CLIENTS: 20000 + number, CONTROLLER: 20010 + number} for number in (1, 2, 3)}
    controllers = {number: own[CONTROLLER] for number, own in ports.items()}
    each = [parsed(BrokerSettings(Path("/data"), ports[n], node=n, controllers=controllers)) for n in ports]
    assert [properties["node.id"] for properties in each] == ["1", "2", "3"]
    assert {properties["controller.quorum.voters"] for properties in each} == {
        "1@127.0.0.1:20011,2@127.0.0.1:20012,3@127.0.0.1:20013"
    }
    replicated = {name: value for name, value in each[0].items() if name.endswith((".replication.factor", ".isr"))}
    assert {name for name, value in replicated.items() if value == "3"} == {
        "default.replication.factor", "offsets.topic.replication.factor", "transaction.state.log.replication.factor",
        "share.coordinator.state.topic.replication.factor",
    }  # fmt: skip
    assert {each[0]["min.insync.replicas"], *(v for n, v in replicated.items() if n.endswith(".isr"))} == {"2"}
    assert "broker.session.timeout.ms" not in each[0], "the time of a failover is that of Kafka's default"
    alone = parsed(BrokerSettings(Path("/data"), PORTS))
    assert (alone["default.replication.factor"], alone["min.insync.replicas"]) == ("1", "1")


def test_separable_brokers_reach_each_other_by_name_and_clients_by_address() -> None:
    ports = {CLIENTS: 20001, CONTROLLER: 20002, BROKERS: 20003}
    names = {number: f"broker-{number}" for number in (1, 2)}
    properties = parsed(BrokerSettings(Path("/data"), ports, node=2, controllers={1: 20012, 2: 20002}, names=names))
    assert properties["advertised.listeners"] == (
        "PLAINTEXT://127.0.0.1:20001,CONTROLLER://broker-2:20002,BROKERS://broker-2:20003"
    )
    assert {part.partition("//")[2].partition(":")[0] for part in properties["listeners"].split(",")} == {"127.0.0.1"}
    assert properties["controller.quorum.voters"] == "1@broker-1:20012,2@broker-2:20002"
    assert properties["inter.broker.listener.name"] == BROKERS
    assert parsed(BrokerSettings(Path("/data"), PORTS))["inter.broker.listener.name"] == CLIENTS


def test_a_broker_joins_the_cluster_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "bootstrap.checkpoint").write_bytes(b"features")
    first = make_data_folder(tmp_path / "1", StartFiles(tmp_path))
    assert make_data_folder(tmp_path / "2", StartFiles(tmp_path), 2, first) == first
    assert f"node.id=2\ncluster.id={first}\n" in (tmp_path / "2" / "meta.properties").read_text()
    identities = [(tmp_path / n / "meta.properties").read_text().splitlines()[-1] for n in ("1", "2")]
    assert len(set(identities)) == 2


def test_a_port_with_a_listener_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
    assert ports.is_free(port)


def test_free_ports_are_outside_the_range_of_outgoing_connections() -> None:
    found = ports.free_ports(20)
    assert len(set(found)) == 20
    assert all(port in ports.PORTS for port in found)
    assert ports.PORTS.stop <= 32768


def test_missing_free_ports_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _: False)
    with pytest.raises(MissingEnvironment, match="no 2 free ports on 127"):
        ports.free_ports(2)


def test_a_data_folder_keeps_its_cluster(tmp_path: Path) -> None:
    (tmp_path / "bootstrap.checkpoint").write_bytes(b"features")
    first = make_data_folder(tmp_path / "a", StartFiles(tmp_path))
    assert make_data_folder(tmp_path / "a", StartFiles(tmp_path)) == first
    assert make_data_folder(tmp_path / "b", StartFiles(tmp_path)) != first
    assert (tmp_path / "a" / "bootstrap.checkpoint").read_bytes() == b"features"
    assert len(first) == 22


def test_the_class_archive_is_optional(tmp_path: Path) -> None:
    assert StartFiles(tmp_path).flags == ()
    (tmp_path / "classes.jsa").write_bytes(b"classes")
    assert f"-XX:SharedArchiveFile={tmp_path / 'classes.jsa'}" in StartFiles(tmp_path).flags


@pytest.fixture
def chatterbox() -> Iterator[int]:
    """A server that answers everything as a web server does; its port."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(1)
                try:
                    connection.recv(1024)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


@pytest.fixture
def silence() -> Iterator[int]:
    """A server that takes connections and never says anything; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_missing_kafka_is_reported_at_once() -> None:
    begin = time.monotonic()
    with pytest.raises(MissingEnvironment, match=r"no Kafka can be reached.*127\.0\.0\.1:1: Connection") as caught:
        external(KafkaAccess("127.0.0.1:1"))
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    assert time.monotonic() - begin < external_kafka._TIMEOUT_S * 0.75


@pytest.mark.parametrize("server", ["chatterbox", "silence"])
def test_another_server_than_kafka_is_reported_within_the_limit(
    server: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert external_kafka._TIMEOUT_S < 10
    monkeypatch.setattr(external_kafka, "_TIMEOUT_S", 0.7)
    begin = time.monotonic()
    with pytest.raises(UserError, match="does not answer like Kafka") as caught:
        external(KafkaAccess(f"127.0.0.1:{request.getfixturevalue(server)}"))
    assert caught.value.exit_code == ExitCode.ERROR
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("text", ["", "a:b", "host:9092:", ":9092", "host:9092,"])
def test_an_invalid_address_is_a_usage_error(text: str) -> None:
    with pytest.raises(UserError, match="not an address of the form host:port") as caught:
        external(KafkaAccess(text))
    assert caught.value.exit_code == ExitCode.USAGE


def test_unknown_client_settings_are_a_usage_error(silence: int) -> None:
    with pytest.raises(UserError, match=r"client settings for Kafka are invalid.*no\.such\.setting") as caught:
        external(KafkaAccess(f"127.0.0.1:{silence}", settings={"no.such.setting": "1"}))
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_topic_that_is_not_made_in_time_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:  # it never answers
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UserError, match=f"topic ob-in can't be created on {address}: ."):
            topics.Kafka(KafkaAccess(address)).create_topic("ob-in", 1)
