"""The quarantine: copies rejected records, with the reason, to a Kafka topic of their own.

A query rejects a record by a row whose `quarantine` column, a struct of TYPE, is not null. The row's other columns are
then ignored. A query without that column rejects nothing.

Promise: a rejected record is copied at least once, under every guarantee, even if the batch is drained. A batch is not
reported as done before its copies are acknowledged. A copy has the key, value, headers and timestamp of the original,
and then our headers (`oncebench.delivery.copies.headers`). (topic, partition, offset) identifies the record, so a
reader can drop repeats. A copy that is larger than the quarantine topic's `max.message.bytes` is cut. If that limit is
lowered while the job runs, copies that still fit stay whole.

What can go wrong: the original was deleted before the copy was made. Or the record at its position in the input topic
is another, because the query reads several topics, or alters key or value. The copy then has key and value only, and a
header with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from oncebench.delivery.copies import headers as names
from oncebench.delivery.copies.fitting import Copy, fitted
from oncebench.delivery.copies.originals import Original, Originals, Position
from oncebench.delivery.copies.sizes import copy_sizes
from oncebench.delivery.errors import DeliveryFailed
from oncebench.delivery.failures.cause import UNKNOWN, failure
from oncebench.delivery.failures.kafka import PURGED, fatal_error, of_code
from oncebench.delivery.topics.settings import LARGEST, record_limit
from oncebench.kafka_access.kept import Settings, settings_of
from oncebench.kafka_repair.addresses import RECOVERY, Repair, flush
from oncebench.kafka_repair.admin import admin_client

# The column that marks a row as a rejected record, and the column's type in Spark's syntax.
COLUMN = "quarantine"
FIELDS = ("reason", "source_partition", "source_offset", "key", "value")
TYPE = "struct<reason:string,source_partition:int,source_offset:bigint,key:binary,value:binary>"

# Rejected records are held until the end of the task, so that the input topic is read over once. A task whose records
# take more memory than this reads it several times.
MOST_HELD_BYTES = 64 * 1024 * 1024
# Longer than a broker's restart, so that quarantine does not stop the pipeline before the sink would.
FLUSH_LIMIT_S = 120.0
# Under at-most-once too, which writes no batch again.
_AGAIN = "A restart of the pipeline copies them again."
# The broker refuses a record's time. Kafka's client gives the second code if the broker refuses several records.
_TIME_REFUSED = (KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD)

# One of each per worker process and client settings; a producer for its topic. Spark reuses worker processes for later
# batches.
_writers: dict[tuple[Settings, str], tuple[Producer, int]] = {}
_originals: dict[Settings, Originals] = {}


def without_rejected(rows: DataFrame) -> DataFrame:
    """Returns the accepted rows without the quarantine column, for Spark's own sinks."""
    return rows.where(f.col(COLUMN).isNull()).drop(COLUMN) if COLUMN in rows.columns else rows


