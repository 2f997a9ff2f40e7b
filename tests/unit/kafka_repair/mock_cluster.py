"""Brokers of librdkafka's own test cluster: in this process, without Java."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer

from oncebench.kafka_repair.librdkafka import _LIBRARY, handle_of

BROKERS = 3
TOPIC = "topic"


class MockCluster:
    """Brokers 1 to BROKERS, and TOPIC, whose partition 0 is led by broker 1, and so on.

    Attributes:
        client: settings of a client of these brokers.
    """

    def __init__(self, cluster: int) -> None:
        self._cluster = cluster
        servers = _call("cluster_bootstraps", ctypes.c_char_p, cluster).decode()
        self.client: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
        _call("topic_create", ctypes.c_int, cluster, TOPIC.encode(), BROKERS, BROKERS)
        for partition in range(BROKERS):
            _call("partition_set_leader", ctypes.c_int, cluster, TOPIC.encode(), partition, partition + 1)

    def kill(self, broker: int) -> None:
        """Closes a broker's connections and its port."""
        _call("broker_set_down", ctypes.c_int, self._cluster, broker)

    def coordinate(self, kind: str, key: str, broker: int) -> None:
        """Makes a broker the coordinator of a `group` or `transaction`."""
        _call("coordinator_set", ctypes.c_int, self._cluster, kind.encode(), key.encode(), broker)


@contextmanager
def mock_cluster() -> Iterator[MockCluster]:
    """Yields a cluster that runs."""
    owner = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    cluster = _call("cluster_new", ctypes.c_void_p, handle_of(owner), BROKERS)
    try:
        yield MockCluster(cluster)
    finally:
        _call("cluster_destroy", None, cluster)


def _call(name: str, result: Any, first: int | None, *more: Any) -> Any:
    called = getattr(_LIBRARY, f"rd_kafka_mock_{name}")
    called.restype = result
    return called(ctypes.c_void_p(first), *more)
