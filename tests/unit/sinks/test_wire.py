"""The check of kafka-python's private names refuses a client that lacks one."""

from __future__ import annotations

import threading
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient
from kafka.cluster import ClusterMetadata
from kafka.errors import KafkaError
from kafka.net.manager import KafkaConnectionManager

from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.kafka import coordinator, wire


def client() -> Any:
    """The installed kafka-python's own classes, without a connection."""
    names = {"_coordinators": ClusterMetadata()._coordinators, "refresh_metadata": ClusterMetadata.refresh_metadata}
    manager = SimpleNamespace(
        run=KafkaConnectionManager.run, send=KafkaConnectionManager.send, cluster=SimpleNamespace(**names)
    )
    return SimpleNamespace(
        _manager=manager,
        _find_coordinator_ids=KafkaAdminClient._find_coordinator_ids,
        _async_get_leader_for_partitions=KafkaAdminClient._async_get_leader_for_partitions,
    )


def without(name: str) -> Any:
    """A client that lacks one name."""
    lacking = client()
    *path, last = name.split(".")
    owner = lacking
    for part in path:
        owner = getattr(owner, part)
    delattr(owner, last)
    return lacking


def test_the_installed_client_has_every_name() -> None:
    wire.check_client(client())


def test_the_installed_version_is_the_tested_one() -> None:
    assert version("kafka-python") == wire.TESTED_VERSION


@pytest.mark.parametrize("name", wire.PRIVATE_NAMES)
def test_a_client_without_a_name_is_refused(name: str) -> None:
    message = rf"kafka-python {version('kafka-python')} has no `{name}`.*kafka-python=={wire.TESTED_VERSION}"
    with pytest.raises(RefusedStart, match=message):
        wire.check_client(without(name))


def test_a_coordinator_checks_its_client_and_closes_a_refused_one(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, closed = without("_find_coordinator_ids"), []
    refused.close = lambda: closed.append(refused)
    monkeypatch.setattr(wire, "_Client", lambda **_settings: refused)
    with pytest.raises(RefusedStart, match="_find_coordinator_ids"):
        coordinator.Coordinator({"bootstrap_servers": "127.0.0.1:9"})
    assert closed == [refused]


def test_a_client_that_reaches_no_cluster_leaves_no_thread() -> None:
    before = threading.enumerate()
    with pytest.raises(KafkaError):
        wire.connect({"bootstrap_servers": "127.0.0.1:1", "bootstrap_timeout_ms": 200})
    for thread in [thread for thread in threading.enumerate() if thread not in before]:
        thread.join(10)
        assert not thread.is_alive()