class Quarantine:
    """Copies rejected records. It is cheap to pickle and connects at the first rejected record.

    Args:
        topic: the quarantine topic.
        source_topic: the input topic; the query reads no other. Empty if the query reads no topic.
        client: librdkafka settings (`bootstrap.servers` at least).
    """

    def __init__(self, topic: str, source_topic: str, client: Mapping[str, Any]) -> None:
        self.topic, self.source_topic, self.client = topic, source_topic, client
        self._counts: Counter[str] = Counter()
        self._held: list[pa.StructArray] = []
        self._failed: list[KafkaError] = []
        # Copies that Kafka refused for their size: the whole copy, the bytes that were sent, and whether it was again.
        self._too_large: list[tuple[Copy, int, bool]] = []

    def __reduce__(self) -> tuple[type[Quarantine], tuple[str, str, Mapping[str, Any]]]:
        return Quarantine, (self.topic, self.source_topic, self.client)  # a worker counts its own copies

    def copy(self, rejected: pa.StructArray) -> None:
        """Takes rejected records (fields: FIELDS) to be copied; does not wait for acknowledgements.

        Raises:
            DeliveryFailed: the originals of records that were held could not be read.
        """
        self._held.append(rejected)
        if sum(each.nbytes for each in self._held) > MOST_HELD_BYTES:
            self._send_held()
            if self._too_large:  # bounds the memory; `flush` reports what is not acknowledged
                self._acknowledge()

    def flush(self) -> dict[str, int]:
        """Waits until every copy is acknowledged; returns the number of records by reason.

        Raises:
            DeliveryFailed: an original could not be read, or a copy was refused or not acknowledged in time.
        """
        self._send_held()
        if self._counts:
            left = self._acknowledge()
            if left or self._failed:
                _writers.pop(self._key, None)  # a client that has failed sends nothing more
                raise _failure(self.topic, self._failed[0] if self._failed else None, left)
        counts = dict(self._counts)
        self._counts.clear()
        return counts

    def _acknowledge(self) -> int:
        """Waits until every copy is acknowledged or refused for good.

        Returns how many copies have no answer in time.

        A lowered limit makes Kafka refuse whole batches, with copies that fit. They are sent once more by a new
        producer, which reads the limit again. What fits and is refused again is cut: the limit cannot be read.
        """
        left = self._flush()
        while self._too_large and not left:
            again, self._too_large = self._too_large, []
            del _writers[self._key]
            most = self._writer(renewed=True)[1]
            for whole, sent, repeated in again:
                self._send(whole, sent // 2 if repeated and sent <= most else None, repeated=True)
            left = self._flush()
        return left

    def _flush(self) -> int:
        try:
            left = flush(self._writer()[0], self._bootstrap_servers, FLUSH_LIMIT_S)
        except (KafkaException, SystemError) as error:
            self._client_failed(error)
            if not self._failed:
                raise
            return 0
        if self._failed and self._failed[0].code() in PURGED:
            self._client_failed(None)
        return left

    def _client_failed(self, error: BaseException | None) -> None:
        found = fatal_error(error, self._writer()[0])
        if found is not None:
            self._failed.insert(0, found)  # copies fail because of it

    def _send_held(self) -> None:
        records = [tuple(each) for held in self._held for each in zip(*_columns(held), strict=True)]
        self._held.clear()
        places = [(each[1], each[2]) for each in records if None not in each[1:3] and min(each[1:3]) >= 0]
        originals = self._read(places) if places else {}
        for reason, partition, offset, key, value in records:
            self._counts[reason] += 1
            ours = [(names.REASON, reason.encode()), (names.SOURCE_TOPIC, self.source_topic.encode())]
            if partition is None or offset is None:  # not one record: a session that never ended
                self._send(Copy(key, value, (), tuple(ours)))
                continue
            ours += [(names.SOURCE_PARTITION, b"%d" % partition), (names.SOURCE_OFFSET, b"%d" % offset)]
            original = originals.get((partition, offset), Original(missing=names.GONE))
            self._send(_copy(key, value, ours, original.of(key, value)))

    def _send(self, whole: Copy, limit: int | None = None, repeated: bool = False) -> None:
        """Sends as much of a copy as fits into `limit` bytes; by default the topic's."""
        producer, most = self._writer()
        copy = fitted(whole, limit or most)

        def reported(error: KafkaError | None, _message: object) -> None:
            try:
                code = KafkaError.NO_ERROR if error is None else error.code()
            except SystemError as failed:
                return self._client_failed(failed)
            if error is None:
                return None
            if code == KafkaError.MSG_SIZE_TOO_LARGE and (copy.key or copy.value or copy.theirs):
                self._too_large.append((whole, copy.size, repeated))
            elif code in _TIME_REFUSED and whole.timestamp_ms:  # a header has the time
                self._send(replace(whole, timestamp_ms=0), limit, repeated)
            elif code == KafkaError._INVALID_DIFFERENT_RECORD:  # refused only together with others
                self._send(whole, limit, repeated)
            else:
                self._failed.append(error)
            return None

        repair = Repair(producer, self._bootstrap_servers)
        while True:
            try:
                producer.produce(
                    self.topic, copy.value, copy.key, headers=copy.headers, timestamp=copy.timestamp_ms,
                    on_delivery=reported,
                )  # fmt: skip
                return
            except BufferError:
                producer.poll(0.1)
                repair.look(len(producer))
            except KafkaException as failure:
                reported(failure.args[0], None)
                return

    def _writer(self, renewed: bool = False) -> tuple[Producer, int]:
        """Returns the producer of this process, and the most bytes that the topic takes.

        A `renewed` producer sends each copy alone if the limit cannot be read.
        """
        if self._key not in _writers:
            most = self._limit()
            settings = {"enable.idempotence": True, "acks": "all", **copy_sizes(most), **RECOVERY}
            settings |= {"batch.size": 1} if renewed and most == LARGEST else {}
            _writers[self._key] = Producer({**self.client, **settings}), most
        return _writers[self._key]

    def _limit(self) -> int:
        """Returns the most bytes that the topic takes, or librdkafka's largest if it is not known."""
        try:
            found = record_limit(admin_client({**self.client, "log_level": 2}), self.topic)
        except KafkaException:  # no answer in time. The copies wait for longer, and one that is refused asks again
            return LARGEST
        return LARGEST if found is None else found

    @property
    def _key(self) -> tuple[Settings, str]:
        return settings_of(self.client), self.topic

    @property
    def _bootstrap_servers(self) -> str:
        return str(self.client["bootstrap.servers"])

    def _read(self, places: list[Position]) -> dict[Position, Original]:
        key, _ = self._key
        if key not in _originals:
            _originals[key] = Originals(self.client, FLUSH_LIMIT_S)
        try:
            return _originals[key].read(self.source_topic, places)
        except BaseException:
            del _originals[key]  # the next try has a new client
            raise


def _copy(key: bytes | None, value: bytes | None, ours: list[names.Header], original: Original) -> Copy:
    if original.missing:
        ours.append((names.ORIGINAL, original.missing))
    if original.timestamp_ms is not None:
        ours.append((names.SOURCE_TIMESTAMP, b"%d" % original.timestamp_ms))
    # Kafka's client takes 0 for the present time.
    return Copy(key, value, original.headers, tuple(ours), max(0, original.timestamp_ms or 0))


def _columns(rejected: pa.StructArray) -> list[list[Any]]:
    return [rejected.field(name).to_pylist() for name in FIELDS]


def _failure(topic: str, refused: KafkaError | None, left: int) -> DeliveryFailed:
    """Returns the error of copies that were refused, or not acknowledged in time."""
    reason = refused or f"{left} copies were not acknowledged in {FLUSH_LIMIT_S:g} s"
    cause = UNKNOWN if refused is None else of_code(refused.code())
    if cause.remedy:
        cause = replace(cause, remedy=cause.remedy.replace("TOPIC", topic))
        return failure(cause, f"quarantine topic {topic}: {reason}", _AGAIN)
    return failure(cause, f"quarantine topic {topic}: {reason}", f"Check that the topic's brokers run. {_AGAIN}")
