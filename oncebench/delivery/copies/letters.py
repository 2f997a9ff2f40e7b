"""Reads a quarantine topic, and decides for each copy whether it can be sent again.

Promise: copies are read up to the end that the topic had at the start. A record that was copied twice, as a replay may
do, is found once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from oncebench.delivery.copies import headers as names
from oncebench.delivery.copies.headers import Header, split
from oncebench.delivery.copies.marks import mark_of
from oncebench.delivery.errors import ReadError, RefusedStart
from oncebench.kafka_access.acls import GROUP, TOPIC, Resource, advice
from oncebench.kafka_repair.committed import committed_offsets

# A broker that is silent for this long is down.
LIMIT_S = 30.0
POLL_S = 0.5

# What becomes of a copy that is not sent. Those that are left need a person.
LEFT = "left: "
NO_COPY = f"{LEFT}not a copy of this version"
NO_RECORD = f"{LEFT}no single record, but a session that never ended"
CUT = f"{LEFT}cut to fit"
INCOMPLETE = f"{LEFT}headers of the original are missing"
SENT_BEFORE = "passed over: sent before by this group"
REPEATED = "passed over: the same record twice"
NOTHING_SENT = "Nothing was sent."


def group_of(quarantine: str) -> str:
    """The consumer group of `oncebench requeue` for this topic, if none is given."""
    return f"{quarantine}.requeue"


@dataclass(frozen=True)
class Selection:
    """Which copies are sent, and where to.

    Attributes:
        quarantine: the quarantine topic.
        group: the consumer group that marks what was sent.
        reason: only copies with this reason; None: all.
        to: the topic for all of them; None: each goes to its source topic.
    """

    quarantine: str
    group: str
    reason: str | None = None
    to: str | None = None

    @property
    def mark(self) -> str:
        """The selection as the group's marks have it: marks of another selection would skip copies."""
        return json.dumps({"reason": self.reason, "to": self.to})


@dataclass(frozen=True)
class Letter:
    """A record of the quarantine topic.

    Attributes:
        theirs, ours: its headers, see `headers.split`.
        outcome: why it is not sent; empty if it is.
    """

    message: Message
    theirs: tuple[Header, ...]
    ours: Mapping[str, bytes | None]
    outcome: str = ""

    @property
    def reason(self) -> str:
        """The reason of the rejection; "-" if the record is not a copy."""
        return as_text(self.ours.get(names.REASON)) or "-"

    @property
    def source_topic(self) -> str:
        """The topic of the original."""
        return as_text(self.ours.get(names.SOURCE_TOPIC))


