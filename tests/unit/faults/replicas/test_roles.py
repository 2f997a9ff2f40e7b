"""A fault names a role; the role names a partition as Kafka does. No broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from oncebench.errors import UserError
from oncebench.faults.replicas import roles
from oncebench.faults.replicas.roles import Place, java_hash, stored_in
from tests.unit.faults.fake_pipeline import World
from tests.unit.faults.test_server import Listing


@pytest.mark.parametrize(
    ("text", "code"),
    # as Java returns them; the last text has a character of two code units
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("ä\U0001f600", 1992007)],
)
def test_a_name_has_the_hash_of_java(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_an_internal_topic_stores_a_name_by_its_hash() -> None:
    assert stored_in("hello", 4) == 99162322 % 4
    assert stored_in("polygenelubricants", 50) == 0, "Java's abs of the least number is negative; Kafka takes 0"
    assert {stored_in(f"id-{number}", 4) for number in range(50)} == {0, 1, 2, 3}


def test_roles_name_partitions_of_the_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = SimpleNamespace(bootstrap_servers="localhost:1", partitions=lambda _topic: 4)
    context = world.context("after-prepare:kill-output-leader", kafka)
    monkeypatch.setattr(roles, "Coordinator", lambda _where: Listing("Empty", "Ongoing"))
    assert roles.OUTPUT_LEADER.place(context) == Place("out", 0)
    assert roles.INPUT_LEADER.place(context) == Place("in", 0)
    assert roles.GROUP_COORDINATOR.place(context) == Place("__consumer_offsets", stored_in("id.marker.0", 4))
    assert roles.TRANSACTION_COORDINATOR.place(context) == Place("__transaction_state", stored_in("id.txn.g2.1.x", 4))


@pytest.mark.parametrize("states", [(), ("Empty", "CompleteCommit", "CompleteAbort")])
def test_a_sink_without_an_open_transaction_has_no_coordinator(
    world: World, monkeypatch: pytest.MonkeyPatch, states: tuple[str, ...]
) -> None:
    monkeypatch.setattr(roles, "Coordinator", lambda _where: Listing(*states))
    kafka = SimpleNamespace(bootstrap_servers="x:1", partitions=lambda _topic: 4)
    context = world.context("after-prepare:kill-transaction-coordinator", kafka)
    assert roles.TRANSACTION_COORDINATOR.place(context) is None


def test_a_kafka_that_lists_no_transactions_is_an_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_where: Any) -> Any:
        raise KafkaTimeoutError("no broker")

    monkeypatch.setattr(roles, "Coordinator", fails)
    context = world.context("mid-commit:kill-transaction-coordinator", SimpleNamespace(bootstrap_servers="x:1"))
    with pytest.raises(UserError, match=r"mid-commit:kill-transaction-coordinator: Kafka did not list .*no broker"):
        roles.TRANSACTION_COORDINATOR.place(context)
