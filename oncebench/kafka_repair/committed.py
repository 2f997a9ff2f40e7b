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
# Between two tries, while a coordinator starts.
PAUSE_S = 0.05
# UNSTABLE_OFFSET_COMMIT: a transaction that contains offsets of this group has not ended yet.
RETRIABLE = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
    }
)


def committed_offsets(
    consumer: Consumer, places: Sequence[TopicPartition], limit_s: float, refuses: Callable[[KafkaError], bool]
) -> list[TopicPartition]:
    """Returns the group's offsets of these partitions, none with an error.

    Asks again while the coordinator starts: an error would look like a group without an offset.

    Args:
        consumer: of the group. It must not be subscribed: an event of it is read here.
        limit_s: how long to ask.
        refuses: whether an error will not go away by itself.

    Raises:
        KafkaException: the coordinator refuses this user, no answer came, or a partition has an error.
    """
    deadline = time.monotonic() + limit_s
    look_s = FIRST_LOOK_S
    while True:
        try:
            found: list[TopicPartition] = consumer.committed(list(places), timeout=look_s)
            for each in found:
                if each.error is not None:
                    raise KafkaException(each.error)
            return found
        except KafkaException as error:
            event = consumer.poll(0)
            if event is not None and (why := event.error()) is not None and refuses(why):
                raise KafkaException(why) from error
            code = error.args[0].code()
            if code not in RETRIABLE | {KafkaError._TIMED_OUT} or time.monotonic() > deadline:
                raise
            if code == KafkaError._TIMED_OUT:
                look_s = min(look_s * 2, LOOK_S)
            else:
                time.sleep(PAUSE_S)
