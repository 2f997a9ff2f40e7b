"""The functions of librdkafka that its Python client does not offer, called with ctypes."""

from __future__ import annotations

import ctypes
from typing import Any

from confluent_kafka import Consumer, Producer, cimpl

_LIBRARY = ctypes.CDLL(cimpl.__file__)  # also finds the functions of the librdkafka that the Python client has loaded
_CLIENTS = (Producer, Consumer, cimpl._AdminClientImpl)
_INFO = 6  # syslog's level of librdkafka without `debug`; 7 are the lines of `debug`


def function(name: str, *arguments: Any) -> Any:
    """Returns a public function of librdkafka that returns an `int`.

    Returns None if a client hides its library's functions.

    Args:
        name: the name in `rdkafka.h`.
        arguments: the ctypes types of its arguments.
    """
    found = getattr(_LIBRARY, name, None)
    if found is not None:
        found.argtypes, found.restype = arguments, ctypes.c_int
    return found


def handle_of(client: Any) -> int | None:
    """Returns the address of librdkafka's client (`rd_kafka_t`); None if the client is closed.

    It is the first field of every client object of confluent-kafka. If an upgrade changes that, this test fails:
    tests/unit/kafka_repair/test_librdkafka.py::test_the_handle_is_librdkafkas
    """
    if not isinstance(client, _CLIENTS):
        return None
    return ctypes.c_void_p.from_address(id(client) + object.__basicsize__).value


def end_debug(client: Any) -> None:
    """Ends a client's log lines of `debug`. Other lines continue.

    The lines that would only be queued for `logger` end as well.
    """
    handle = handle_of(client)
    if _SET_LEVEL is not None and handle is not None:
        _SET_LEVEL(handle, _INFO)


_SET_LEVEL = function("rd_kafka_set_log_level", ctypes.c_void_p, ctypes.c_int)
