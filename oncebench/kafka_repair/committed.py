"""Reads a group's offsets, and reports a right that is missing at once.

The fault: while a coordinator refuses this user, librdkafka asks again until the time-out. The call then reports a
time-out. Why it was refused is only an event of the consumer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

# The first look is early, because a missing right shows within milliseconds. Later looks are rare: each repeats the
# request, which a slow broker may be about to answer.
FIRST_LOOK_S, LOOK_S = 1.0, 10.0


def committed_offsets(
    consumer: Consumer, places: Sequence[TopicPartition], limit_s: float, refuses: Callable[[KafkaError], bool]
) -> list[TopicPartition]:
    """Returns the group's offsets of these partitions; a partition may have an error.

    Args:
        consumer: of the group. It must not be subscribed: an event of it is read here.
        limit_s: how long to ask.
        refuses: whether an error will not go away by itself.

    Raises:
        KafkaException: the coordinator refuses this user, or no answer came.
    """
    deadline = time.monotonic() + limit_s
    look_s = FIRST_LOOK_S
    while True:
        try:
            found: list[TopicPartition] = consumer.committed(list(places), timeout=look_s)
            return found
        except KafkaException as error:
            event = consumer.poll(0)
            if event is not None and (why := event.error()) is not None and refuses(why):
                raise KafkaException(why) from error
            if error.args[0].code() != KafkaError._TIMED_OUT or time.monotonic() > deadline:
                raise
            look_s = min(look_s * 2, LOOK_S)
