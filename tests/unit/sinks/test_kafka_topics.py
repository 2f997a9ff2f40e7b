"""A topic's identity is not empty because one broker does not know the topic yet."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.topics import check
from oncebench.sinks.kafka import topics

IDS = {"cluster": "c", "topic_id": "t"}


def answered(value: object, code: int = 0) -> Future[Any]:
    found: Future[Any] = Future()
    if code:
        found.set_exception(KafkaException(KafkaError(code)))
    else:
        found.set_result(value)
    return found


def cluster(*codes: int) -> AdminClient:
    """A cluster whose brokers describe a topic by these codes in turn, and then by the last one."""
    left = list(codes)
    topic = SimpleNamespace(topic_id="t", is_internal=False, authorized_operations=None)

    def describe_topics(_topics: Any, **_asked: Any) -> dict[str, Future[Any]]:
        return {"orders": answered(topic, left.pop(0) if len(left) > 1 else left[0])}

    def describe_cluster(**_asked: Any) -> Future[Any]:
        return answered(SimpleNamespace(cluster_id="c"))

    return cast("AdminClient", SimpleNamespace(describe_topics=describe_topics, describe_cluster=describe_cluster))


UNKNOWN = KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (check, topics):
        monkeypatch.setattr(module, "APPEARS_S", 0.1)
        monkeypatch.setattr(module, "PAUSE_S", 0.0)


@pytest.mark.parametrize("codes", [(0,), (UNKNOWN, 0), (UNKNOWN, 0, UNKNOWN, 0)])
def test_a_topic_that_a_broker_does_not_know_yet_has_its_identity(codes: tuple[int, ...]) -> None:
    assert topics.identity(cluster(*codes), "orders", 1.0) == IDS
    assert topics.output_identity(cluster(*codes), "orders", 1.0) == IDS


def test_a_topic_that_does_not_come_has_none_and_as_an_output_refuses_the_start() -> None:
    assert topics.identity(cluster(UNKNOWN), "orders", 1.0) == {}
    with pytest.raises(RefusedStart, match="the output topic 'orders' does not exist"):
        topics.output_identity(cluster(UNKNOWN), "orders", 1.0)


def test_an_output_that_is_closed_to_this_user_is_named() -> None:
    with pytest.raises(RefusedStart, match="the output topic 'orders' is closed to this user"):
        topics.output_identity(cluster(KafkaError.TOPIC_AUTHORIZATION_FAILED), "orders", 1.0)
