"""A flush of Kafka rows: each row is acknowledged, or the task fails and names the cause."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from oncebench.delivery.errors import DeliveryFailed, PermanentFailure
from oncebench.delivery.quarantine import Quarantine, _writers
from oncebench.kafka_repair import addresses
from oncebench.sinks.kafka.rows.produce import Reports, Target, flush
from tests.unit.kafka_repair.ended import ended
from tests.unit.sinks.test_kafka_writers import Task


@pytest.fixture
def given_up() -> Producer:
    """A producer that has raised its reason already.

    It has not reported the records that it dropped.
    """
    producer = ended(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        producer.poll(1)
    return producer


def test_dropped_rows_are_reported_by_the_reason_for_it(given_up: Producer) -> None:
    reports = Reports()
    reports.refused(KafkaError(KafkaError._PURGE_QUEUE), b"k", b"v")
    with pytest.raises(PermanentFailure, match="--operation Write --topic out"):
        flush(given_up, 1, reports, Target("out", "localhost:1"), cast("Any", Task()))


def test_dropped_copies_are_reported_by_the_reason_for_it(given_up: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    quarantine = Quarantine("bad", "in", {"bootstrap.servers": "localhost:1"})
    monkeypatch.setitem(_writers, quarantine._key, (given_up, 1000))
    quarantine._counts["r"], quarantine._failed = 1, [KafkaError(KafkaError._PURGE_QUEUE)]
    with pytest.raises(PermanentFailure, match="--operation Write --topic bad"):
        quarantine.flush()


@pytest.mark.parametrize(("left", "acknowledged"), [(3, 0), (1, 2), (1, 3), (0, 2)])
def test_a_flush_raises_unless_every_row_was_acknowledged_though_no_row_has_an_error(
    monkeypatch: pytest.MonkeyPatch, left: int, acknowledged: int
) -> None:
    monkeypatch.setattr(addresses, "flush", lambda *_: left)
    reports = Reports()
    reports.acknowledged = acknowledged
    with pytest.raises(DeliveryFailed, match=f"^batch 7, partition 1: topic out acknowledged {acknowledged} of 3 rows"):
        flush(cast("Any", None), 3, reports, Target("out", "localhost:1"), cast("Any", Task()))


def test_a_flush_of_rows_that_were_all_acknowledged_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "flush", lambda *_: 0)
    reports = Reports()
    reports.acknowledged = 3
    flush(cast("Any", None), 3, reports, Target("out", "localhost:1"), cast("Any", Task()))


class Unexplained:
    """Ends a flush as Python does if an error was set and lost inside a callback."""

    def __init__(self, *_: Any) -> None:
        raise SystemError("returned NULL without setting an exception")


def test_a_flush_that_ends_without_a_cause_is_explained_by_the_client(
    given_up: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "flush", Unexplained)
    reports = Reports()
    reports.refused(KafkaError(KafkaError._PURGE_QUEUE), b"k", b"v")
    with pytest.raises(PermanentFailure, match="--operation Write --topic out"):
        flush(given_up, 1, reports, Target("out", "localhost:1"), cast("Any", Task()))
