"""Marks what a group has dealt with, by records of the quarantine topic.

A group's offsets alone do not suffice: Kafka deletes those of a group without members (`offsets.retention.minutes`, by
default 7 days), and the next call would send every copy again.

Promise: a mark comes after the copies that it is about, in their partition. Kafka deletes from the beginning of a
partition, so a mark is there as long as one of its copies. What can go wrong: somebody compacts the topic. A start
refuses that (`oncebench.delivery.topics.check.refuse_unfit_quarantine`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from confluent_kafka import Message

from oncebench.delivery.copies.headers import REQUEUE_GROUP, Header


@dataclass(frozen=True)
class Mark:
    """How far a group has come in a partition of the quarantine topic.

    Attributes:
        group: the consumer group.
        next: the offset of the first copy that the group has not dealt with.
        selection: which copies the group sends, see `Selection.mark`.
    """

    group: str
    next: int
    selection: str

    @property
    def headers(self) -> list[Header]:
        """The headers of its record."""
        return [(REQUEUE_GROUP, self.group.encode())]

    @property
    def value(self) -> bytes:
        """The value of its record."""
        return json.dumps({"next": self.next, **json.loads(self.selection)}).encode()


def mark_of(message: Message) -> Mark | None:
    """Returns the mark that a record of the quarantine topic is; None if it is no mark."""
    headers = message.headers() or []
    if len(headers) != 1 or headers[0][0] != REQUEUE_GROUP:
        return None
    selection = json.loads(message.value())
    return Mark((headers[0][1] or b"").decode(), selection.pop("next"), json.dumps(selection))