class Letters:
    """The copies of a quarantine topic, from its beginning to its end at the start.

    Attributes:
        stored: the group's offsets with their metadata, by partition, at the start. Kafka deletes old ones (-1).
        recorded: by partition, the group's newest mark in the topic with its selection; missing if it has none.
        marks: by partition, the first copy that the group has not dealt with.

    Raises:
        RefusedStart: there is no such topic, this user lacks a right, or the group belongs to another selection.
        ReadError: Kafka did not answer.
    """

    def __init__(self, client: Mapping[str, Any], selection: Selection) -> None:
        self.selection = selection
        self.consumer = Consumer(
            {
                "group.id": selection.group, "enable.auto.commit": False, "enable.auto.offset.store": False,
                "auto.offset.reset": "error", "enable.partition.eof": True, "isolation.level": "read_committed",
                "log_level": 2, **client,
            }
        )  # fmt: skip
        topic = selection.quarantine
        found = self.partitions(topic, "Read", "Correct the name of the quarantine topic")
        self._places = [TopicPartition(topic, partition) for partition in range(found)]
        try:
            self._ends = {at.partition: self.consumer.get_watermark_offsets(at, timeout=LIMIT_S) for at in self._places}
        except KafkaException as error:
            raise _silent(topic, error.args[0].str()) from error
        self.stored = self.stored_now()
        self.recorded = self._recorded()
        for offset, metadata in (*self.stored.values(), *self.recorded.values()):
            if offset >= 0 and metadata != selection.mark:
                raise RefusedStart(
                    f"group {selection.group!r} marks what another call has sent: {metadata or 'any copies'}. "
                    f"This call selects {selection.mark}. Give it a group of its own with --group. A new group sends "
                    "every copy that it selects, also those that another group has sent."
                )
        self.marks = {
            partition: max(0, offset, self.recorded.get(partition, (0, ""))[0])
            for partition, (offset, _) in self.stored.items()
        }

    def stored_now(self) -> dict[int, tuple[int, str]]:
        """Returns the group's offsets with their metadata, by partition.

        Waits until the group's transactions have ended.

        Raises:
            RefusedStart: this user may not use the group.
            ReadError: Kafka did not answer.
        """
        try:
            found = committed_offsets(self.consumer, self._places, LIMIT_S, _closed)
        except KafkaException as error:
            if _closed(error.args[0]):
                raise group_closed(self.selection.group, NOTHING_SENT) from error
            raise _silent(self.selection.quarantine, error.args[0].str()) from error
        return {mark.partition: (mark.offset, mark.metadata or "") for mark in found}

    def partitions(self, topic: str, operation: str, otherwise: str) -> int:
        """Returns the number of a topic's partitions.

        Args:
            operation: the right on the topic that the call needs.
            otherwise: what to do if there is no such topic.

        Raises:
            RefusedStart: there is no such topic, or this client may not use it.
            ReadError: Kafka did not answer.
        """
        try:
            described = self.consumer.list_topics(topic, timeout=LIMIT_S).topics[topic]
        except KafkaException as error:
            raise _silent(topic, error.args[0].str()) from error
        if described.error is not None:
            step = otherwise
            if described.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                step = advice([operation], Resource(TOPIC, topic))
            raise RefusedStart(f"topic {topic!r} cannot be used: {described.error.str()}. {NOTHING_SENT} {step}.")
        return len(described.partitions)

    def ends(self) -> dict[int, int]:
        """Returns the end of each partition."""
        return {partition: end for partition, (_, end) in self._ends.items()}

    def read(self) -> Iterator[Letter]:
        """Yields the selected copies in the order of each partition, with what becomes of each.

        Copies that an earlier call has left are not repeated.

        Raises:
            RefusedStart: this user may not read the topic.
            ReadError: Kafka did not answer, or records were deleted meanwhile.
        """
        marks, seen = dict(self.marks), set[bytes]()
        for message in self._messages():
            if mark_of(message) is not None:
                continue
            theirs, ours = split(message.headers() or [])
            if self.selection.reason is not None and as_text(ours.get(names.REASON)) != self.selection.reason:
                continue
            outcome = _obstacle(ours)
            if not outcome:
                record = _record(message, ours)
                outcome = REPEATED if record in seen else ""
                seen.add(record)
            if message.offset() >= marks[message.partition()]:
                yield Letter(message, theirs, ours, outcome)
            elif not outcome:
                yield Letter(message, theirs, ours, SENT_BEFORE)

    def _recorded(self) -> dict[int, tuple[int, str]]:
        found = {}
        for message in self._messages():
            mark = mark_of(message)
            if mark is not None and mark.group == self.selection.group:
                found[message.partition()] = mark.next, mark.selection
        return found

    def _messages(self) -> Iterator[Message]:
        topic = self.selection.quarantine
        left = {partition: end for partition, (low, end) in self._ends.items() if end > low}
        self.consumer.assign([TopicPartition(topic, partition, self._ends[partition][0]) for partition in left])
        quiet_since = time.monotonic()
        while left:
            message = self.consumer.poll(POLL_S)
            if message is None:
                if time.monotonic() - quiet_since > LIMIT_S:
                    raise _silent(topic, f"no record came for {LIMIT_S:g} s")
                continue
            error, partition = message.error(), message.partition()
            if error is None:
                end = left.get(partition, 0)
                if message.offset() < end:
                    yield message
                if message.offset() + 1 >= end:
                    left.pop(partition, None)
            elif error.code() == KafkaError._PARTITION_EOF:
                if partition in left:  # the end for committed readers may be before the end of the log
                    self._ends[partition] = self._ends[partition][0], min(left.pop(partition), message.offset())
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                step = advice(["Read"], Resource(TOPIC, topic))
                raise RefusedStart(f"this user may not read topic {topic!r}. {NOTHING_SENT} {step}.")
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise ReadError(f"topic {topic}: records were deleted during the call ({error.str()}). Call again.")
            quiet_since = time.monotonic()

    def close(self) -> None:
        """Closes the connections."""
        self.consumer.close()


def as_text(value: bytes | None) -> str:
    """Returns a header as text."""
    return (value or b"").decode("utf-8", "replace")


def as_number(value: bytes | None) -> int | None:
    """Returns a header as a number; None if it is not one."""
    return int(value) if value is not None and value.isdigit() else None


def _obstacle(ours: Mapping[str, bytes | None]) -> str:
    """Returns why a copy cannot be sent; empty if it can."""
    if names.REASON not in ours:
        return NO_COPY
    if ours.keys() & {names.KEY_BYTES, names.VALUE_BYTES, names.HEADERS_DROPPED}:
        return CUT
    if names.SOURCE_PARTITION not in ours:
        return NO_RECORD
    return INCOMPLETE if names.ORIGINAL in ours or names.SOURCE_TOPIC not in ours else ""


def _record(message: Message, ours: Mapping[str, bytes | None]) -> bytes:
    """Identifies the rejected record of a copy. Positions repeat if a topic was made again."""
    place = [ours.get(name) for name in (names.SOURCE_TOPIC, names.SOURCE_PARTITION, names.SOURCE_OFFSET)]
    found = hashlib.blake2b(digest_size=16)
    for part in (*place, ours.get(names.SOURCE_TIMESTAMP), message.key(), message.value()):
        found.update(b"-" if part is None else b"%d:%b" % (len(part), part))
    return found.digest()


def group_closed(group: str, sent: str) -> RefusedStart:
    """Returns the error of a user who may not store offsets of the group.

    Args:
        group: id of the consumer group.
        sent: sentence on what was sent before.
    """
    step = advice(["Read"], Resource(GROUP, group))
    return RefusedStart(f"this user may not use the group {group!r}. {sent} {step}.")


def _closed(error: KafkaError) -> bool:
    return bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


def _silent(topic: str, why: str) -> ReadError:
    return ReadError(f"topic {topic} cannot be read ({why}). Check that Kafka is running and that you may read it.")
