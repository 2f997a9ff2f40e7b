"""The Kafka tasks' own limits, where Kafka's client has none."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, cast

import pytest

from pipeline.aside import aside
from pipeline.errors import DeliveryFailed
from pipeline.sinks import kafka_tasks
from pipeline.sinks.kafka_names import Names
from pipeline.sinks.kafka_tasks import TransactionalWriter


@dataclass
class Task:
    batch: int = 7
    partition: int = 1


class NeverAnswers:
    """A producer whose coordinator has gone away."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def send_offsets_to_transaction(self, *_: Any) -> None:
        self.released.wait()


def test_a_client_that_never_answers_fails_the_task_instead_of_holding_up_the_pipeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_tasks, "MARK_LIMIT_S", 0.05)
    monkeypatch.setattr(kafka_tasks, "_metadata", lambda *_: None)
    writer = TransactionalWriter({}, Names("s", 1, "out"), 60_000, commits=False, ended={}, retired=frozenset())
    stuck = NeverAnswers()
    try:
        with pytest.raises(DeliveryFailed, match=r"^batch 7, partition 1: Kafka's client has not got its marker"):
            writer._mark(cast("Any", stuck), cast("Any", Task()), {})
    finally:
        stuck.released.set()


def test_what_runs_aside_gives_its_result_and_its_error_and_keeps_no_process_alive() -> None:
    assert aside(lambda: threading.current_thread().daemon).result(5) is True
    with pytest.raises(ZeroDivisionError):
        aside(lambda: 1 // 0).result(5)
