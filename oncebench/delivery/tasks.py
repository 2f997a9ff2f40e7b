"""The code in a Spark task: counts and digests the rows of a partition, and writes them.

Promise: every row of the input is consumed, whether it is written or not. Spark commits the state of a batch only for
tasks that have consumed their whole input (SPARK-52008). Rejected records always go to quarantine. A writer gets no
text that is not UTF-8. Only the first attempt at a task writes. Spark may start a task again because its executor is
lost or slow. Such a second attempt fails the batch, and a new driver replays the whole batch, as its marks require.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from oncebench.delivery import digest, quarantine
from oncebench.delivery.contract import Writer, Written
from oncebench.delivery.errors import PermanentFailure, TaskTriedAgain, TooManyTasks
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.failures.cause import NO_RESTART
from oncebench.delivery.quarantine import Quarantine

RESULT_SCHEMA = "result string"
# The least byte that is not ASCII.
_NOT_ASCII = 0x80
# Bytes of a wrong text in a message: enough to find its row, in one line.
_SHOWN = 60


@dataclass
class Task:
    """One partition of a batch inside a worker (a `TaskView`)."""

    batch: int
    partition: int
    failpoints: Failpoints
    quarantine: Quarantine
    rows: int = 0
    digest: int = 0

    def reach(self, point: str) -> None:
        """See `TaskView.reach`."""
        self.failpoints.reach(point, self.batch, self.rows, self.partition)

    def counted(self) -> tuple[int, int]:
        """See `TaskView.counted`."""
        return self.rows, self.digest

    def take(self, batches: Iterator[pa.RecordBatch], written: bool = True) -> Iterator[pa.RecordBatch]:
        """Yields the accepted rows without hash and quarantine column; copies rejected records.

        Args:
            batches: from Spark.
            written: whether the rows are written. Rows that are drained were written before, perhaps by an older
                version, and no check may stop their replay.

        Raises:
            PermanentFailure: a text of a row that is written is not UTF-8.
        """
        for batch in batches:
            rows, hashes = digest.without_hash(self._accepted(batch))
            if rows.num_rows == 0:
                continue
            if written:
                refuse_text_that_is_not_utf8(rows, f"batch {self.batch}, partition {self.partition}")
            self.rows += rows.num_rows
            self.digest = digest.add(self.digest, digest.digest(hashes))
            yield from self._in_halves(rows) if self.failpoints.asks_for("mid-write") else (rows,)

    def _accepted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if quarantine.COLUMN not in batch.schema.names:
            return batch
        rejected = batch.column(quarantine.COLUMN)
        rows = batch.drop_columns([quarantine.COLUMN])
        if rejected.null_count == len(rejected):
            return rows
        self.quarantine.copy(rejected.filter(pc.is_valid(rejected)))
        return rows.filter(pc.is_null(rejected))

    def _in_halves(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields a record batch in two halves, with the failpoint `mid-write` between them.

        Only runs with a fault at `mid-write` use this.
        """
        half = (rows.num_rows + 1) // 2
        yield rows.slice(0, half)
        self.reach("mid-write")
        yield rows.slice(half)


@dataclass(frozen=True)
class WriteTask:
    """Writes or drains one partition; called in a worker, once per partition.

    Attributes:
        batch: number of the batch.
        partitions: the most tasks that a batch may have, because marks exist for these only; None: the guarantee
            keeps no marks by task number, and a batch may have any number of tasks.
        writer: writes the rows; None: the rows are drained.
        only: the partitions to write; None: all.
    """

    batch: int
    partitions: int | None
    writer: Writer | None
    only: frozenset[int] | None
    failpoints: Failpoints
    quarantine: Quarantine

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started = time.perf_counter()
        partition = partition_of_first_attempt(self.batch)
        if self.writer is not None and self.partitions is not None and partition >= self.partitions:
            raise TooManyTasks(
                f"batch {self.batch}: Spark runs a task for partition {partition}, but this pipeline keeps marks for "
                f"{self.partitions} partitions only; other tasks may have written. End the query with groupBy or "
                f"repartition by a column into {self.partitions} partitions, or set `partitions` (deliver: "
                "spark.sql.shuffle.partitions) to a batch's most tasks. Then start again with a new checkpoint, "
                "sink_id and output."
            )
        task = Task(self.batch, partition, self.failpoints, self.quarantine)
        prepared: dict[str, Any] = {}
        timings: dict[str, float] = {}
        writer = self.writer if self.only is None or partition in self.only else None
        rows = task.take(batches, written=writer is not None)
        if writer is not None:
            prepared, timings = writer.write(task, rows)
        for _ in rows:
            pass
        rejected = self.quarantine.flush()
        timings["task"] = (time.perf_counter() - started) * 1000
        result = Written(partition, task.rows, task.digest, prepared, rejected, timings)
        yield pa.RecordBatch.from_pydict({"result": [json.dumps(result.__dict__)]})


