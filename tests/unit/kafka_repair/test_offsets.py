"""Answers of ListOffsets: an answer without an offset is none."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo

from oncebench.kafka_repair.offsets import Answers, answered


def answers(*offsets: int) -> Answers:
    made: dict[TopicPartition, Future[ListOffsetsResultInfo]] = {}
    for number, offset in enumerate(offsets):
        made[TopicPartition("t", number)] = future = Future()
        future.set_result(ListOffsetsResultInfo(offset, -1, 3))
    return made


def test_offsets_are_returned_by_partition() -> None:
    assert {number: found.offset for number, found in answered(answers(7, 0)).items()} == {0: 7, 1: 0}


def test_a_partition_without_an_offset_is_no_answer() -> None:
    with pytest.raises(KafkaException, match="no offset of partition 1") as raised:
        answered(answers(7, OFFSET_INVALID))
    assert raised.value.args[0].code() == KafkaError.OFFSET_NOT_AVAILABLE


def test_an_error_of_a_partition_is_raised() -> None:
    failed = answers(7, 0)
    broken: Future[ListOffsetsResultInfo] = Future()
    broken.set_exception(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))
    with pytest.raises(KafkaException, match="LEADER_NOT_AVAILABLE"):
        answered({**failed, TopicPartition("t", 2): broken})
