"""The repair of a client without addresses: what it calls, and when."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer

from oncebench.kafka_repair import addresses
from oncebench.kafka_repair.addresses import SILENT_S, Repair, add_addresses, flush
from oncebench.kafka_repair.librdkafka import handle_of

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "client.id": "repaired"}


def test_the_librdkafka_of_the_client_is_called() -> None:
    assert addresses._ADD is not None
    assert addresses._ADD(handle_of(Producer(NOWHERE)), b"127.0.0.1:2,127.0.0.1:3") == 2


def test_a_closed_client_is_left_alone() -> None:
    consumer = Consumer({**NOWHERE, "group.id": "g"})
    consumer.close()
    add_addresses(consumer, "127.0.0.1:1")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, str]]:
    calls: list[tuple[object, str]] = []
    monkeypatch.setattr(addresses, "add_addresses", lambda *call: calls.append(call))
    return calls


def test_a_client_without_progress_gets_its_addresses_again_and_again(added: list[tuple[object, str]]) -> None:
    clock, client = Clock(), object()
    repair = Repair(client, "one:1", clock)
    for _ in range(4 * int(SILENT_S)):
        repair.look(7)
        clock.now += 0.5
    assert added == [(client, "one:1")]
    clock.now += SILENT_S
    repair.look(7)
    assert len(added) == 2


def test_a_client_with_progress_is_left_alone(added: list[tuple[object, str]]) -> None:
    clock = Clock()
    repair = Repair(object(), "one:1", clock)
    for progress in range(10):
        repair.look(progress)
        clock.now += SILENT_S - 0.1
    assert added == []


class Slow:
    """A producer whose queue is answered after some calls of `flush`."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def flush(self, _limit_s: float) -> int:
        self.calls -= 1
        return max(0, self.calls)


def test_a_flush_waits_for_all_answers() -> None:
    assert flush(Slow(5), "one:1", 60.0) == 0


def test_a_flush_ends_after_its_limit() -> None:
    assert flush(Slow(5), "one:1", 0.0) == 4
