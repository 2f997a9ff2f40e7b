"""A sink that the user names: a foreachBatch function, or a streaming sink of Spark.

Promise: the pipeline adds nothing to the guarantee of the function. It calls the function for every batch that Spark
runs, replays included, as `DataStreamWriter.foreachBatch` does. The function gets the columns of the rows alone. A
streaming sink runs as in a user's own job. Its failpoints are `mid-write`, `before-prepare` and `after-commit-log`.

A kill during the call shows a partial write only if the sink has some rows of the batch already. One task alone cannot
bring this about: its rows pass through a Python process in front of the function's own writer, and Spark sends them on
in large pieces. Therefore every task but the first waits WAIT_S at `mid-write`. Meanwhile the first task passes on all
of its rows and ends. A batch reaches `before-prepare` when all tasks have ended and the function has not returned. Both
points belong to the last pass of the function over its rows, as far as an earlier batch shows (`passes`).

A function may write after all passes. So `after-prepare` has another meaning here: a reader sees rows of the batch, and
the function has not returned (`write_watch`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import Accumulator, SparkContext, TaskContext

from oncebench.delivery import digest
from oncebench.delivery.batch import Lists, map_in_arrow
from oncebench.delivery.contract import EXACTLY_ONCE, Sink, SinkKind, SinkSettings, Support, Written
from oncebench.delivery.decisions import pass_decision_failpoints
from oncebench.delivery.failpoints import FIRST_BATCH, Failpoints, begin_batch
from oncebench.delivery.protocols import native
from oncebench.delivery.quarantine import without_rejected
from oncebench.delivery.tasks import partition_of_first_attempt
from oncebench.sinks.black_box.calls import refuse_unfinished
from oncebench.sinks.black_box.passes import Passes
from oncebench.sinks.black_box.reader import Functions
from oncebench.sinks.black_box.target import enter, load
from oncebench.sinks.black_box.write_watch import own_code, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from oncebench.delivery.batch import Batch
    from oncebench.delivery.contract import TaskView

FUNCTION, FORMAT = "function", "format"
# The property by which Spark gives its tasks the number of the batch.
BATCH_ID = "streaming.sql.batchId"
# Seconds that the other tasks wait for the first task, which commits its rows meanwhile.
WAIT_S = 1.5
# Seconds between two looks whether all tasks have ended, in a run with a fault at `before-prepare`.
LOOK_S = 0.0005
# A fault acts so many batches after FIRST_BATCH, under the load. If the run gets stuck there, it is audited. A run that
# gets stuck in the warm-up is an error.
FAULT_AFTER = 4
# A function that writes with one task has no other task. From this batch on, its only task passes the point.
ONE_TASK_BATCH = FIRST_BATCH + FAULT_AFTER + 2
# Batches in which a fault waits until a reader sees rows. Where none shows any, later batches would not either.
WATCHED_BATCHES = 2


@dataclass(frozen=True)
class PassingTask:
    """Passes a task's rows on to the user's sink, and reaches the failpoints during the call.

    Attributes:
        batch: number of the batch. None: the task reads it from Spark's property BATCH_ID.
        failpoints: the failpoints of the run.
        results: an accumulator that gives the driver (partition, rows) each time that a task has passed on its rows. A
            function may read its rows twice. None: the driver needs no counts, and the task reaches `before-prepare`.
        passes: notes how often the function reads its rows. None: no fault needs it.
        key: the column whose values `passes` notes; empty: none.
    """

    batch: int | None
    failpoints: Failpoints
    results: Any = None
    passes: Passes | None = None
    key: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = _batch_of_task() if self.batch is None else self.batch
        partition, rows = partition_of_first_attempt(number), 0
        last = self.passes is None or self.passes.begin(partition)
        for batch in batches:
            if self.passes is not None and self.key:
                self.passes.note(batch.column(self.key).to_pylist())
            half = (batch.num_rows + 1) // 2
            yield batch.slice(0, half)
            rows += half
            if last:
                self._reach("mid-write", number, rows, partition)
            yield batch.slice(half)
            rows += batch.num_rows - half
        if self.results is None:
            self._reach("before-prepare", number, rows, partition)
        else:
            self.results.add([(partition, rows)])

    def _reach(self, point: str, batch: int, rows: int, partition: int) -> None:
        """Reaches a point in the last tasks, when the first one has ended."""
        if partition == 0 and batch < ONE_TASK_BATCH:
            return
        armed = self.failpoints.asks_for(point) and not self.failpoints.hits.exists()
        if armed and partition > 0 and rows and batch >= FIRST_BATCH + FAULT_AFTER:
            time.sleep(WAIT_S)
        self.failpoints.reach(point, batch, rows, partition)


def _batch_of_task() -> int:
    context = TaskContext.get()
    assert context is not None, "Spark runs this in a task"
    return int(context.getLocalProperty(BATCH_ID) or 0)


class BlackBox(Sink):
    """The sink of a run: calls the user's function, or streams to the user's format."""

    def __init__(self, settings: SinkSettings) -> None:
        self.partitions = settings.partitions
        self._target = settings.output
        enter(settings.output)
        assert isinstance(settings.checkpoint, Path), "the suite has named a folder"
        self.state = settings.checkpoint.parent / "failpoints.json"
        self._results: Accumulator[list[tuple[int, int]]] | None = None
        self._passes: tuple[tuple[int, int], ...] = ()
        self._tasks = 0
        self._watching, self._watched = False, 0
        self.name: str = settings.output["write"]
        self.key: str = settings.output["key"]
        self.write_batch = load(self.name, settings.output["cwd"]) if settings.variant == FUNCTION else None

    def start(self, _support: Support, _generation: int, _decided: Sequence[Mapping[str, Any]]) -> None:
        """See `Sink.start`. Checks nothing, because the inside of the user's sink is unknown."""

    def warm_up_writer(self) -> _WarmUp:
        return _WarmUp()

    @property
    def always_streams(self) -> bool:
        """See `Sink.always_streams`."""
        return self.write_batch is None

    def stream_with_failpoints(self, rows: DataFrame, failpoints: Failpoints) -> DataStreamWriter:
        """See `Sink.stream_with_failpoints`."""
        rows = without_rejected(rows)
        passed = map_in_arrow(rows, PassingTask(None, failpoints).__call__, rows.schema)
        options = {name: Template(value).safe_substitute(os.environ) for name, value in self._target["options"].items()}
        return passed.writeStream.format(self._target["format"]).options(**options)

    def results(self, context: SparkContext) -> Accumulator[list[tuple[int, int]]]:
        """Returns the accumulator, emptied for a batch.

        All batches share the accumulator, because pyspark never frees one.
        """
        if self._results is None:
            self._results = context.accumulator([], Lists())
        self._results.value = []
        return self._results

    def passes(self, batch: Batch) -> Passes | None:
        """Returns where the tasks of a batch note their passes; None if no fault needs the notes."""
        if not any(map(batch.asks_for, ("mid-write", "after-prepare"))):
            return None
        return Passes(self.state.with_name(f"batch-{batch.id}"), self._passes)

    def learn(self, passes: Passes | None, tasks: int, rows: int) -> None:
        """Remembers how often the function has read its rows, unless there were none."""
        found = () if passes is None else passes.take()
        if rows:
            self._passes, self._tasks = found, tasks
            self._watched += self._watching

    @property
    def tasks(self) -> int:
        """The number of tasks that end before the function's last pass over its rows, if known.

        The result is at least the number of partitions.
        """
        return max(self.partitions, self._tasks)

    def watch(self, batch: Batch, passes: Passes | None) -> AbstractContextManager[None]:
        """Returns a context for the call of the function.

        It reaches `after-prepare` when a reader sees rows of the batch.
        """
        failpoints = batch.failpoints
        armed = batch.asks_for("after-prepare") and not failpoints.hits.exists()
        due = batch.id >= FIRST_BATCH + FAULT_AFTER and self._watched < WATCHED_BATCHES
        self._watching = armed and due
        if passes is None or not self._watching:
            return nullcontext()
        column = self._target["columns"].index(self._target["key"])

        def count(rows: list[list[Any]]) -> int:
            keys = passes.keys()
            return sum(str(row[column]) in keys for row in rows)

        act = partial(failpoints.reach, "after-prepare", batch.id)
        own = own_code(self.name, self._target["cwd"])
        return watched(Functions(self._target), count, act, own, lambda: bool(passes.keys()))


