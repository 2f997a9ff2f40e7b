"""What is asked of librdkafka itself: the client's handle, and the error that has ended it."""

from __future__ import annotations

import ctypes
import logging
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from oncebench.kafka_repair import fatal, librdkafka
from oncebench.kafka_repair.librdkafka import handle_of
from tests.unit.kafka_repair.ended import NOWHERE, ended

SOME_ATTEMPTS_S = 1.0  # at 100 ms


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


class Lines:
    """A logger that counts the debug lines of a client."""

    def __init__(self) -> None:
        self.number = 0

    def log(self, level: int, *_line: object) -> None:
        self.number += level == logging.DEBUG


@pytest.mark.parametrize("ended", [False, True])
def test_a_client_whose_debug_has_ended_writes_no_more_of_it(ended: bool) -> None:
    lines = Lines()
    producer = Producer(
        {**NOWHERE, "log_level": 7, "debug": "broker", "logger": lines, "reconnect.backoff.max.ms": 100}
    )
    while not lines.number:
        producer.poll(0.05)
    if ended:
        librdkafka.end_debug(producer)
        producer.poll(0)  # what was written before
        lines.number = 0
        time.sleep(SOME_ATTEMPTS_S)
        producer.poll(0)
        assert lines.number == 0
    else:
        lines.number = 0
        while not lines.number:  # each attempt to connect writes some
            producer.poll(0.05)
