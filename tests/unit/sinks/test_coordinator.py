"""A coordinator's answers that look like success and are errors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.errors import (
    ClusterAuthorizationFailedError,
    CoordinatorLoadInProgressError,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    NotCoordinatorError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from oncebench.sinks.kafka import coordinator as coordinators
from oncebench.sinks.kafka.coordinator import Coordinator, Outcome, Transaction
from oncebench.sinks.kafka.leaders import Leaders
from oncebench.sinks.kafka.wire import Answers


class Answering:
    """kafka-python's client: a topic's metadata contains an error and no partitions."""

    def __init__(self, error_code: int) -> None:
        self.error_code = error_code

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        return [{"name": topic, "error_code": self.error_code, "partitions": []} for topic in topics]

    def describe_producers(self, places: list[Any]) -> dict[Any, Any]:
        assert places == []
        return {}


@pytest.mark.parametrize(("code", "error"), [(29, TopicAuthorizationFailedError), (3, UnknownTopicOrPartitionError)])
def test_a_topic_that_cannot_be_described_raises_its_error(code: int, error: type[KafkaError]) -> None:
    with pytest.raises(error, match="out"):
        Leaders(cast("Any", Answering(code))).open_in("out")


class Loading:
    """kafka-python's client, whose coordinator answers with these errors first.

    Then it answers with one transaction.
    """

    def __init__(self, *errors: type[KafkaError]) -> None:
        self.errors = list(errors)
        self.found = {"a": 0}
        self.refreshed = 0
        cluster = SimpleNamespace(_coordinators=self.found, refresh_metadata=self.refresh)
        self._manager = SimpleNamespace(cluster=cluster, run=lambda call: call())

    def refresh(self) -> None:
        self.refreshed += 1
        raise NodeNotReadyError

    def list_transactions(self) -> dict[int, list[Any]]:
        if self.errors:
            raise self.errors.pop(0)
        return {0: [SimpleNamespace(transactional_id="a", producer_id=7, state=SimpleNamespace(value="Ongoing"))]}

    def describe_transactions(self, names: list[str]) -> dict[str, Any]:
        times = {"transaction_start_time_ms": 5, "transaction_timeout_ms": 60_000}
        state = SimpleNamespace(producer_id=7, producer_epoch=1, state=SimpleNamespace(value="Ongoing"), **times)
        return {name: state for name in names if self.list_transactions()}


def asking(*errors: type[KafkaError]) -> Coordinator:
    coordinator = Coordinator.__new__(Coordinator)
    coordinator._admin = Loading(*errors)
    return coordinator


def test_reads_wait_for_a_coordinator_that_still_loads() -> None:
    errors = (CoordinatorLoadInProgressError, NotCoordinatorError)
    assert [txn.producer_id for txn in asking(*errors).listed("a")] == [7]
    described = asking(*errors).describe(["a"])["a"]
    assert (described.producer_id, described.began_ms, described.timeout_ms) == (7, 5, 60_000)


def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    coordinator = asking(NotCoordinatorError)
    coordinator.listed("a")
    assert coordinator._admin.found == {}


@pytest.mark.parametrize("away", [KafkaConnectionError, NodeNotReadyError])
def test_a_list_waits_for_the_end_of_a_dead_brokers_session(away: type[KafkaError]) -> None:
    coordinator = asking(away, away)
    assert [txn.producer_id for txn in coordinator.listed("a")] == [7]
    assert coordinator._admin.refreshed == 3, "a cluster without the dead broker lists the others only"


def test_a_list_waits_no_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "REQUEST_TIMEOUT_MS", -1)
    with pytest.raises(KafkaConnectionError):
        asking(KafkaConnectionError).listed("a")


class Returning:
    """kafka-python's client, which has seen broker 1 only.

    Broker 2 is there again, and leads one of two partitions. The first so many descriptions of that partition show no
    leader.
    """

    def __init__(self, leaderless: int = 0) -> None:
        self.leaderless, self.brokers = leaderless, {1: "it.a"}
        cluster = SimpleNamespace(_coordinators={}, refresh_metadata=self.refresh)
        self._manager = SimpleNamespace(cluster=cluster, run=lambda call: call())

    def refresh(self) -> None:
        if self.leaderless <= 0:
            self.brokers[2] = "it.b"

    def list_transactions(self) -> dict[int, list[Any]]:
        state = SimpleNamespace(value="Ongoing")
        return {
            broker: [SimpleNamespace(transactional_id=name, producer_id=broker, state=state)]
            for broker, name in self.brokers.items()
        }

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        self.leaderless -= 1
        leaders = (1, -1 if self.leaderless >= 0 else 2)
        parts = [{"partition_index": at, "leader_id": leader, "leader_epoch": 7} for at, leader in enumerate(leaders)]
        return [{"name": topics[0], "partitions": parts[::-1]}]


def of(admin: Any) -> Coordinator:
    coordinator = Coordinator.__new__(Coordinator)
    coordinator._admin = admin
    return coordinator


def test_a_list_asks_a_broker_that_came_back_after_the_client_had_connected() -> None:
    assert [txn.transactional_id for txn in of(Returning()).listed("it.")] == ["it.a", "it.b"]


@pytest.mark.parametrize("leaderless", [0, 1, 2, 3])
def test_a_complete_list_waits_until_every_partition_has_a_leader_that_was_asked(leaderless: int) -> None:
    found = of(Returning(leaderless)).listed("it.", complete=True)
    assert [txn.transactional_id for txn in found] == ["it.a", "it.b"]


def test_a_complete_list_without_a_coordinator_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "REQUEST_TIMEOUT_MS", 200)
    assert [txn.transactional_id for txn in of(Returning(99)).listed("it.")] == ["it.a"]
    with pytest.raises(KafkaError, match="__transaction_state"):
        of(Returning(99)).listed("it.", complete=True)


def test_missing_rights_are_not_waited_for() -> None:
    with pytest.raises(ClusterAuthorizationFailedError):
        asking(ClusterAuthorizationFailedError).listed("a")


class Ending(Coordinator):
    """A coordinator that is busy for so many seconds, and then gives these answers to EndTxn."""

    def __init__(self, busy_s: float, *answers: int) -> None:
        self._admin = Loading()
        self._until, self._answers = time.monotonic() + busy_s, list(answers)

    def _ask(self, _requests: Mapping[int, Any], whose: Mapping[int, Transaction], _limit_s: float) -> Answers:
        busy = time.monotonic() < self._until
        return dict.fromkeys(whose, coordinators.CONCURRENT_TRANSACTIONS if busy else self._answers.pop(0))


def test_a_role_that_moves_after_a_busy_time_has_the_whole_limit() -> None:
    ending = Ending(0.6, 16, 15, 0)
    (ended,) = ending.end([Transaction("a", 7, 1)], commit=True, limit_s=0.5, busy_limit_s=60.0)
    assert ended.outcome is Outcome.DONE


@pytest.mark.parametrize(("busy_s", "answers", "code"), [(60.0, [], 51), (0.0, [16] * 100, 16)])
def test_a_coordinator_that_never_ends_a_transaction_has_a_limit(busy_s: float, answers: list[int], code: int) -> None:
    (ended,) = Ending(busy_s, *answers).end([Transaction("a", 7, 1)], commit=True, limit_s=0.1, busy_limit_s=0.2)
    assert (ended.outcome, ended.error_code) == (Outcome.UNKNOWN, code)


@pytest.mark.parametrize(("after_s", "found"), [(0.0, {}), (60.0, {"a": 0})])
def test_a_busy_coordinator_is_looked_up_again_now_and_then(
    after_s: float, found: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "LOOK_UP_S", after_s)
    ending = Ending(0.1, 0)
    ending.end([Transaction("a", 7, 1)], commit=True, limit_s=10.0)
    assert ending._admin.found == found