@dataclass(frozen=True)
class _WarmUp:
    def write(self, _task: TaskView, _rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        return {}, {}


def call(batch: Batch, sink: Any, _journal: Any, _on_lost: str) -> None:
    """Calls the user's function with the rows of a batch."""
    begin_batch(sink.state, batch.failpoints, batch.id)
    rows = without_rejected(batch.rows.drop(digest.HASH))
    results, passes = sink.results(rows.sparkSession.sparkContext), sink.passes(batch)
    task = PassingTask(batch.id, batch.failpoints, results, passes, sink.key if batch.asks_for("after-prepare") else "")
    passed: DataFrame = map_in_arrow(rows, task.__call__, rows.schema)
    with _ended_tasks_watched(batch, results, sink.tasks), batch.timed("run"), sink.watch(batch, passes):
        refuse_unfinished(sink.write_batch(passed, batch.id), sink.name)
    batch.results = [Written(partition, counted, 0) for partition, counted in sorted(dict(results.value).items())]
    sink.learn(passes, len(results.value), sum(written.rows for written in batch.results))
    if not batch.asks_for("after-prepare"):
        batch.failpoint("after-prepare")
    pass_decision_failpoints(batch)


@contextmanager
def _ended_tasks_watched(batch: Batch, results: Any, tasks: int) -> Iterator[None]:
    """Reaches `before-prepare` when every task has ended, and the function has not returned.

    The driver gets the result of a task before it knows that the job has ended. A function that returns at once after
    its job may have returned.
    """
    if not batch.asks_for("before-prepare"):
        yield
        return
    returned = threading.Event()

    def watch() -> None:
        while len(results.value) < tasks:
            if returned.wait(LOOK_S):
                return
        batch.failpoints.reach("before-prepare", batch.id, sum(rows for _, rows in results.value))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        returned.set()
        watching.join()


KINDS = (
    SinkKind(
        name="black-box",
        # The strictest guarantee: the audit then lists every anomaly, and `oncebench.certify` finds what is kept.
        supports=(
            Support(EXACTLY_ONCE, FUNCTION, "a function of the user", default=True),
            Support(EXACTLY_ONCE, FORMAT, "a streaming sink of Spark that the user has chosen"),
        ),
        lacks={},
        open=BlackBox,
        protocols={(EXACTLY_ONCE, FUNCTION): call, (EXACTLY_ONCE, FORMAT): native},
        certify_only=True,
    ),
)
