"""A PostgreSQL output without Spark: one worker, and drivers that write to a new table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from oncebench.delivery.contract import Writer
from oncebench.delivery.digest import HASH, digest
from oncebench.sinks.postgres import writers
from oncebench.sinks.postgres.sink import PostgresSink
from oncebench.sinks.registry import suite_sinks
from pipeline.rows import ID, SCHEMA
from proofs.without_jvm import deliverable
from tests.pipelines import place
from tests.reading import read_all

SINK = suite_sinks()["postgres"]
SUPPORTS = {support.variant: support for support in SINK.kind.supports}


class Task:
    """A task of a batch, as the framework would show it to a writer."""

    def __init__(self, batch: int, partition: int, rows: list[pa.RecordBatch], passing: dict[str, Any] | None = None):
        self.batch, self.partition = batch, partition
        self._rows = rows
        self._passing = passing or {}

    def reach(self, point: str) -> None:
        self._passing.get(point, lambda: None)()

    def counted(self) -> tuple[int, int]:
        return sum(rows.num_rows for rows in self._rows), sum(map(digest_of, self._rows)) % 2**64


def digest_of(rows: pa.RecordBatch) -> int:
    return digest(deliverable(rows).column(HASH))


def batch(*keys: str, start: int = 0) -> pa.RecordBatch:
    values = [(key, j) for key in keys for j in range(start, start + 2)]
    columns = [("j", pa.int32()), ("events", pa.int32()), ("total", pa.int64()), ("checksum", pa.int64())]
    numbers = {name: pa.array([j for _, j in values], kind) for name, kind in (*columns, ("ended_at", pa.int64()))}
    return pa.record_batch({"session_key": pa.array([key for key, _ in values], pa.string()), **numbers})


def write(
    writer: Writer, number: int, partition: int, *rows: pa.RecordBatch, **passing: Callable[[], None]
) -> dict[str, Any]:
    task = Task(number, partition, list(rows), {name.replace("_", "-"): act for name, act in passing.items()})
    return writer.write(task, iter(rows))[0]


class Output:
    """A fresh output table, and the sinks that were opened on it."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        self.target = SINK.provide(place(name, Path()))
        self._stack = stack

    def sink(self, variant: str = "two-phase", keep: Any = (), partitions: int = 2) -> PostgresSink:
        sink = PostgresSink(self.target["output"], self.target["sink_id"], partitions, ID)
        self._stack.callback(sink.close)
        sink.check_schema(SCHEMA)
        sink.start(SUPPORTS[variant], 1, list(keep))
        return sink

    def reader(self) -> Any:
        return self._stack.enter_context(closing(SINK.read(self.target)))

    def visible(self) -> Counter[str]:
        """How many rows of each key are there."""
        return Counter(orjson.loads(value or b"")["session_key"] for value in read_all(SINK.read(self.target)).value)


def writer_of(sink: PostgresSink, variant: str) -> Writer:
    """What writes a partition under this variant."""
    writers_of: dict[str, Callable[[], Writer]] = {
        "claim": sink.unacknowledged_writer,
        "idempotent": sink.idempotent_writer,
        "two-phase": sink.prepare_writer,
    }
    return writers_of.get(variant, sink.acknowledged_writer)()


def drop_connections() -> None:
    """As when the worker process dies."""
    for connection in writers._connections.values():
        connection.close()
    writers._connections.clear()
