"""The check of kafka-python's private names refuses a client that lacks one."""

from __future__ import annotations

import threading
from contextlib import closing
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient
from kafka.cluster import ClusterMetadata
from kafka.errors import KafkaError
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import CoordinatorType

from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.kafka import coordinator, wire


def client() -> Any:
    """The installed kafka-python's own classes, without a connection."""
    names = {"_coordinators": ClusterMetadata()._coordinators, "refresh_metadata": ClusterMetadata.refresh_metadata}
    methods = {name: getattr(KafkaConnectionManager, name) for name in ("run", "send", "call_soon", "wait_for")}
    manager = SimpleNamespace(**methods, cluster=SimpleNamespace(**names))
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


class Silent:
    """kafka-python's client on its own event loop.

    Broker 0 answers at once, and broker 1 never does.
    """

    def __init__(self, finds: bool) -> None:
        self.finds = finds
        self._net = NetworkSelector()
        self._manager = KafkaConnectionManager(self._net, bootstrap_servers="127.0.0.1:1")
        self._manager.send = lambda _request, node_id: self.answer(node_id)
        self._net.start()

    def answer(self, broker: int) -> Future:
        return Future() if broker else Future().success(SimpleNamespace(error_code=0))

    async def _find_coordinator_ids(self, names: list[str], _kind: CoordinatorType) -> dict[str, int]:
        await self.answer(0 if self.finds else 1)
        return {name: int(name) for name in names}

    def close(self) -> None:
        self._manager.close()
        self._net.stop()


@pytest.mark.parametrize(("finds", "answers"), [(False, {5: None, 6: None}), (True, {5: None, 6: 0})])
def test_the_limit_holds_for_the_look_up_and_for_the_answers(finds: bool, answers: wire.Answers) -> None:
    got: list[wire.Answers] = []
    with closing(Silent(finds)) as admin:
        asked = (admin, {5: "request", 6: "request"}, {5: "1", 6: "0"}, coordinator.STALE_COORDINATOR, 0.1)
        asking = threading.Thread(target=lambda: got.append(wire.ask_coordinators(*asked)), daemon=True)
        asking.start()
        asking.join(10)  # far more than the limit
    assert got == [answers]
