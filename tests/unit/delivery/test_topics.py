"""What a start and a failure find out about topics.

They find reserved names, missing rights, and partitions that take no rows.
"""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, AdminClient, PartitionMetadata

from oncebench.delivery.copies.sizes import copy_sizes
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.topics.check import READ, WRITE, refuse_unfit
from oncebench.delivery.topics.replicas import lack_of, warn_of_replicas
from oncebench.delivery.topics.settings import producer_sizes

OWN = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")


def cluster(allowed: list[AclOperation] | None) -> AdminClient:
    """A cluster whose topics exist, with these rights of the user.

    None: the cluster does not return the rights.
    """

    def describe_topics(topics: Any, **asked: Any) -> dict[str, Future[Any]]:
        assert asked["include_authorized_operations"]
        found: Future[Any] = Future()
        found.set_result(SimpleNamespace(is_internal=False, authorized_operations=allowed))
        return {"orders": found}

    return cast("AdminClient", SimpleNamespace(describe_topics=describe_topics))


@pytest.mark.parametrize("rights", [(READ,), (WRITE,), (READ, WRITE)])
@pytest.mark.parametrize("name", OWN)
def test_a_topic_of_kafka_itself_is_refused_by_its_name(name: str, rights: tuple[AclOperation, ...]) -> None:
    nothing_is_asked = cast("AdminClient", None)
    with pytest.raises(RefusedStart, match=f"the topic '{name}' is internal to Kafka.* Name another topic"):
        refuse_unfit(nothing_is_asked, {name: "the topic"}, 1.0, rights)


@pytest.mark.parametrize(
    ("allowed", "rights", "missing"),
    [([AclOperation.DESCRIBE, READ], (WRITE,), "Grant Write on it .*--operation Write --topic orders"),
     ([AclOperation.DESCRIBE, WRITE], (READ,), "Grant Read on it .*--operation Read --topic orders"),
     ([WRITE], (READ, WRITE), "Grant Read and Write on it .*--operation Read --operation Write --topic orders")],
)  # fmt: skip
def test_a_missing_right_is_refused_with_the_command_that_grants_it(
    allowed: list[AclOperation], rights: tuple[AclOperation, ...], missing: str
) -> None:
    with pytest.raises(RefusedStart, match=missing):
        refuse_unfit(cluster(allowed), {"orders": "the output topic"}, 1.0, rights)


@pytest.mark.parametrize("allowed", [None, [READ, WRITE, AclOperation.DESCRIBE]])
def test_a_topic_with_the_rights_passes_also_if_the_broker_does_not_return_them(
    allowed: list[AclOperation] | None,
) -> None:
    refuse_unfit(cluster(allowed), {"orders": "the output topic"}, 1.0, (READ, WRITE))


def partition(leader: int, replicas: list[int], in_sync: list[int]) -> PartitionMetadata:
    found = PartitionMetadata()
    found.id, found.leader, found.replicas, found.isrs = 3, leader, replicas, in_sync
    return found


def test_a_partition_without_a_leader_names_its_brokers() -> None:
    lack = lack_of("orders", partition(leader=-1, replicas=[2], in_sync=[2]), required=1)
    assert lack is not None
    assert lack.startswith("topic orders partition 3 has no leader, because its brokers are away (numbers 2). Start")


def test_a_partition_with_too_few_replicas_in_sync_is_named() -> None:
    lack = lack_of("orders", partition(leader=1, replicas=[1, 2], in_sync=[1]), required=2)
    assert lack is not None
    assert lack.startswith("not enough in-sync replicas: topic orders partition 3 has 1 of 2")


@pytest.mark.parametrize("required", [1, 2])
def test_a_partition_whose_replicas_are_all_in_sync_lacks_nothing(required: int) -> None:
    assert lack_of("orders", partition(leader=1, replicas=[1], in_sync=[1]), required) is None


@pytest.mark.parametrize("limit", [1, 500, 10_000, 1_048_588, 8_000_000])
def test_no_batch_of_a_producer_is_larger_than_its_topic_takes(limit: int) -> None:
    for sizes in (producer_sizes(limit), copy_sizes(limit)):
        assert sizes["batch.size"] == min(limit, 1_000_000)
        assert sizes["message.max.bytes"] >= limit
        Producer({"bootstrap.servers": "127.0.0.1:9", "log_level": 0, **sizes})  # the client takes them


def settings_of(replicas: int, **settings: str) -> AdminClient:
    """A cluster whose topic `orders` has so many replicas and these settings."""

    def describe_configs(resources: Any, **_asked: Any) -> dict[Any, Future[Any]]:
        found: Future[Any] = Future()
        found.set_result({name.replace("_", "."): SimpleNamespace(value=value) for name, value in settings.items()})
        return {resources[0]: found}

    numbers = list(range(replicas))
    topic = SimpleNamespace(partitions={3: partition(leader=0, replicas=numbers, in_sync=numbers)})
    listed = SimpleNamespace(topics={"orders": topic})
    return cast(
        "AdminClient", SimpleNamespace(describe_configs=describe_configs, list_topics=lambda *_args, **_more: listed)
    )


@pytest.mark.parametrize(
    ("replicas", "settings", "warning"),
    [
        (3, {"unclean_leader_election_enable": "true"}, "no guarantee prevents that. Set it to false."),
        (3, {"unclean_leader_election_enable": "false"}, None),
        (1, {"unclean_leader_election_enable": "true"}, None),  # nobody else could lead
        (1, {"min_insync_replicas": "2"}, "Brokers before 4.0 refuse every write to it"),
        (3, {"min_insync_replicas": "2"}, None),
    ],
)
def test_a_start_warns_of_replicas_that_lose_or_refuse_rows(
    caplog: pytest.LogCaptureFixture, replicas: int, settings: dict[str, str], warning: str | None
) -> None:
    warn_of_replicas(settings_of(replicas, **settings), "orders")
    assert [warning in record.getMessage() for record in caplog.records] == ([] if warning is None else [True])
