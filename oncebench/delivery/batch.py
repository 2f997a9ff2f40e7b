"""One micro-batch in the driver: run it through a writer, or drain it.

Promise: each attempt consumes the rows of a batch exactly once, under every protocol. The tasks count and digest them
(`oncebench.delivery.tasks`). Where marks belong to task numbers, a batch has no more tasks than there are marks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, reduce
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from oncebench.delivery import digest, quarantine
from oncebench.delivery.contract import WHOLE_BATCH, BatchWriter, Sink, Writer, Written
from oncebench.delivery.errors import NondeterministicReplay, OlderDriver, RefusedStart
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.quarantine import Quarantine
from oncebench.delivery.tasks import RESULT_SCHEMA, CountTask, PassTask, WarmUpTask, WriteTask

# Rows and digest of a partition; the digest is None if this version cannot compare it.
Counted = tuple[int, int | None]
T = TypeVar("T")
_Result = tuple[dict[str, Any], float]


def data_columns(schema: StructType) -> list[str]:
    """Returns the columns of a row, without those that the delivery code adds or removes."""
    return [name for name in schema.names if name not in (quarantine.COLUMN, digest.HASH)]


def check_columns(schema: StructType) -> None:
    """Checks the columns of a query's rows.

    Raises:
        RefusedStart: there is no column, two have the same name, a name is reserved, or the quarantine column has
            another type, or upper case in its name.
    """
    if not data_columns(schema):
        raise RefusedStart(
            "the query has no columns for the sink, so there is nothing to write. Select the columns that the sink "
            f"stores, besides {quarantine.COLUMN!r}, which marks rejected records."
        )
    seen: dict[str, str] = {}
    for name in schema.names:
        if name.lower() == digest.HASH:
            raise RefusedStart(
                f"column {name!r} of the query has the name that each row's hash takes on its way to the sink, in "
                "upper or lower case. Its values would be lost. Give the column another name."
            )
        if name.lower() in seen:
            raise RefusedStart(
                f"columns {seen[name.lower()]!r} and {name!r} of the query have the same name but for upper and lower "
                "case, which Spark and most sinks do not distinguish. Rename one of them, or drop it."
            )
        seen[name.lower()] = name
    marks = seen.get(quarantine.COLUMN, quarantine.COLUMN)
    if marks != quarantine.COLUMN and schema[marks].dataType.simpleString() == quarantine.TYPE:
        raise RefusedStart(
            f"column {marks!r} of the query has the type of the column that marks rejected records, but not its name, "
            f"{quarantine.COLUMN!r} in lower case. They would be written as rows. Rename the column."
        )
    kind = schema[quarantine.COLUMN].dataType.simpleString() if quarantine.COLUMN in seen.values() else quarantine.TYPE
    if kind != quarantine.TYPE:
        raise RefusedStart(
            f"column {quarantine.COLUMN!r} of the query is {kind}; it must be {quarantine.TYPE}, null where a row is "
            "accepted. Cast the column, or give it another name if it holds no rejected records."
        )


def deliverable(rows: DataFrame, sink: Sink) -> DataFrame:
    """Returns a query's rows in the form for `Batch`: encoded for the sink, each with its hash.

    Raises:
        RefusedStart: see `check_columns`.
    """
    check_columns(rows.schema)
    encoded = sink.encode(rows)
    check_columns(encoded.schema)
    return digest.with_hash(encoded, data_columns(encoded.schema))


def map_in_arrow(
    rows: DataFrame, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """`DataFrame.mapInArrow` for columns of any name; Spark's own fails at a dot or a backtick."""
    names = rows.columns
    if not any(mark in name for name in names for mark in ".`"):
        return rows.mapInArrow(task, schema)
    numbered = rows.toDF(*map(str, range(len(names))))
    return numbered.mapInArrow(lambda batches: task(batch.rename_columns(names) for batch in batches), schema)


class Lists(AccumulatorParam[list[T]]):
    """Joins the lists that the tasks of a batch add to an accumulator."""

    def zero(self, _value: list[T]) -> list[T]:
        return []

    def addInPlace(self, one: list[T], other: list[T]) -> list[T]:
        return one + other


@cache
def _results(context: SparkContext, _query: str) -> Accumulator[list[_Result]]:
    """Returns one accumulator for all batches of a query, as pyspark never frees an accumulator."""
    return context.accumulator([], Lists())


