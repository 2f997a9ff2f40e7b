"""Finds the largest record in a range of a topic: usually the one that made a row too large."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

# A batch that died is read once more, for its error message only. A batch of some 100,000 records takes a second.
LIMIT_S = 15.0
_POLL_S = 0.5


@dataclass(frozen=True, order=True)
class Largest:
    """A record by its size."""

    size: int
    partition: int
    offset: int


def largest_record(client: Mapping[str, Any], topic: str, ranges: Mapping[int, tuple[int, int]]) -> Largest | None:
    """Returns the largest record of a topic in these ranges (partition -> first offset, end).

    None if they could not be read within LIMIT_S.
    """
    left = {partition: bounds for partition, bounds in ranges.items() if bounds[0] < bounds[1]}
    found: Largest | None = None
    settings = {
        "group.id": "oncebench.largest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "log_level": 2,
    }
    consumer = Consumer({**client, **settings, "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(topic, partition, bounds[0]) for partition, bounds in left.items()])
        deadline = time.monotonic() + LIMIT_S
        while left and time.monotonic() < deadline:
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            partition, offset = message.partition(), message.offset()
            if partition not in left or message.error() is not None:
                left.pop(partition, None)  # the end of a partition
                continue
            if offset < left[partition][1]:
                size = len(message.key() or b"") + len(message.value() or b"")
                found = max(filter(None, (found, Largest(size, partition, offset))))
            if offset >= left[partition][1] - 1:
                del left[partition]
        return None if left else found
    except KafkaException:
        return None
    finally:
        consumer.close()
