"""A real producer, without a broker, that has failed for good."""

from __future__ import annotations

import ctypes

from confluent_kafka import Producer

from oncebench.kafka_repair.librdkafka import function, handle_of

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "client.id": "named"}


def ended(code: int) -> Producer:
    """Returns a producer that drops its records for this error of a broker."""
    producer = Producer({**NOWHERE, "enable.idempotence": True})
    fail = function("rd_kafka_test_fatal_error", ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    fail(handle_of(producer), code, b"asked for by a test")
    return producer
