"""What is asked of librdkafka itself: the client's handle, and the error that has ended it."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from oncebench.kafka_repair import fatal, librdkafka
from oncebench.kafka_repair.librdkafka import handle_of
from tests.unit.kafka_repair.ended import NOWHERE, ended


@pytest.mark.parametrize("kind", [Producer, Consumer, AdminClient])
def test_the_handle_is_librdkafkas(kind: Any) -> None:
    """An upgrade of confluent-kafka may move the handle; then the repair would crash."""
    client = kind({**NOWHERE, "group.id": "g"} if kind is Consumer else NOWHERE)
    name_of = librdkafka._LIBRARY.rd_kafka_name
    name_of.argtypes, name_of.restype = (ctypes.c_void_p,), ctypes.c_char_p
    assert name_of(handle_of(client)).startswith(b"named#")


def test_what_is_no_client_has_no_handle() -> None:
    assert handle_of(object()) is None


def test_a_working_producer_has_no_reason() -> None:
    assert fatal.reason_of(Producer(NOWHERE)) is None


def test_a_producer_keeps_its_reason_after_it_was_raised() -> None:
    producer = ended(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="31"):
        producer.poll(1)
    producer.poll(0)  # raised once only
    reason = fatal.reason_of(producer)
    assert reason is not None
    assert reason.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
