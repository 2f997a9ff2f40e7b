"""One micro-batch, as the delivery code sees it: run it through a writer, or drain it.

Promise: whatever a protocol does with a batch, its rows are consumed exactly once in this life, because Spark commits
the state of a batch only for tasks that have used up their input (SPARK-52008; the skip traps of state checkpoint
v2). Rows are counted and digested on the way. Records that were set aside go to quarantine in every case, also when
the rows are drained. Only the first attempt at a task writes: where Spark has lost one, or finds it slow, and begins
another, that one ends the batch, and a new driver replays it as a whole, by the marks. A batch has no more tasks than
the pipeline has partitions: marks are kept for those.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, AccumulatorParam, SparkContext, TaskContext
from pyspark.sql import DataFrame

from oncebench.delivery import digest
from oncebench.delivery.contract import WHOLE, BatchWriter, Writer, Written
from oncebench.delivery.errors import AnotherDriver, NondeterministicReplay, TaskTriedAgain, TooManyTasks
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.quarantine import Quarantine
from pipeline.rows import ROW, TYPES, check_nulls, schema

_RESULT_SCHEMA = "result string"


@dataclass
class _Task:
    """One partition of a batch inside a worker (a TaskView)."""

    batch: int
    partition: int
    failpoints: Failpoints
    quarantine: Quarantine
    rows: int = 0
    digest: int = 0

    def passing(self, point: str) -> None:
        self.failpoints.passing(point, self.batch, self.rows, self.partition)

    def counted(self) -> tuple[int, int]:
        return self.rows, self.digest

    def take(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the input; what was set aside is copied to quarantine on the way."""
        for batch in batches:
            aside = batch.column("reason")
            rows = batch.select(ROW)
            if aside.null_count < len(aside):
                self.quarantine.copy(batch.filter(pc.is_valid(aside)))
                rows = rows.filter(pc.is_null(aside))
            if rows.num_rows == 0:
                continue
            check_nulls(rows, f"batch {self.batch}, partition {self.partition}")
            self.rows += rows.num_rows
            self.digest = digest.add(self.digest, digest.digest(rows))
            yield from self._in_two(rows) if self.failpoints.faults else (rows,)

    def _in_two(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        half = (rows.num_rows + 1) // 2
        yield rows.slice(0, half)
        self.passing("mid-write")
        yield rows.slice(half)


@dataclass(frozen=True)
class _Run:
    """What is sent to the workers: called once per partition with its record batches."""

    batch: int
    partitions: int
    writer: Writer | None
    only: frozenset[int] | None
    failpoints: Failpoints
    quarantine: Quarantine

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started = time.perf_counter()
        partition = _first_try(self.batch)
        if self.writer is not None and partition >= self.partitions:
            raise TooManyTasks(
                f"batch {self.batch}: Spark runs a task for partition {partition}, and this pipeline has partitions "
                f"{self.partitions}, for which alone marks are kept. This task has written nothing, others of the "
                "batch may have. End the query with a shuffle (groupBy, or repartition by a column into as many) and "
                "start again with a new checkpoint, sink_id and output; or set `partitions` there to the most tasks "
                "that a batch can have."
            )
        task = _Task(self.batch, partition, self.failpoints, self.quarantine)
        rows = task.take(batches)
        prepared: dict[str, Any] = {}
        timings: dict[str, float] = {}
        if self.writer is not None and (self.only is None or partition in self.only):
            prepared, timings = self.writer.write(task, rows)
        for _ in rows:
            pass
        aside = self.quarantine.flush()
        timings["task"] = (time.perf_counter() - started) * 1000
        result = Written(partition, task.rows, task.digest, prepared, aside, timings)
        yield pa.RecordBatch.from_pydict({"result": [json.dumps(result.__dict__)]})


@dataclass(frozen=True)
class _Counting:
    """Counts and digests the rows on their way to a `BatchWriter`; the results reach the driver as an accumulator, each
    with the moment at which the last row was handed over."""

    batch: int
    failpoints: Failpoints
    quarantine: Quarantine
    results: Any

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition = _first_try(self.batch)
        task = _Task(self.batch, partition, self.failpoints, self.quarantine)
        yield from task.take(batches)
        aside = self.quarantine.flush()
        task.passing("before-prepare")
        self.results.add([(Written(partition, task.rows, task.digest, {}, aside).__dict__, time.time())])


def _first_try(batch: int) -> int:
    """The partition of the task that runs here.

    Raises:
        TaskTriedAgain: it was begun before. `spark.task.maxFailures` does not keep Spark from that: a task whose
            executor went for another reason than the task (decommissioned, say) has not failed in Spark's eyes, and a
            copy of a slow one is no failure either.
    """
    context = TaskContext.get()
    if context is None:
        return 0
    partition, attempt = context.partitionId(), context.attemptNumber()
    if attempt > 0:
        raise TaskTriedAgain(
            f"batch {batch}, partition {partition}: Spark has begun this task again (attempt {attempt + 1}), and the "
            "one before may have written. This one has written nothing; a restart of the pipeline replays the batch. "
            "If it happens again, look after the executors, and leave speculation off."
        )
    return partition


_Result = tuple[dict[str, Any], float]


class _Lists(AccumulatorParam[list[_Result]]):
    def zero(self, _value: list[_Result]) -> list[_Result]:
        return []

    def addInPlace(self, one: list[_Result], other: list[_Result]) -> list[_Result]:
        return one + other


@cache
def _results(context: SparkContext) -> Accumulator[list[_Result]]:
    """One accumulator for all batches: pyspark keeps every one that was ever made."""
    return context.accumulator([], _Lists())


class Batch:
    """A micro-batch in the driver. `timings_ms` collects what each step took.

    `partitions`: how many tasks it may have. `rows_before`: how many rows the batch before this one had (None: not
    known); until this one has run it stands for the rows at stake, so that a fault without a batch of its own does not
    fall into a stretch without rows.
    """

    def __init__(
        self,
        rows: DataFrame,
        number: int,
        partitions: int,
        failpoints: Failpoints,
        quarantine: Quarantine,
        rows_before: int | None = None,
    ) -> None:
        self.id = number
        self.rows = rows
        self.timings_ms: dict[str, float] = {}
        self.results: list[Written] = []
        self.drained = False
        self.dropped: list[int] = []
        self._kept: DataFrame | None = None
        self._partitions = partitions
        self._rows_before = rows_before
        self._failpoints = failpoints
        self._quarantine = quarantine

    @property
    def watched(self) -> bool:
        """Whether faults were asked for in this run."""
        return bool(self._failpoints.faults)

    def at(self, point: str) -> None:
        """Passes a failpoint of the driver."""
        rows = sum(result.rows for result in self.results) if self.results else self._rows_before
        self._failpoints.passing(point, self.id, rows)

    def run(
        self,
        writer: Writer | BatchWriter,
        only: Collection[int] | None = None,
        expected: Mapping[int, tuple[int, int]] | None = None,
    ) -> list[Written]:
        """Runs the batch through a writer.

        Args:
            writer: what writes.
            only: the partitions to write (None: all); the others are drained.
            expected: (rows, digest) by partition from the first time this batch was run.

        Raises:
            NondeterministicReplay: a partition made other rows than `expected`, or none.
        """
        if isinstance(writer, BatchWriter):
            return self._run_whole(writer)
        self.drained = False
        results = self._run(writer, None if only is None else frozenset(only), expected or {})
        if self._kept is not None:
            self._kept.unpersist()
        return results

    def passing_rows(self) -> DataFrame:
        """The rows for a writer that is not ours; if faults were asked for, with a task's failpoints in their way."""
        if not self.watched:
            return self.rows
        return self.rows.mapInArrow(_Passing(self.id, self._failpoints).__call__, self.rows.schema)

    def drain(self, expected: Mapping[int, tuple[int, int]] | None = None, keep: bool = False) -> None:
        """Uses up the rows without writing any: the batch is in the sink already, or must not be written again.

        Args:
            expected: see `run`.
            keep: keep the rows in Spark (on its disks where its memory is full) for a `run` that follows: the query's
                operator makes them, and commits its state, once.
        """
        self.drained = True
        if keep:
            self.rows = self._kept = self.rows.persist()
        self._run(None, None, expected or {})

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Adds the time of a step to `timings_ms`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = (time.perf_counter() - started) * 1000
            self.timings_ms[step] = self.timings_ms.get(step, 0.0) + spent

    def _run(
        self, writer: Writer | None, only: frozenset[int] | None, expected: Mapping[int, tuple[int, int]]
    ) -> list[Written]:
        task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = _Run(
            self.id, self._partitions, writer, only, self._failpoints, self._quarantine
        ).__call__
        with self.timed("run"):
            collected = self.rows.mapInArrow(task, _RESULT_SCHEMA).collect()
        self.results = sorted((Written(**json.loads(row[0])) for row in collected), key=lambda w: w.partition)
        for step in {step for result in self.results for step in result.timings_ms}:
            self.timings_ms[step] = max(result.timings_ms.get(step, 0.0) for result in self.results)
        self._compare(expected)
        return self.results

    def _run_whole(self, writer: BatchWriter) -> list[Written]:
        results = _results(self.rows.sparkSession.sparkContext)
        results.value = []
        counting = _Counting(self.id, self._failpoints, self._quarantine, results).__call__
        with self.timed("run"):
            self.timings_ms |= writer.write_batch(self.rows.mapInArrow(counting, schema(TYPES)), self.id)
        # By two clocks: on a cluster it is as good as theirs agree.
        last_s = max((handed_over_s for _, handed_over_s in results.value), default=time.time())
        self.timings_ms["commit"] = max(0.0, time.time() - last_s) * 1000
        self.results = sorted((Written(**result) for result, _ in results.value), key=lambda made: made.partition)
        if not self.results:
            raise AnotherDriver(
                f"batch {self.id}: the sink holds it already and ran nothing, and it did not when this driver "
                "started: another driver has written it meanwhile. This one stops and has written nothing more. Let "
                "one driver run per checkpoint."
            )
        self.at("after-prepare")
        return self.results

    def _compare(self, expected: Mapping[int, tuple[int, int]]) -> None:
        digests = (made.digest for made in self.results)
        whole = Written(WHOLE, sum(made.rows for made in self.results), reduce(digest.add, digests, 0))
        found = {made.partition: made for made in (*self.results, whole)}
        for partition, first in expected.items():
            made = found.get(partition, Written(partition, 0, 0))  # no such task: nothing of what it had made
            if first != (made.rows, made.digest):
                raise NondeterministicReplay(
                    f"batch {self.id}, {_of(made.partition)}: the replay made {made.rows} rows with digest "
                    f"{made.digest:016x}, the first run made {first[0]} with {first[1]:016x}. Rows must depend on the "
                    "input alone, and so must the task that a row is in; the replay has written nothing. Compare the "
                    "pipeline's code and settings with those of the first run."
                )


def _of(partition: int) -> str:
    return "all of it" if partition == WHOLE else f"partition {partition}"


@dataclass(frozen=True)
class _Passing:
    """Hands every row on, and passes the failpoints of a task on the way: for a writer that is not ours."""

    batch: int
    failpoints: Failpoints

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, rows = _first_try(self.batch), 0
        for batch in batches:
            half = (batch.num_rows + 1) // 2
            yield batch.slice(0, half)
            rows += half
            self.failpoints.passing("mid-write", self.batch, rows, partition)
            yield batch.slice(half)
            rows += batch.num_rows - half
        self.failpoints.passing("before-prepare", self.batch, rows, partition)


@dataclass(frozen=True)
class _Warm:
    """Makes a worker ready and passes the rows on to the next stage's worker."""

    writer: Writer
    failpoints: Failpoints
    quarantine: Quarantine

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.writer.write(_Task(-1, 0, self.failpoints, self.quarantine), iter(()))
        yield from batches


def warm_up(tasks: DataFrame, writer: Writer, failpoints: Failpoints, quarantine: Quarantine) -> None:
    """Makes ready as many worker processes as a batch uses: an operator's and a writer's per task."""
    warm = _Warm(writer, replace(failpoints, faults=(), trace=None), quarantine).__call__
    tasks.mapInArrow(warm, tasks.schema).mapInArrow(warm, tasks.schema).collect()
