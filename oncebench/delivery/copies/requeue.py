"""Sends copies of rejected records back to their source topic.

Promise: a group sends each rejected record once. The records, the group's marks in the quarantine topic and its offsets
there are in one transaction, so a call that dies sends nothing twice. The marks stay as long as the copies, the offsets
only for some days. A call sends only if the offsets are still those that it has looked with, and a later call of the
group fences it. Nothing is sent if a target topic is missing. Copies that come during a call are left to the next call:
a record that is rejected again cannot go round for ever.

What can go wrong: another group sends the same copies again. A reader of the target without `read_committed` may see
records of a transaction that was aborted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from oncebench.delivery.copies import headers as names
from oncebench.delivery.copies.fitting import record_bytes
from oncebench.delivery.copies.letters import (
    LEFT,
    LIMIT_S,
    NOTHING_SENT,
    SENT_BEFORE,
    Letter,
    Letters,
    Selection,
    as_number,
    group_closed,
)
from oncebench.delivery.copies.marks import Mark
from oncebench.delivery.copies.sizes import copy_sizes
from oncebench.delivery.errors import DeliveryFailed, ReadError, RefusedStart
from oncebench.delivery.topics.settings import BATCH_BYTES, LARGEST, record_limit
from oncebench.kafka_access.acls import TOPIC, TRANSACTIONAL_ID, Resource, advice
from oncebench.kafka_repair.admin import admin_client

# Copies in a transaction, and their bytes: some seconds of work at 100 Mbit/s, far below its time-out of a minute.
MOST_IN_TRANSACTION = 1_000
MOST_BYTES = 16 * 1024 * 1024
# How long one flush lasts.
FLUSH_S = 0.2
# What the client reports for the records of a transaction that has failed. The reason is the transaction's error.
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_NONE_SENT = "None of this transaction's records was sent"
_ABORTED = "This transaction was aborted."
# Codes for a record that a topic's settings refuse. The last code: they refuse another record of the same request.
_BY_SETTINGS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
# The beginning of an outcome that is a target.
TO = "to "

# The number of copies by (reason, outcome).
Outcomes = Counter[tuple[str, str]]


def portions(letters: Iterable[Letter]) -> Iterator[list[Letter]]:
    """Yields the copies of one transaction after another."""
    portion: list[Letter] = []
    size = 0
    for letter in letters:
        portion.append(letter)
        size += record_bytes(letter.message.key(), letter.message.value(), list(letter.theirs))
        if len(portion) >= MOST_IN_TRANSACTION or size >= MOST_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


class _Refused(DeliveryFailed):
    """A topic's settings refuse a copy of a transaction, which has sent nothing."""

    def __init__(self, what: str, topic: str, error: KafkaError) -> None:
        super().__init__(
            f"{_NONE_SENT}: {what} does not go to topic {topic}: {error.str()}. Correct the topic's settings and call "
            "again, or give --leave-refused to leave such copies and send the others."
        )
        self.outcome = f"{LEFT}topic {topic} refuses it ({error.str()})"


class _Reports:
    """Collects what Kafka reports for the records of a transaction."""

    def __init__(self) -> None:
        self.failed: list[DeliveryFailed] = []
        self.purged = False

    def of(self, what: str, topic: str, *, may_be_left: bool = False) -> Callable[[KafkaError | None, object], None]:
        """Returns the callback for a record; `may_be_left` if it is a copy."""

        def reported(error: KafkaError | None, _message: object) -> None:
            if error is None:
                return
            if error.code() in _PURGED:
                self.purged = True
            elif may_be_left and error.code() in _BY_SETTINGS:
                self.failed.append(_Refused(what, topic, error))
            else:
                self.failed.append(DeliveryFailed(f"{_NONE_SENT}: {what} does not go to topic {topic}: {error.str()}."))

        return reported