class Batch:
    """A micro-batch in the driver. `timings_ms` collects the time of each step.

    Args:
        rows: the result of `deliverable`.
        number: the batch id of Spark.
        partitions: the most tasks that the batch may have; None: any number.
        rows_before: number of rows in the previous batch (None: unknown). Failpoints use this number until the batch
            has run, because a fault that names no batch must not hit a batch without rows.
        changed: whether an accepted loss has changed the batch's input, so its rows are not compared with a first run.
        query: a name of the query, different from those of all other queries in this process.
    """

    def __init__(
        self,
        rows: DataFrame,
        number: int,
        partitions: int | None,
        failpoints: Failpoints,
        quarantine: Quarantine,
        rows_before: int | None = None,
        changed: bool = False,
        query: str = "",
    ) -> None:
        self.id = number
        self._changed = changed
        self._query = query
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

    def asks_for(self, point: str) -> bool:
        """Whether this run was asked for a fault at this point."""
        return self._failpoints.asks_for(point)

    @property
    def failpoints(self) -> Failpoints:
        """The failpoints of the run, for tasks that a protocol makes itself."""
        return self._failpoints

    def failpoint(self, point: str) -> None:
        """Reaches a failpoint of the driver."""
        rows = sum(result.rows for result in self.results) if self.results else self._rows_before
        self._failpoints.reach(point, self.id, rows)

    def run(
        self,
        writer: Writer | BatchWriter,
        only: Collection[int] | None = None,
        expected: Mapping[int, Counted] | None = None,
    ) -> list[Written]:
        """Runs the batch through a writer.

        Args:
            writer: writes the rows. A `BatchWriter` takes neither `only` nor `expected`: it writes all rows or none.
            only: the partitions to write (None: all); the others are drained.
            expected: partition -> (rows, digest) of the batch's first run.

        Raises:
            NondeterministicReplay: the rows of a partition differ from `expected`.
        """
        if isinstance(writer, BatchWriter):
            assert only is None, "a BatchWriter cannot write some of the partitions"
            assert not expected, "a BatchWriter's rows are compared before they are written"
            return self._run_whole(writer)
        self.drained = False
        return self._run(writer, None if only is None else frozenset(only), expected or {})

    def native_rows(self) -> DataFrame:
        """Returns the rows for Spark's own sink; in a run with faults they pass a task's failpoints."""
        rows = self.rows.drop(digest.HASH)
        if not self._failpoints.faults:
            return rows
        return map_in_arrow(rows, PassTask(self.id, self._failpoints).__call__, rows.schema)

    def drain(self, expected: Mapping[int, Counted] | None = None, keep: bool = False) -> None:
        """Consumes the rows and writes none: the sink holds the batch, or must not get it again.

        Args:
            expected: see `run`.
            keep: whether Spark keeps the rows (in memory, or on its disks) for a `run` that follows, until `release`.
                The query's operator then makes the rows and commits its state only once.
        """
        self.drained = True
        if keep:
            self.rows = self._kept = self.rows.persist()
        self._run(None, None, expected or {})

    def release(self) -> None:
        """Ends the keeping of rows by `drain`, also after a failure."""
        if self._kept is not None:
            with suppress(Exception):  # a Spark that has ended keeps nothing, and the failure of the batch counts
                self._kept.unpersist()

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
        self, writer: Writer | None, only: frozenset[int] | None, expected: Mapping[int, Counted]
    ) -> list[Written]:
        task = WriteTask(self.id, self._partitions, writer, only, self._failpoints, self._quarantine)
        with self.timed("run"):
            collected = map_in_arrow(self.rows, task.__call__, RESULT_SCHEMA).collect()
        self.results = sorted((Written(**json.loads(row[0])) for row in collected), key=lambda w: w.partition)
        for step in {step for result in self.results for step in result.timings_ms}:
            self.timings_ms[step] = max(result.timings_ms.get(step, 0.0) for result in self.results)
        self._compare(expected)
        return self.results

    def _run_whole(self, writer: BatchWriter) -> list[Written]:
        results = _results(self.rows.sparkSession.sparkContext, self._query)
        results.value = []
        counting = CountTask(self.id, self._failpoints, self._quarantine, results).__call__
        schema = StructType([self.rows.schema[name] for name in data_columns(self.rows.schema)])
        with self.timed("run"):
            self.timings_ms |= writer.write_batch(map_in_arrow(self.rows, counting, schema), self.id)
        # The driver's clock minus a worker's clock: on a cluster, their difference is the error.
        last_s = max((handed_over_s for _, handed_over_s in results.value), default=time.time())
        self.timings_ms["commit"] = max(0.0, time.time() - last_s) * 1000
        self.results = sorted((Written(**result) for result, _ in results.value), key=lambda made: made.partition)
        # A batch of no partitions (a stateless query without new input) has no task to report. Asked of empty results
        # only, because Spark plans the query again for the answer.
        if not self.results and self.rows.rdd.getNumPartitions():
            raise OlderDriver(  # `oncebench.jobs.batches` checks that the other one is older
                f"batch {self.id}: another driver has written this batch to the sink since this driver started. This "
                "driver stops and has written nothing more. Start again: the replay finishes the batch."
            )
        self.failpoint("after-prepare")
        return self.results

    def _compare(self, expected: Mapping[int, Counted]) -> None:
        if self._changed:
            return
        digests = (made.digest for made in self.results)
        whole = Written(WHOLE_BATCH, sum(made.rows for made in self.results), reduce(digest.add, digests, 0))
        found = {made.partition: made for made in (*self.results, whole)}
        for partition, (rows, first_digest) in expected.items():
            made = found.get(partition, Written(partition, 0, 0))  # no such task any more
            if rows != made.rows or first_digest not in (made.digest, None):
                raise NondeterministicReplay(
                    f"batch {self.id}, {_name(made.partition)}: the replay made {made.rows} rows with digest "
                    f"{made.digest:016x}, the first run made {rows} with {first_digest or 0:016x}. Rows and their "
                    "tasks must depend on the input alone, whose topics must not be compacted; the replay has written "
                    "nothing that readers see. Start with the first run's code and settings; if they are the same, "
                    "correct the query and take a new checkpoint, sink_id and output."
                )


def _name(partition: int) -> str:
    return "the whole batch" if partition == WHOLE_BATCH else f"partition {partition}"


def warm_up(tasks: DataFrame, writer: Writer, failpoints: Failpoints, quarantine: Quarantine) -> None:
    """Warms up all workers that a batch uses: per task one for the operator, one for the writer."""
    warm = WarmUpTask(writer, replace(failpoints, faults=(), trace=None), quarantine).__call__
    tasks.mapInArrow(warm, tasks.schema).mapInArrow(warm, tasks.schema).collect()
