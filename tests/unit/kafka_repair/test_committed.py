"""A group's offsets are read when the coordinator can answer.

An error is never taken for no offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from oncebench.kafka_repair.committed import committed_offsets

PLACE = TopicPartition("t", 0)
LIMIT_S = 5.0


class Answers:
    """A consumer with these answers, and with one event."""

    def __init__(self, *answers: Any, event: int | None = None) -> None:
        self._answers: Iterator[Any] = iter(answers)
        self._event = event

    def committed(self, places: list[TopicPartition], timeout: float) -> list[Any]:
        answer = next(self._answers)
        if isinstance(answer, KafkaException):
            raise answer
        return [answer]

    def poll(self, timeout: float) -> Any:
        event, self._event = self._event, None
        return None if event is None else Message(event)


class Message:
    def __init__(self, code: int) -> None:
        self._code = code

    def error(self) -> KafkaError:
        return KafkaError(self._code)


class Offset:
    def __init__(self, offset: int, code: int | None = None) -> None:
        self.offset = offset
        self.error = None if code is None else KafkaError(code)


def read(*answers: Any, event: int | None = None, limit_s: float = LIMIT_S) -> Any:
    consumer = cast(Consumer, Answers(*answers, event=event))
    return committed_offsets(
        consumer, [PLACE], limit_s, lambda error: error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    )


def timed_out() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.mark.parametrize("code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_starts_is_asked_again(code: int) -> None:
    starts = KafkaException(KafkaError(code))
    (found,) = read(Offset(-1001, code), starts, timed_out(), Offset(7))
    assert found.offset == 7


def test_an_error_of_a_partition_is_no_missing_offset() -> None:
    with pytest.raises(KafkaException) as raised:
        read(Offset(-1001, KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_missing_right_is_raised_at_the_first_look() -> None:
    with pytest.raises(KafkaException) as raised:
        read(timed_out(), event=KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_another_event_is_no_reason_to_give_up() -> None:
    assert read(timed_out(), Offset(7), event=KafkaError._TRANSPORT)[0].offset == 7


def test_no_answer_within_the_limit_is_an_error() -> None:
    with pytest.raises(KafkaException):
        read(timed_out(), Offset(7), limit_s=-1.0)
