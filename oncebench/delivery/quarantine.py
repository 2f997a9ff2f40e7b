"""The quarantine: copies rejected records, with the reason, to a Kafka topic of their own.

A query rejects a record by a row whose `quarantine` column, a struct of TYPE, is not null. The row's other columns are
then ignored. A query without that column rejects nothing.

Promise: a rejected record is copied at least once, under every guarantee, even if the batch is drained. A batch is not
reported as done before its copies are acknowledged. A copy has the key and value of the original and the headers
`reason`, `source_topic`, `source_partition` and `source_offset`. (topic, partition, offset) identifies the record, so a
reader can drop repeats. What can go wrong: the quarantine topic's `max.message.bytes` is smaller than the record. The
copy is then sent without the value, and the header `value_bytes` contains the value's length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from oncebench.delivery.failures.cause import UNKNOWN, failure
from oncebench.delivery.failures.kafka import of_code

# The column that marks a row as a rejected record, and the column's type in Spark's syntax.
COLUMN = "quarantine"
FIELDS = ("reason", "source_partition", "source_offset", "key", "value")
TYPE = "struct<reason:string,source_partition:int,source_offset:bigint,key:binary,value:binary>"

# A record of 1 MB (Kafka's default limit) plus our headers is longer than 1 MB, and the producer must accept it.
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
# Longer than a broker's restart, so that quarantine does not stop the pipeline before the sink would.
FLUSH_LIMIT_S = 120.0

# One producer per worker process and cluster. Spark reuses worker processes for later batches.
_producers: dict[str, Producer] = {}


def without_rejected(rows: DataFrame) -> DataFrame:
    """Returns the accepted rows without the quarantine column, for Spark's own sinks."""
    return rows.where(f.col(COLUMN).isNull()).drop(COLUMN) if COLUMN in rows.columns else rows


class Quarantine:
    """Copies rejected records. It is cheap to pickle and connects at the first rejected record.

    Args:
        topic: the quarantine topic.
        source_topic: the input topic.
        client: librdkafka settings (`bootstrap.servers` at least).
    """

    def __init__(self, topic: str, source_topic: str, client: Mapping[str, Any]) -> None:
        self.topic, self.source_topic, self.client = topic, source_topic, client
        self._counts: Counter[str] = Counter()
        self._failed: list[KafkaError] = []

    def __reduce__(self) -> tuple[type[Quarantine], tuple[str, str, Mapping[str, Any]]]:
        return Quarantine, (self.topic, self.source_topic, self.client)  # a worker counts its own copies

    def copy(self, rejected: pa.StructArray) -> None:
        """Sends copies of rejected records (fields: FIELDS) and does not wait for acknowledgements."""
        producer = self._producer()
        columns = [rejected.field(name).to_pylist() for name in FIELDS]
        for reason, partition, offset, key, value in zip(*columns, strict=True):
            self._counts[reason] += 1
            headers = [("reason", reason.encode()), ("source_topic", self.source_topic.encode())]
            if partition is not None:
                headers += [
                    ("source_partition", str(partition).encode()),
                    ("source_offset", str(offset).encode()),
                ]
            self._send(producer, key, value, headers)

    def _send(self, producer: Producer, key: bytes | None, value: bytes | None, headers: list[Any]) -> None:
        def reported(error: KafkaError | None, _message: object) -> None:
            if error is None:
                return
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and value is not None:
                self._send(producer, key, None, [*headers, ("value_bytes", str(len(value)).encode())])
            else:
                self._failed.append(error)

        while True:
            try:
                producer.produce(self.topic, key=key, value=value, headers=headers, on_delivery=reported)
                return
            except BufferError:
                producer.poll(0.1)
            except KafkaException as failure:
                reported(failure.args[0], None)
                return

    def flush(self) -> dict[str, int]:
        """Waits until every copy is acknowledged; returns the number of records by reason.

        Raises:
            DeliveryFailed: a copy was refused or was not acknowledged in time.
        """
        if self._counts:
            left = self._producer().flush(FLUSH_LIMIT_S)
            if left or self._failed:
                reason = self._failed[0] if self._failed else f"{left} copies not acknowledged in {FLUSH_LIMIT_S:g} s"
                cause = of_code(self._failed[0].code()) if self._failed else UNKNOWN
                raise failure(
                    cause, f"quarantine topic {self.topic}: {reason}. Check that the topic exists and can be written"
                )
        counts = dict(self._counts)
        self._counts.clear()
        return counts

    def _producer(self) -> Producer:
        servers = str(self.client["bootstrap.servers"])
        if servers not in _producers:
            settings = {"enable.idempotence": True, "acks": "all", "message.max.bytes": MAX_MESSAGE_BYTES}
            _producers[servers] = Producer({**self.client, **settings})
        return _producers[servers]
