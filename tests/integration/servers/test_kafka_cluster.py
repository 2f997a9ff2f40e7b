"""Three brokers that the suite starts as one cluster: real JVMs, real SIGKILLs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from kafka.admin import KafkaAdminClient
from kafka.errors import CoordinatorNotAvailableError
from kafka.protocol.metadata import CoordinatorType

from oncebench.errors import UserError
from oncebench.faults.replicas.roles import GROUPS, TRANSACTIONS, stored_in
from oncebench.servers.kafka.cluster import KafkaCluster, start_cluster
from oncebench.servers.kafka.settings import CLIENTS
from oncebench.servers.kafka.views import view
from tests.integration.servers.test_kafka_broker import values_in, write
from tests.waiting import gone, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slow]  # three JVMs, and a failover of 9 s
MOST_BYTES = 3_000_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with start_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def in_sync(cluster: KafkaCluster) -> None:
    wait_for("replicas in sync", cluster.in_sync)


def test_every_topic_has_three_replicas_and_needs_two(cluster: KafkaCluster) -> None:
    topic = cluster.fresh_topic("in", 3)
    found = cluster.durability(topic)
    assert (found["replicas"], found["min.insync.replicas"]) == ("3", "2")
    assert {cluster.leader(topic, partition) for partition in range(3)} == {1, 2, 3}
    assert (cluster.partitions(topic), cluster.in_sync()) == (3, True)
    assert cluster.controller() in cluster.brokers


def test_a_topic_may_have_fewer_replicas(cluster: KafkaCluster) -> None:
    topic = cluster.create_topic("two", 1, replication=2)
    assert cluster.durability(topic)["replicas"] == "2"
    cluster.configure(topic, "min.insync.replicas", "1")
    wait_for("the setting", lambda: cluster.durability(topic)["min.insync.replicas"] == "1")
    with pytest.raises(UserError, match="Kafka did not set no-such-setting=1"):
        cluster.configure(topic, "no-such-setting", "1")
    with pytest.raises(UserError, match="replication factor"):
        cluster.create_topic("four", 1, replication=4)


def test_the_brokers_listen_on_loopback_and_fit_into_3_gb(cluster: KafkaCluster) -> None:
    resident = 0
    for broker in cluster.brokers.values():
        process = psutil.Process(broker.pid)
        resident += process.memory_info().rss
        listening = [c.laddr for c in process.net_connections() if c.status == "LISTEN"]
        assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
        assert {address.port for address in listening} == set(broker.ports.values())
    assert resident < MOST_BYTES


def coordinators(admin: KafkaAdminClient, names: list[str], kind: CoordinatorType) -> dict[str, int]:
    """The brokers that Kafka names.

    The first question also makes the topic, and has no answer yet.
    """
    found: dict[str, int] = {}

    def answered() -> bool:
        with suppress(CoordinatorNotAvailableError):
            found.update(admin._manager.run(admin._find_coordinator_ids, names, kind))
        return len(found) == len(names)

    wait_for("coordinators", answered)
    return found


def test_a_role_is_the_broker_that_kafka_names(cluster: KafkaCluster) -> None:
    names = [f"run-{number}" for number in range(8)]
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)) as admin:
        for topic, kind in ((TRANSACTIONS, CoordinatorType.TRANSACTION), (GROUPS, CoordinatorType.GROUP)):
            found = coordinators(admin, names, kind)
            stored = {name: cluster.leader(topic, stored_in(name, cluster.partitions(topic))) for name in names}
            assert stored == found
            assert len(set(found.values())) > 1, "one broker for all names would prove nothing"


def test_acknowledged_records_survive_the_kill_of_their_leader(cluster: KafkaCluster) -> None:
    topic = cluster.fresh_topic("in", 1)
    write(cluster.bootstrap_servers, topic, [b"before"] * 500)
    leader = cluster.leader(topic, 0)
    assert leader is not None
    cluster.brokers[leader].kill()
    assert not cluster.alive
    assert cluster.log == cluster.brokers[leader].log
    other = cluster.other_than(leader)
    wait_for("another leader", lambda: other.leader(topic, 0) not in (leader, None))
    write(cluster.bootstrap_servers, topic, [b"without"] * 500)
    assert not cluster.in_sync()
    cluster.start()
    assert cluster.alive
    in_sync(cluster)
    wanted = [b"before"] * 500 + [b"without"] * 500
    # A new leader shows the last records when its follower has fetched again.
    wait_for("every record", lambda: values_in(cluster.bootstrap_servers, topic) == wanted)


def test_a_broker_that_is_cut_off_acknowledges_nothing(tmp_path: Path) -> None:
    with start_cluster(tmp_path, separable=True) as cluster:
        assert cluster.network is not None
        topic = cluster.fresh_topic("in", 1)
        wait_for("brokers that agree", lambda: cluster.agrees(5))
        require_only_proxies(cluster)
        leader = cluster.leader(topic, 0)
        assert leader is not None
        write(cluster.bootstrap_servers, topic, [b"before"])
        acknowledged: list[object] = []
        # it knows the leader, and asks for no other one before an answer
        producer = Producer(
            {"bootstrap.servers": cluster.brokers[leader].bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        )
        producer.produce(topic, b"early", partition=0)
        assert producer.flush(60) == 0
        with cluster.network.cut(leader):
            producer.produce(topic, b"meanwhile", partition=0, on_delivery=lambda error, _: acknowledged.append(error))
            wait_for("another leader", lambda: cluster.leader_without(leader, topic, 0, 5) not in (leader, None))
            own = view(cluster.brokers[leader].ports[CLIENTS], 5)
            assert own is not None
            assert own[topic, 0].leader == leader, "it cannot learn that another one leads"
            assert not cluster.agrees(5)
            producer.poll(5)
            assert acknowledged == []
        wait_for("brokers that agree", lambda: cluster.agrees(5))
        assert producer.flush(120) == 0
        assert acknowledged == [None]
        wanted = [b"before", b"early", b"meanwhile"]
        wait_for("every record", lambda: values_in(cluster.bootstrap_servers, topic) == wanted)


def require_only_proxies(cluster: KafkaCluster) -> None:
    """Requires connections of each broker to the proxies, and none to another broker's ports."""
    ports = {port: number for number, broker in cluster.brokers.items() for port in broker.ports.values()}
    reached = 0
    for number, broker in cluster.brokers.items():
        for found in psutil.Process(broker.pid).net_connections("tcp"):
            if found.raddr and (other := ports.get(found.raddr.port, number)) != number:
                assert found.raddr.ip.removeprefix("::ffff:") == f"127.0.{number}.{other}"
                reached += 1
    assert reached >= 2, "the followers of the controller are connected to it"


def test_a_cluster_starts_again_on_kept_data_and_ends_as_one(tmp_path: Path) -> None:
    with start_cluster(tmp_path) as cluster:
        topic = cluster.fresh_topic("in", 1)
        write(cluster.bootstrap_servers, topic, [b"kept"])
        cluster.stop()
        assert not any(broker.alive for broker in cluster.brokers.values())
        assert all((broker.data / ".kafka_cleanshutdown").exists() for broker in cluster.brokers.values())
    with start_cluster(tmp_path) as again:
        pids = [broker.pid for broker in again.brokers.values()]
        wait_for("the record", lambda: values_in(again.bootstrap_servers, topic) == [b"kept"])
    assert all(map(gone, pids))


def test_a_broker_that_does_not_start_takes_the_others_with_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)ended while starting.*kafka-\d\.log:.*num\.io\.threads"):
        start_cluster(tmp_path, settings={"num.io.threads": "none"})
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]
