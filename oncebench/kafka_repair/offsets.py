"""Offsets that a broker really returned.

librdkafka's ListOffsets can return a partition without an error and without an offset (-1001). It was seen while one
broker of three was cut off from the others. Such an answer must not count as the end of a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo

Answers = Mapping[TopicPartition, "Future[ListOffsetsResultInfo]"]


def answered(answers: Answers) -> dict[int, ListOffsetsResultInfo]:
    """Waits for the answers of `AdminClient.list_offsets` for one topic.

    Returns the answers by partition.

    Raises:
        KafkaException: the cluster refused, or gave no offset of a partition (OFFSET_NOT_AVAILABLE: try again).
    """
    found = {place.partition: answer.result() for place, answer in answers.items()}
    for partition, each in found.items():
        if each.offset == OFFSET_INVALID:
            reason = f"the broker returned no offset of partition {partition}"
            raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, reason))
    return found