class Requeue:
    """One call: looks at every copy first, and then sends. Use it as a context manager.

    Args:
        client: librdkafka settings (`bootstrap.servers` at least).

    Raises:
        RefusedStart, ReadError: see `Letters`.
    """

    def __init__(self, client: Mapping[str, Any], selection: Selection) -> None:
        self._client, self._selection = client, selection
        self._letters = Letters(client, selection)
        self._next = dict(self._letters.marks)
        # Marks that the next transaction writes into the topic. At first those that are only offsets as yet.
        self._to_record = {at: mark for at, mark in self._next.items() if mark and at not in self._letters.recorded}
        self._targets: dict[str, tuple[int, int]] = {}  # by topic: its partitions, and its limit in bytes
        self._outcomes: Outcomes = Counter()
        self._stored = self._letters.stored  # the group's offsets, unless another call sends, too

    def __enter__(self) -> Requeue:
        return self

    def __exit__(self, *_: object) -> None:
        self._letters.close()

    def look(self) -> Outcomes:
        """Returns what `send` will do, and sends nothing.

        Raises:
            RefusedStart: a target topic is missing.
            ReadError: Kafka did not answer.
        """
        outcomes = self._outcomes = Counter()
        for letter in self._letters.read():
            outcomes[letter.reason, letter.outcome or TO + self._target(letter)] += 1
        for topic in {outcome.removeprefix(TO) for _, outcome in outcomes if outcome.startswith(TO)}:
            partitions = self._letters.partitions(topic, "Write", "Create it, or give --to TOPIC")
            self._targets[topic] = partitions, self._limit(topic)
        return outcomes

    def _limit(self, topic: str) -> int:
        """Returns the most bytes that a target takes.

        Returns librdkafka's largest limit if this user may not read the topic's limit.
        """
        try:
            found = record_limit(admin_client({**self._client, "log_level": 2}), topic)
        except KafkaException as error:
            raise ReadError(
                f"topic {topic}: its limit of a record cannot be read ({error.args[0].str()}). {NOTHING_SENT} Check "
                "that the brokers run, and call again."
            ) from error
        return LARGEST if found is None else found

    def send(self, *, leave_refused: bool = False) -> Outcomes:
        """Sends what `look` has found; returns what has become of each copy.

        Args:
            leave_refused: whether to leave a copy that its topic's settings refuse. The group then passes over it.

        Raises:
            RefusedStart: this user lacks a right.
            DeliveryFailed: Kafka refused a record or a transaction. Earlier transactions are complete. Or another call
                of the group has sent since this call began; the transaction in work was not sent.
            ReadError: Kafka did not answer.
        """
        # Not those before the group's marks: a transaction would take the marks back to them.
        letters = (each for each in self._letters.read() if each.outcome != SENT_BEFORE)
        producer = self._begin()
        try:
            for portion in portions(letters):
                producer = self._send(producer, portion, leave_refused)
            self._next = self._letters.ends()  # also past copies that were not selected
            self._transaction(producer, [])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise group_closed(self._selection.group, _ABORTED) from error
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                topics = dict.fromkeys((*self._targets, self._selection.quarantine))
                steps = ", ".join(advice(["Write"], Resource(TOPIC, topic)) for topic in topics)
                which = ", ".join(map(repr, topics))
                raise RefusedStart(
                    f"this user may not write to one of the topics {which}. {_ABORTED} {steps}."
                ) from error
            raise self._failed(error) from error
        return +self._outcomes

    def _send(self, producer: Producer, letters: list[Letter], leave_refused: bool) -> Producer:
        """Sends these copies in one transaction, or in halves until a refused copy is alone.

        With `leave_refused`, that copy is left. Without it, the first refusal is raised. Returns the producer for the
        next copies: after a refusal, Kafka's client takes no more transactions.
        """
        try:
            self._transaction(producer, letters)
        except _Refused as refused:
            if not leave_refused:
                raise
            producer = self._begin()
            if len(letters) > 1:
                half = len(letters) // 2
                producer = self._send(producer, letters[:half], leave_refused)
                return self._send(producer, letters[half:], leave_refused)
            (letter,) = letters
            self._transaction(producer, [replace(letter, outcome=refused.outcome)])
            self._outcomes[letter.reason, TO + self._target(letter)] -= 1
            self._outcomes[letter.reason, refused.outcome] += 1
        return producer

    def _begin(self) -> Producer:
        """Returns a producer; no earlier one of the group can commit any more."""
        smallest = min((limit for _, limit in self._targets.values()), default=BATCH_BYTES)
        settings = {"transactional.id": self._selection.group, "partitioner": "murmur2_random", "log_level": 2}
        producer = Producer({**self._client, **copy_sizes(smallest), **settings})
        try:
            producer.init_transactions(LIMIT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                step = advice(["Write"], Resource(TRANSACTIONAL_ID, self._selection.group))
                raise RefusedStart(
                    f"this user may not write in transactions of the id {self._selection.group!r}. {NOTHING_SENT} "
                    f"{step}."
                ) from error
            raise self._failed(error) from error
        # What another call has committed since this one began is not in our marks.
        if self._letters.stored_now() != self._stored:
            so_far = NOTHING_SENT if self._stored is self._letters.stored else _ABORTED
            raise DeliveryFailed(
                f"group {self._selection.group}: another call has sent copies since this one began, which stops. "
                f"{so_far} Call again: the next call finds what is left."
            )
        return producer

    def _failed(self, error: KafkaException) -> DeliveryFailed:
        return DeliveryFailed(
            f"group {self._selection.group}: Kafka did not take the records ({error.args[0].str()}). Check that "
            "the brokers run and that nothing else uses this group, then call again: nothing is sent twice."
        )

    def _transaction(self, producer: Producer, letters: list[Letter]) -> None:
        """Sends these copies, and stores that the group has dealt with them."""
        reports = _Reports()
        reached = {letter.message.partition(): letter.message.offset() + 1 for letter in letters}
        producer.begin_transaction()
        try:
            try:
                for letter in letters:
                    if not letter.outcome:
                        self._produce(producer, letter, reports)
                for partition, following in {**self._to_record, **reached}.items():
                    self._record_mark(producer, partition, following, reports)
            except KafkaException as error:
                # An earlier record was refused meanwhile. The reports have it, or the next call to Kafka raises.
                if error.args[0].code() != KafkaError._STATE:
                    raise
            deadline = time.monotonic() + LIMIT_S
            # After a refusal, the client keeps the other records: a flush would wait for them in vain.
            while producer.flush(FLUSH_S) and not reports.failed and time.monotonic() < deadline:
                pass
            if reports.failed:
                raise reports.failed[0]
            marks = [
                TopicPartition(self._selection.quarantine, partition, offset, self._selection.mark)
                for partition, offset in {**self._next, **reached}.items()
            ]
            group = self._letters.consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(marks, group, LIMIT_S)  # raises why records were purged
            if reports.purged:
                raise DeliveryFailed("Kafka's client has dropped records of this transaction. None of them was sent.")
            producer.commit_transaction(LIMIT_S)
        except BaseException:
            with suppress(KafkaException):  # the broker then aborts it after its time-out
                producer.abort_transaction(LIMIT_S)
            raise
        self._next |= reached
        self._stored = {at: (offset, self._selection.mark) for at, offset in self._next.items()}
        self._to_record.clear()

    def _produce(self, producer: Producer, letter: Letter, reports: _Reports) -> None:
        message, topic = letter.message, self._target(letter)
        partitions, limit = self._targets[topic]
        place = f"{message.partition()}/{message.offset()}"
        headers = [each for each in letter.theirs if each[0] != names.REQUEUED_FROM]
        marked = [*headers, (names.REQUEUED_FROM, place.encode())]
        # An original may be as large as its topic allows; it then has no room for our header.
        if record_bytes(message.key(), message.value(), marked) <= limit:
            headers = marked
        source = as_number(letter.ours[names.SOURCE_PARTITION])
        # Another client's partitioner may have chosen the partition, and a session must not be in two.
        same = {"partition": source} if topic == letter.source_topic and (source or 0) < partitions else {}

        _hand_over(
            producer, topic, message.value(), message.key(), headers=headers, **same,
            timestamp=as_number(letter.ours.get(names.SOURCE_TIMESTAMP)) or 0,
            on_delivery=reports.of(f"copy {place} of {self._selection.quarantine}", topic, may_be_left=True),
        )  # fmt: skip

    def _record_mark(self, producer: Producer, partition: int, following: int, reports: _Reports) -> None:
        topic, mark = self._selection.quarantine, Mark(self._selection.group, following, self._selection.mark)
        _hand_over(
            producer, topic, mark.value, headers=mark.headers, partition=partition,
            on_delivery=reports.of(f"the mark of group {mark.group}", topic),
        )  # fmt: skip

    def _target(self, letter: Letter) -> str:
        return self._selection.to or letter.source_topic


def _hand_over(producer: Producer, *record: Any, **more: Any) -> None:
    """Calls `produce` when the client has room for the record."""
    while True:
        try:
            producer.produce(*record, **more)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(0.1)
