"""Answers to a marker that a task puts into its transaction itself."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from kafka.errors import KafkaError, KafkaTimeoutError, NodeNotReadyError, ProducerFencedError

from oncebench.sinks.kafka.rows import marking
from oncebench.sinks.kafka.rows.marking import _repeat

NOT_AVAILABLE, FENCED = 15, 90


def answers(*given: int | KafkaError) -> Callable[[], int]:
    """One answer after the other, and the last for ever."""
    left = list(given)

    def ask() -> int:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    return ask


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marking, "PAUSE_S", 0.0)


def test_a_coordinator_that_moves_is_asked_again() -> None:
    _repeat(answers(NodeNotReadyError(), NOT_AVAILABLE, 0), time.monotonic() + 60)


@pytest.mark.parametrize("answer", [NOT_AVAILABLE, NodeNotReadyError("away")])
def test_a_coordinator_that_stays_away_is_a_time_out(answer: int | KafkaError) -> None:
    """Not the error of the answer: the task would then advise a longer time-out of transactions."""
    with pytest.raises(KafkaTimeoutError, match=r"no coordinator took the marker: (Coordinator|.*away)"):
        _repeat(answers(answer), time.monotonic())


def test_a_refusal_is_raised_at_once() -> None:
    with pytest.raises(ProducerFencedError):
        _repeat(answers(FENCED), time.monotonic() + 60)
