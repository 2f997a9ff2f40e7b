"""Reads rejected records once more from the input topic, for their headers and timestamps.

Headers of accepted records then never leave Kafka's client: Spark would pass them to Python for every event.

Promise: each position gets its record, or the reason why the record cannot be read: it was deleted (retention,
compaction), or this client may not read it. One answer of a broker that lacks the newest metadata, or the newest end of
a partition, is no such reason. What can go wrong: the broker is silent for too long. The batch then fails, because a
copy without its headers may not be readable.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from oncebench.delivery.copies.headers import GONE, NOT_READ, OTHER, Header
from oncebench.delivery.errors import DeliveryFailed
from oncebench.delivery.topics.check import APPEARS_S, PAUSE_S
from oncebench.kafka_repair.addresses import RECOVERY, Repair

Position = tuple[int, int]

# How many records are read over to the next one that is wanted. They take some 5 ms, as a new fetch does.
MOST_READ_OVER = 2_000
# Records taken from the client's queue at a time: about 10 ms of work.
MOST_TAKEN = 5_000
POLL_S = 0.5
MOST_OFFSET = 2**63 - 1

_SETTINGS: dict[str, str | int | bool] = {
    "group.id": "oncebench-originals",  # the client requires one; it is never joined and gets no offset
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # Spark has read these records with read_committed. An open transaction must not hold back a second read.
    "isolation.level": "read_uncommitted",
    # Wanted records may be far apart; the client would fetch 64 MB ahead of each.
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 4096,
    "fetch.queue.backoff.ms": 5,  # default: the client checks a full queue again after 1 s
    "fetch.wait.max.ms": 10,  # there is nothing to wait for: the records are there, or gone
    "log_level": 2,
}
_DELETED = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
# Errors of a topic that no restart mends. Any other one passes, and the batch is run again.
_HOPELESS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: GONE,
    KafkaError._UNKNOWN_TOPIC: GONE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: NOT_READ,
}


@dataclass(frozen=True)
class Original:
    """What a record has besides key and value.

    Attributes:
        headers: all of them, in their order.
        timestamp_ms: epoch ms; None if the record has none.
        missing: why the record could not be read; empty if it was.
        content: digest of its key and value.
    """

    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    missing: bytes = b""
    content: bytes = b""

    def of(self, key: bytes | None, value: bytes | None) -> Original:
        """Returns this original for a rejected record.

        If it is the original of another record, the result has neither headers nor timestamp.
        """
        return self if self.missing or self.content == content_of(key, value) else Original(missing=OTHER)


def content_of(key: bytes | None, value: bytes | None) -> bytes:
    """Returns a digest of a key and a value."""
    found = hashlib.blake2b(digest_size=16)
    for part in (key, value):
        found.update(b"-" if part is None else b"%d:%b" % (len(part), part))
    return found.digest()


class Originals:
    """Reads records of topics by position. One per worker process and cluster.

    Args:
        client: librdkafka settings (`bootstrap.servers` at least).
        limit_s: how long the broker may be silent.
    """

    def __init__(self, client: Mapping[str, Any], limit_s: float) -> None:
        self._consumer = Consumer({**_SETTINGS, **client, **RECOVERY})
        self._bootstrap_servers = str(client["bootstrap.servers"])
        self._limit_s = limit_s

    def read(self, topic: str, positions: Iterable[Position]) -> dict[Position, Original]:
        """Returns the record at each (partition, offset).

        Raises:
            DeliveryFailed: the broker was silent for too long, or cannot serve the topic for the moment.
        """
        found: dict[Position, Original] = {}
        wanted = sorted(set(positions))
        known, why = self._partitions(topic, {partition for partition, _ in wanted})
        try:
            for partition, places in groupby(wanted, key=lambda position: position[0]):
                offsets = [offset for _, offset in places]
                originals = self._partition(topic, partition, offsets) if partition in known else _all(offsets, why)
                found |= {(partition, offset): each for offset, each in originals}
        finally:
            self._consumer.unassign()
        return found

    def _partitions(self, topic: str, wanted: Collection[int]) -> tuple[Collection[int], bytes]:
        """Returns the topic's partitions, and why a record of any other partition is missing.

        Asks again for APPEARS_S while one of the wanted partitions is not there.
        """
        deadline = time.monotonic() + APPEARS_S
        while True:
            known, why = self._described(topic)
            if why != GONE or set(wanted) <= set(known) or time.monotonic() > deadline:
                return known, why
            time.sleep(PAUSE_S)

    def _described(self, topic: str) -> tuple[Collection[int], bytes]:
        try:
            described = self._consumer.list_topics(topic, timeout=self._limit_s).topics[topic]
        except KafkaException as error:
            raise self._silent(topic, error.args[0].str()) from error
        if described.error is None:
            return described.partitions, GONE
        if described.error.code() not in _HOPELESS:
            raise self._silent(topic, described.error.str())
        return (), _HOPELESS[described.error.code()]

    def _silent(self, where: str, why: str) -> DeliveryFailed:
        return DeliveryFailed(
            f"topic {where}: a record was rejected, and Kafka did not return its headers within {self._limit_s:g} s "
            f"({why}). Check that Kafka is running; a restart of the pipeline runs the batch again."
        )

    def _partition(self, topic: str, partition: int, offsets: list[int]) -> Iterator[tuple[int, Original]]:
        """Yields the records at ascending offsets of one partition."""
        wanted, quiet_since = deque(offsets), time.monotonic()
        repair = Repair(self._consumer, self._bootstrap_servers)
        reached = self._go(topic, partition, wanted)
        while wanted:
            first = self._consumer.poll(POLL_S)
            repair.look(quiet_since)
            if time.monotonic() - quiet_since > self._limit_s:
                raise self._silent(f"{topic}, partition {partition}, offset {wanted[0]}", "no records came")
            for message in () if first is None else (first, *self._consumer.consume(MOST_TAKEN, 0)):
                error = message.error()
                if error is None:
                    if wanted and wanted[0] < message.offset():
                        yield from _gone(wanted, message.offset(), MOST_OFFSET)
                    if wanted and wanted[0] == message.offset():
                        yield wanted.popleft(), _original(message)
                    reached = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    # What is before this end was read over. A new leader may report an end that is too low.
                    yield from _gone(wanted, message.offset(), MOST_OFFSET)
                    if wanted:
                        yield from _gone(wanted, *self._ends(topic, partition))
                elif error.code() in _DELETED:
                    yield from _gone(wanted, *self._ends(topic, partition))
                    reached = self._go(topic, partition, wanted)
                else:
                    continue  # the client asks again
                quiet_since = time.monotonic()
            if wanted and wanted[0] - reached > MOST_READ_OVER:
                reached = self._go(topic, partition, wanted)

    def _go(self, topic: str, partition: int, wanted: deque[int]) -> int:
        """Goes on at the next wanted offset and returns it."""
        if wanted:
            self._consumer.assign([TopicPartition(topic, partition, wanted[0])])
        return wanted[0] if wanted else 0

    def _ends(self, topic: str, partition: int) -> tuple[int, int]:
        """Returns the range of offsets with records, or all offsets if Kafka does not answer."""
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=self._limit_s)
        except KafkaException:
            return 0, MOST_OFFSET
        return low, high


def _gone(wanted: deque[int], low: int, high: int) -> Iterator[tuple[int, Original]]:
    """Takes the first offsets that are not between `low` and `high`."""
    while wanted and not low <= wanted[0] < high:
        yield wanted.popleft(), Original(missing=GONE)


def _all(offsets: Iterable[int], why: bytes) -> Iterator[tuple[int, Original]]:
    return ((offset, Original(missing=why)) for offset in offsets)


def _original(message: Message) -> Original:
    kind, timestamp_ms = message.timestamp()
    known = kind != TIMESTAMP_NOT_AVAILABLE
    content = content_of(message.key(), message.value())
    return Original(tuple(message.headers() or ()), timestamp_ms if known else None, content=content)
