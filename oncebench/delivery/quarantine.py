"""Where records go that give no row: a Kafka topic of their own, with the reason.

Promise: a record that was set aside is copied at least once, under every guarantee and also when a batch is drained;
a batch is not reported as done before its copies are acknowledged. A copy carries key and value of the original and
the headers `reason`, `source_topic`, `source_partition` and `source_offset`; (topic, partition, offset) identifies
it, so that a reader can drop repeats. What can go wrong: a quarantine topic whose `max.message.bytes` is smaller than
the record; then the copy goes without the value, with the header `value_bytes` in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from oncebench.delivery.errors import DeliveryFailed

# A record of 1 MB (Kafka's default limit) plus our headers is over 1 MB; the producer must let it through.
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
# Longer than a broker's restart, so that quarantine doesn't stop the pipeline before the sink would.
FLUSH_LIMIT_S = 120.0

# One producer per worker process; processes are reused from batch to batch.
_producers: dict[str, Producer] = {}


@dataclass(frozen=True)
class Quarantine:
    """Cheap to pickle; connects in the worker when the first record is set aside.

    Args:
        topic: the quarantine topic.
        source_topic: the input topic.
        client: librdkafka settings (`bootstrap.servers` at least).
    """

    topic: str
    source_topic: str
    client: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_counts", Counter())
        object.__setattr__(self, "_failed", [])

    def copy(self, aside: pa.RecordBatch) -> None:
        """Sends copies (columns reason, source_partition, source_offset, key, value); not yet acknowledged."""
        producer = self._producer()
        columns = [
            aside.column(name).to_pylist() for name in ("reason", "source_partition", "source_offset", "key", "value")
        ]
        for reason, partition, offset, key, value in zip(*columns, strict=True):
            self._counts[reason] += 1  # type: ignore[attr-defined]
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
                self._failed.append(error)  # type: ignore[attr-defined]

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
        """Waits until every copy is acknowledged; gives the number of records by reason.

        Raises:
            DeliveryFailed: a copy was refused, or not acknowledged in time.
        """
        counts: Counter[str] = self._counts  # type: ignore[attr-defined]
        failed: list[KafkaError] = self._failed  # type: ignore[attr-defined]
        if counts:
            left = self._producer().flush(FLUSH_LIMIT_S)
            if left or failed:
                reason = failed[0] if failed else f"{left} copies not acknowledged in {FLUSH_LIMIT_S:g} s"
                raise DeliveryFailed(f"quarantine topic {self.topic}: {reason}")
        result = dict(counts)
        counts.clear()
        return result

    def _producer(self) -> Producer:
        servers = str(self.client["bootstrap.servers"])
        if servers not in _producers:
            settings = {"enable.idempotence": True, "acks": "all", "message.max.bytes": MAX_MESSAGE_BYTES}
            _producers[servers] = Producer({**self.client, **settings})
        return _producers[servers]
