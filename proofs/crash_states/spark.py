"""A stand-in for Spark: two logs, continuing input, and tasks that run in this process.

Spark writes `offsets/N` before a batch and `commits/N` after it, and forces neither to the disk. The model assumes that
an entry exists whole or not at all: an empty or torn entry stops Spark itself, before any of our code runs. Where the
offset log is assumed to be forced, the names of the folders above it are too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from oncebench.sinks.files.formats import JSON_LINES
from pipeline.rows import ROW
from proofs.crash_states.calls import DRIVER
from proofs.without_jvm import as_columns, as_lines, deliverable

PARTITIONS = 2
Put = Callable[[Path, bytes, bool], None]
Row = tuple[Any, ...]  # in the order of ROW
_SCHEMA = pa.schema(
    [("session_key", pa.string()), ("j", pa.int32()), ("events", pa.int32())]
    + [(name, pa.int64()) for name in ("total", "checksum", "ended_at")]
)


def rows_of(batch: int, partition: int, count: int) -> list[Row]:
    """The rows of a partition of a batch, `count` of them."""
    key = f"session-{batch}-{partition}"
    return [(key, j, 5, 1000 * batch + j, 4_000_000_000 - j, 1_700_000_000_000_000 + j) for j in range(count)]


@dataclass(frozen=True)
class Logs:
    """The offset log and the commit log of a checkpoint.

    Attributes:
        checkpoint: the folder of both.
        put: writes an entry; its last argument is whether the entry is forced to the disk.
        forced: whether the offset log is forced. The commit log never is.
    """

    checkpoint: Path
    put: Put
    forced: bool

    def make(self) -> None:
        """Creates the folders of both logs."""
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(exist_ok=True)

    def begin(self, available: int) -> tuple[int, int]:
        """The next batch and its rows per partition; an open batch is run again with the same rows.

        Args:
            available: rows per partition of a new batch.
        """
        offsets, commits = (_numbers(self.checkpoint / name) for name in ("offsets", "commits"))
        newest = max(offsets, default=-1)
        if newest >= 0 and newest not in commits:
            return newest, self.rows(newest)
        self.put(self.checkpoint / "offsets" / str(newest + 1), str(available).encode(), self.forced)
        return newest + 1, available

    def end(self, batch: int) -> None:
        """Marks the batch as done: Spark does not run it again, if this entry reaches the disk."""
        entry = self.checkpoint / "commits" / str(batch)
        if not entry.exists():
            self.put(entry, b"{}", False)

    def done(self) -> set[int]:
        """The batches that Spark does not run again."""
        return _numbers(self.checkpoint / "commits")

    def rows(self, batch: int) -> int:
        """The number of rows per partition of a batch."""
        return int((self.checkpoint / "offsets" / str(batch)).read_bytes())


class Rows:
    """A batch's rows, as `oncebench.delivery.batch.Batch` needs them.

    The tasks run in this process, one after the other.

    Args:
        batch: number of the batch.
        count: rows per partition.
        suffix: file name suffix of the format in which the rows will be written.
        as_actor: is called with the name of the actor of all further calls.
    """

    columns = ROW

    def __init__(self, batch: int, count: int, suffix: str, as_actor: Callable[[str], None]) -> None:
        self._parts = [_input(batch, partition, count, suffix) for partition in range(PARTITIONS)]
        self._as_actor = as_actor
        self._task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = iter

    def mapInArrow(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: str) -> Rows:
        """Stores the task, which `collect` runs for each partition."""
        self._task = task
        return self

    def collect(self) -> list[tuple[str]]:
        """Runs a task per partition."""
        results: list[tuple[str]] = []
        for number, rows in enumerate(self._parts):
            with self._inside_task(number):
                for batch in self._task(iter([rows])):
                    results += [(text,) for text in batch.column("result").to_pylist()]
        return results

    @contextmanager
    def _inside_task(self, number: int) -> Iterator[None]:
        context = TaskContext._getOrCreate()
        context._partitionId, context._attemptNumber = number, 0
        self._as_actor(f"task {number}")
        try:
            yield
        finally:
            self._as_actor(DRIVER)
            TaskContext._taskContext = None


@cache
def _input(batch: int, partition: int, count: int, suffix: str) -> pa.RecordBatch:
    columns = zip(*rows_of(batch, partition, count), strict=True)
    rows = pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], _SCHEMA
    )
    return deliverable(as_lines(rows) if suffix == JSON_LINES.suffix else as_columns(rows))


def _numbers(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.iterdir() if path.name.isdigit()} if folder.is_dir() else set()


def row_in(value: bytes) -> Row:
    """A row from a committed reader; a row that the reader could not read lacks fields."""
    shown = json.loads(value)
    return tuple(shown.get(name) for name in ROW)
