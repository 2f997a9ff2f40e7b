"""A Kafka output without Spark: one worker, and drivers that write to a new topic."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from oncebench.delivery.contract import Support
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.kafka.sink import SUPPORTS, KafkaSink
from tests.reading import read_all
from tests.waiting import wait_for

VARIANTS = {support.variant: support for support in SUPPORTS}
# A transaction that nobody aborts would hold its reader up for so long.
TIMEOUT_MS = 60_000


class Task:
    """The task of a partition."""

    def __init__(self, batch: int, partition: int = 0) -> None:
        self.batch, self.partition = batch, partition

    def reach(self, point: str) -> None:
        """No faults here."""

    def counted(self) -> tuple[int, int]:
        return 20, 1


def rows(of: str) -> Iterator[pa.RecordBatch]:
    values = [json.dumps({"session_key": of, "j": j}).encode() for j in range(20)]
    yield pa.record_batch({"key": pa.array([of.encode()] * 20), "value": pa.array(values)})


class Output:
    """A fresh topic, and drivers that write to it from this one worker process."""

    def __init__(self, kafka: KafkaBroker, partitions: int = 1) -> None:
        self.servers = kafka.bootstrap_servers
        self.topic = kafka.fresh_topic("out", partitions)
        self.sink_id = f"s-{uuid.uuid4().hex[:8]}"

    def driver(
        self,
        variant: str,
        generation: int,
        keep: list[Mapping[str, Any]] | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> KafkaSink:
        sink = KafkaSink(self.topic, self.sink_id, 1, {"bootstrap.servers": self.servers}, timeout_ms, "")
        sink.start(support(variant), generation, keep or [])
        return sink

    def visible(self) -> Counter[str]:
        values = read_all(KafkaReader(self.servers, self.topic)).value
        return Counter(json.loads(value or b"{}")["session_key"] for value in values)


def support(variant: str) -> Support:
    return VARIANTS[variant]


def write(writer: Any, batch: int, of: str) -> dict[str, Any]:
    return dict(writer.write(Task(batch), rows(of))[0])


def wait_for_rows(output: Output, wanted: dict[str, int]) -> None:
    """A committed transaction is visible once its markers are written, some ms after the answer."""
    wait_for(f"{wanted} to be visible", lambda: output.visible() == wanted)
