"""The Kafka tasks' own limits, where Kafka's client has none."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, cast

import pytest

from oncebench.delivery.bounded_call import aside
from oncebench.delivery.errors import DeliveryFailed
from oncebench.sinks.kafka import writers
from oncebench.sinks.kafka.names import Names
from oncebench.sinks.kafka.writers import TransactionalWriter


@dataclass
class Task:
    batch: int = 7
    partition: int = 1

    def counted(self) -> tuple[int, int]:
        return 0, 0

    def reach(self, _point: str) -> None:
        """No fault."""


class Ready:
    """A producer that has begun its transaction."""

    name, producer_id, epoch, producer = "id", 1, 0, None

    def commit(self) -> None:
        """Done at once."""


class NeverAnswers:
    """A producer whose coordinator has gone away."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def send_offsets_to_transaction(self, *_: Any) -> None:
        self.released.wait()


def test_a_client_that_never_answers_fails_the_task_instead_of_holding_up_the_pipeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writers, "MARK_LIMIT_S", 0.05)
    monkeypatch.setattr(writers, "_metadata", lambda *_: None)
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


@pytest.mark.parametrize("commits", [True, False], ids=["idempotent", "two-phase"])
def test_what_a_task_waits_for_its_marker_is_in_what_it_took_to_prepare(
    monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    took_s = 0.05
    monkeypatch.setattr(TransactionalWriter, "_mark", lambda *_: time.sleep(took_s))
    monkeypatch.setattr(writers, "_produce_all", lambda *_: 0)
    monkeypatch.setattr(writers, "_flush", lambda *_, **__: None)
    writer = TransactionalWriter({}, Names("s", 1, "out"), 60_000, commits=commits, ended={}, retired=frozenset())
    transactional, first = cast("Any", Ready()), cast("Any", None)
    _, timings = writer._write(transactional, cast("Any", Task()), first, iter(()), {})
    assert timings["mark"] >= took_s * 1000 * 0.9  # two-phase: from the last row on, so a moment less
    assert timings["prepare"] >= timings["mark"]
