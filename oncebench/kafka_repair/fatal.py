"""Asks a Kafka client for the error that has ended it.

A producer that may not write drops its records and reports each with `_PURGE_QUEUE`, which names no reason. The reason
is raised once, from whatever call comes first, and later calls only say `_FATAL`. librdkafka keeps the reason, and
knows it before it drops a record.
"""

from __future__ import annotations

import ctypes
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from oncebench.kafka_repair.librdkafka import function, handle_of

_TEXT_BYTES = 512  # librdkafka's own limit of an error's text
_FATAL_ERROR = function("rd_kafka_fatal_error", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)


def reason_of(client: Any) -> KafkaException | None:
    """Returns the error that has ended a producer, consumer or admin client.

    Returns None if the client works, or is closed.
    """
    handle = handle_of(client)
    if _FATAL_ERROR is None or handle is None:
        return None
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    code = _FATAL_ERROR(handle, text, _TEXT_BYTES)
    return KafkaException(KafkaError(code, text.value.decode(errors="replace"))) if code else None
