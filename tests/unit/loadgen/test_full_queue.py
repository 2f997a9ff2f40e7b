"""A generator whose queue is full counts the time that it waits for Kafka. No broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from loadgen.config import LoadConfig
from loadgen.ledger import Ledger, Plan
from loadgen.producer import TICK_S, _Load
from loadgen.status import Summary

EVENTS, ROOM = 400, 100


class Kafka:
    """A producer whose broker acknowledges some events per ms, on a clock of its own."""

    def __init__(self, per_ms: int, room: int) -> None:
        self.now_us, self._per_ms, self._room = 1_000_000, per_ms, room
        self._waiting: list[Callable[[Any, Any], None]] = []

    def produce(self, _topic: str, _value: str, _key: str, _partition: int, on_delivery: Callable[..., None]) -> None:
        if len(self._waiting) >= self._room:
            raise BufferError
        self._waiting.append(on_delivery)

    def poll(self, timeout_s: float) -> None:
        self.now_us += round(timeout_s * 1e6)
        for on_delivery in self._waiting[: round(timeout_s * 1e3 * self._per_ms)]:
            on_delivery(None, Message(topic="t", partition=0, offset=0))
        del self._waiting[: round(timeout_s * 1e3 * self._per_ms)]


def summary(folder: Path, kafka: Kafka, limit: int) -> Summary:
    config = LoadConfig("b:1", "t", 1e6, EVENTS // 100, folder, client={"queue.buffering.max.messages": limit})
    ledger = Ledger.create(folder, EVENTS)
    ledger.scheduled_us[:] = kafka.now_us
    ledger.write_plan(Plan(0, 1e6, "constant", EVENTS // 100, EVENTS, "t", kafka.now_us, 100, 0))
    load = _Load(config, kafka, ledger, lambda: kafka.now_us, lambda _status: None)
    load.send(lambda: False)
    load.drain(10.0, lambda: False)
    return load.summary()


@pytest.mark.parametrize(("limit", "room"), [(ROOM, EVENTS), (EVENTS, ROOM)], ids=["our limit", "the client's bytes"])
def test_the_time_without_room_counts(tmp_path: Path, limit: int, room: int) -> None:
    found = summary(tmp_path, Kafka(per_ms=10, room=room), limit)
    assert found.acknowledged == EVENTS
    assert found.queue_full_s == pytest.approx((EVENTS - ROOM) / 10 / 1e3, abs=2 * TICK_S)


def test_a_queue_with_room_costs_nothing(tmp_path: Path) -> None:
    assert summary(tmp_path, Kafka(per_ms=10, room=EVENTS), EVENTS).queue_full_s == 0.0