@dataclass(frozen=True)
class CountTask:
    """Counts and digests rows before a `BatchWriter` takes them.

    The driver gets the results through an accumulator, each with the time at which the last row was handed over.
    """

    batch: int
    failpoints: Failpoints
    quarantine: Quarantine
    results: Any

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition = partition_of_first_attempt(self.batch)
        task = Task(self.batch, partition, self.failpoints, self.quarantine)
        yield from task.take(batches)
        rejected = self.quarantine.flush()
        task.reach("before-prepare")
        self.results.add([(Written(partition, task.rows, task.digest, {}, rejected).__dict__, time.time())])


@dataclass(frozen=True)
class PassTask:
    """Passes rows on to Spark's own sink and reaches a task's failpoints."""

    batch: int
    failpoints: Failpoints

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, rows = partition_of_first_attempt(self.batch), 0
        for batch in batches:
            half = (batch.num_rows + 1) // 2
            yield batch.slice(0, half)
            rows += half
            self.failpoints.reach("mid-write", self.batch, rows, partition)
            yield batch.slice(half)
            rows += batch.num_rows - half
        self.failpoints.reach("before-prepare", self.batch, rows, partition)


@dataclass(frozen=True)
class WarmUpTask:
    """Makes a worker ready and hands the rows on to the worker of the next Spark stage."""

    writer: Writer
    failpoints: Failpoints
    quarantine: Quarantine

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.writer.write(Task(-1, 0, self.failpoints, self.quarantine), iter(()))
        yield from batches


def refuse_text_that_is_not_utf8(rows: pa.RecordBatch, where: str) -> None:
    """Checks the texts of rows, nested ones too; null and binary are no text.

    Spark's `cast("string")` takes any bytes. Sinks would store them as they are or with other characters, and readers
    fail at them.

    Args:
        rows: to be written.
        where: batch and partition, for the message.

    Raises:
        PermanentFailure: a text is not UTF-8; the message names its column and shows the text, unless it is nested.
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if _holds_text(column.type) and not _is_utf8(column):
            raise PermanentFailure(
                f"{where}: column {name!r} has a text that is not UTF-8{_first_wrong(column)}. {NO_RESTART} Reject "
                "such rows in the query, give the sink the bytes as binary, or replace them with make_valid_utf8; then "
                "start again."
            )


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_text(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_utf8(column: pa.Array) -> bool:
    if not pa.types.is_nested(column.type):
        # The bytes of all texts together. ASCII is UTF-8, and this check costs nearly nothing.
        data = column.buffers()[2]
        if data is None or np.frombuffer(data, np.uint8).max(initial=0) < _NOT_ASCII:
            return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _first_wrong(column: pa.Array) -> str:
    """Returns the first text that is not UTF-8, in brackets; empty if it is nested."""
    if pa.types.is_nested(column.type):
        return ""
    for text in column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary()):
        found = text.as_py() or b""
        try:
            found.decode()
        except UnicodeDecodeError:
            return f" ({found[:_SHOWN]!r})"
    return ""


def partition_of_first_attempt(batch: int) -> int:
    """Returns the partition of the running task.

    Raises:
        TaskTriedAgain: this is not the task's first attempt. `spark.task.maxFailures` does not prevent a second one:
            a task whose executor was decommissioned does not count as failed, nor does a slow task that Spark copies.
    """
    context = TaskContext.get()
    if context is None:
        return 0
    partition, attempt = context.partitionId(), context.attemptNumber()
    if attempt > 0:
        raise TaskTriedAgain(
            f"batch {batch}, partition {partition}: Spark has started this task again (attempt {attempt + 1}), and an "
            "earlier attempt may have written. This attempt has written nothing; start the pipeline again. If this "
            "happens again, look at the executors, and leave speculation off."
        )
    return partition
