"""A broker that does not answer raises Kafka's error in time, and every handler catches it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from oncebench.delivery.contract import Mark, Support
from oncebench.delivery.errors import ReadError
from oncebench.delivery.topics import settings
from oncebench.delivery.topics.settings import broker_setting
from oncebench.sinks.kafka import markers
from oncebench.sinks.kafka import sink as kafka
from oncebench.sinks.kafka.coordinator import Coordinator
from oncebench.sinks.kafka.markers import Noted, Offsets, restore_marks
from oncebench.sinks.kafka.names import Names
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.kafka.sink import SUPPORTS, KafkaSink

# Nobody listens there, and librdkafka asks again until its limit.
NOBODY: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}


class OneBroker:
    """The metadata of a broker that has gone away."""

    brokers = (0,)


def test_a_write_that_times_out_raises_kafkas_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "LIMIT_S", 0.2)
    with pytest.raises(KafkaException) as failed:
        Offsets(NOBODY, "out").write("group", 1)
    assert failed.value.args[0].code() == KafkaError._TIMED_OUT


class Groups:
    """An admin client of a cluster that stores every offset."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def alter_consumer_group_offsets(self, wanted: list[Any], **_limits: float) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {each.group_id: Future() for each in wanted}
        for each in wanted:
            self.numbers[each.group_id] = each.topic_partitions[0].offset
            answers[each.group_id].set_result(each)
        return answers


def test_one_client_writes_several_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Groups] = []

    def admin_client(_settings: object) -> Groups:
        made.append(Groups())
        return made[-1]

    monkeypatch.setattr(markers, "admin_client", admin_client)
    monkeypatch.setattr(markers, "read", lambda _client, group, *_: Noted(made[-1].numbers[group], "{}"))
    names = Names("it", 1, "out", "d")
    assert restore_marks(Offsets(NOBODY, "out"), names, {0: 3, 1: 4}) == {0: Mark(3, 0, None), 1: Mark(4, 0, None)}
    assert [each.numbers for each in made] == [{names.marker_group(0): 4, names.marker_group(1): 5}]


def test_a_broker_setting_that_times_out_raises_kafkas_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "LIMIT_S", 0.2)
    real = AdminClient(NOBODY)

    class Gone:
        def list_topics(self, timeout: float) -> type[OneBroker]:
            return OneBroker

        def describe_configs(self, resources: list[ConfigResource], **limits: float) -> Any:
            assert [each.restype for each in resources] == [ResourceType.BROKER]
            return real.describe_configs(resources, **limits)

    with pytest.raises(KafkaException) as failed:
        broker_setting(cast("AdminClient", Gone()), "transaction.max.timeout.ms")
    assert failed.value.args[0].code() == KafkaError._TIMED_OUT


@pytest.mark.parametrize("support", SUPPORTS, ids=lambda support: support.variant)
def test_a_start_that_times_out_at_its_topics_raises_kafkas_error(
    monkeypatch: pytest.MonkeyPatch, support: Support
) -> None:
    monkeypatch.setattr(kafka, "ADMIN_LIMIT_S", 0.2)
    with pytest.raises(KafkaException) as failed:
        KafkaSink("out", "it", 1, NOBODY, 60_000, "bad").start(support, 1, [])
    assert failed.value.args[0].code() == KafkaError._TIMED_OUT


def test_transactions_that_cannot_be_listed_end_the_read_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = KafkaReader.__new__(KafkaReader)  # its consumer would wait for the topic first
    reader._sink_id, reader._where, reader._client = "it", "topic out", NOBODY
    unreachable = {"bootstrap_servers": NOBODY["bootstrap.servers"], "bootstrap_timeout_ms": 200}
    monkeypatch.setattr(Coordinator, "of", lambda _client: Coordinator(unreachable))
    with pytest.raises(ReadError, match=r"topic out: the open transactions of the job cannot be listed \("):
        reader.leftovers()
