"""The contract of a sink: its declarations, its writers in tasks, its steps in the driver.

A sink declares the guarantees that it supports, each in one or more variants. `oncebench.delivery.protocols` calls only
the steps that the chosen variant needs, in the order of two-phase commit: begin, prepare, commit, abort, recover. The
protocols never ask for a sink's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

AT_MOST_ONCE = "at-most-once"
AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
GUARANTEES = (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)
# Stands for the whole batch in place of a partition number, for sinks that commit a batch in one step.
WHOLE_BATCH = -1
# What a sink's writers take: the columns of the DataFrame, or a record's `key`, `value` and `headers`.
COLUMNS, RECORDS = "columns", "records"


@dataclass(frozen=True)
class Support:
    """One guarantee that a sink keeps, and how.

    Attributes:
        guarantee: one of GUARANTEES.
        variant: how the guarantee is kept, for example `two-phase`.
        how: one sentence for people.
        default: whether this variant is used where none is named.
        expected_anomaly: the anomaly code that a deliberately broken sink must show; None for a sound one.
        triggering_faults: the faults under which it shows that anomaly.
    """

    guarantee: str
    variant: str
    how: str
    default: bool = False
    expected_anomaly: str | None = None
    triggering_faults: tuple[str, ...] = ("after-commit",)


@dataclass(frozen=True)
class SinkSettings:
    """What a job's configuration gives to a sink of any kind; each kind takes what it needs.

    Attributes:
        output: where the rows go, as the kind has it: `output` names a topic, a table or a folder.
        sink_id: names this sink in its server; no two pipelines may share one.
        partitions: tasks per batch.
        checkpoint: folder of Spark's checkpoint, with the journal in it.
        kafka: librdkafka settings of the job's cluster, `bootstrap.servers` at least.
        transaction_timeout_ms: how long a prepared transaction may stay open.
        quarantine_topic: where Spark's own Kafka sink (`native`) writes rejected records.
        row_id: the columns that identify a row, for a sink that overwrites rows (`upsert`).
        variant: of the guarantee; deliberately broken sinks differ by it.
    """

    output: Mapping[str, Any]
    sink_id: str
    partitions: int
    checkpoint: Path
    kafka: Mapping[str, Any] = field(default_factory=dict)
    transaction_timeout_ms: int = 60_000
    quarantine_topic: str = ""
    row_id: Sequence[str] = ()
    variant: str = ""


@dataclass(frozen=True)
class SinkKind:
    """A kind of sink: all that a job needs to use it.

    Attributes:
        name: what a user calls it.
        supports: the guarantees that it keeps; one default per guarantee.
        lacks: guarantee or variant -> why the kind does not have it.
        open: makes the driver's side from a job's settings.
        takes: COLUMNS or RECORDS.
        jars: lock files of the jars that Spark needs for it.
        spark: settings that Spark needs for it.
        protocols: (guarantee, variant) -> protocol, for deliberately broken kinds; all others are in
            `oncebench.delivery.protocols`.
        batch_atomic: whether the driver writes a batch in one atomic step (`BatchWriter`), not its tasks.
        missing: which extra is not installed, and how to install it; empty where nothing is missing. Such a kind is
            listed and its stored reports can be read, but a run that names it is refused.
    """

    name: str
    supports: Sequence[Support]
    lacks: Mapping[str, str]
    open: Callable[[SinkSettings], Sink]
    takes: str = COLUMNS
    jars: Sequence[str] = ()
    spark: Mapping[str, str] = field(default_factory=dict)
    protocols: Mapping[tuple[str, str], Callable[..., None]] = field(default_factory=dict)
    batch_atomic: bool = False
    missing: str = ""

    def commits_per_task(self, support: Support) -> bool:
        """Whether commit state is kept per task number, so a replay must keep rows in their tasks.

        False for a sink that commits whole batches, for one that overwrites rows by their id (`upsert`), and for
        Spark's own sinks.
        """
        own = support.variant not in ("upsert", "native")
        return support.guarantee == EXACTLY_ONCE and not self.batch_atomic and own


@dataclass(frozen=True)
class Written:
    """What one task did with its partition of a batch.

    Attributes:
        partition: number of the task, 0 to partitions - 1.
        rows: rows of the partition.
        digest: order-free digest of these rows (`oncebench.delivery.digest`).
        prepared: what the driver needs to commit or find this partition's work; empty when there was nothing.
        quarantined: number of rejected records, by reason.
        timings_ms: parts of the task's time, by name.
    """

    partition: int
    rows: int
    digest: int
    prepared: Mapping[str, Any] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    timings_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Mark:
    """A marker found in the sink: the newest batch that a partition committed.

    Under two-phase commit rows and digest stand in the decision, and `rows` is 0 here. `digest` is None where the
    marker holds none that this version can compare.
    """

    batch: int
    rows: int
    digest: int | None


class TaskView(Protocol):
    """A writer's view of its task: position, counts so far, failpoints."""

    batch: int
    partition: int

    def reach(self, point: str) -> None:
        """Reaches a failpoint of this task."""

    def counted(self) -> tuple[int, int]:
        """(rows, digest) of the rows handed out so far."""


class Writer(Protocol):
    """Writes one partition of a batch inside a Python worker. Picklable; must consume all rows."""

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch], /) -> tuple[dict[str, Any], dict[str, float]]:
        """Writes every row; returns (prepared, timings_ms). Raises if a row is less safe than promised.

        Rows come as record batches with the columns that `Sink.encode` returned.
        """


@runtime_checkable
class BatchWriter(Protocol):
    """Writes a whole batch from the driver by Spark's writer, for sinks that commit a batch at once."""

    def write_batch(self, rows: DataFrame, batch: int, /) -> dict[str, float]:
        """Writes all rows in one go and returns timings_ms.

        `commit` is added to the timings: from the moment when the last task had handed over its last row.
        """


class Sink:
    """The driver's side of a sink. Methods may return a `BatchWriter` in place of a `Writer`.

    A sink implements `start`, `warm_up_writer`, and the steps of what its kind declares. A step that no declaration
    needs is never called, and raises if it is.
    """

    partitions: int

    def check_schema(self, schema: StructType, /) -> None:
        """Checks the columns before anything is read or written; by default every schema passes.

        Raises:
            RefusedStart: the sink cannot store a column; the message names it and what to do.
        """

    def encode(self, rows: DataFrame, /) -> DataFrame:
        """Returns what the writers take, computed in the JVM; by default the rows as they are."""
        return rows

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, Any]], /) -> None:
        """Checks settings, fences older drivers of this sink_id and aborts what they left.

        Args:
            support: the guarantee of this run.
            generation: of this driver, from the journal.
            decided: what the newest decided batch prepared, each with its `batch` and `partition`: not to be aborted
                unless it is committed already.

        Raises:
            RefusedStart: a setting does not allow the guarantee; the message says which.
        """
        raise self._undeclared("start")

    def warm_up_writer(self) -> Writer:
        """Returns a writer that makes a worker ready (connections, producers) and writes nothing."""
        raise self._undeclared("warm_up_writer")

    def unacknowledged_writer(self) -> Writer | BatchWriter:
        """at-most-once: writes each row once, never again."""
        raise self._undeclared("unacknowledged_writer")

    def acknowledged_writer(self) -> Writer | BatchWriter:
        """at-least-once: writes, and returns only when every row is acknowledged."""
        raise self._undeclared("acknowledged_writer")

    def idempotent_writer(self) -> Writer | BatchWriter:
        """exactly-once, idempotent: rows and the batch's marker in one atomic step."""
        raise self._undeclared("idempotent_writer")

    def prepare_writer(self) -> Writer:
        """exactly-once, two-phase: rows durable but invisible, with the marker among them."""
        raise self._undeclared("prepare_writer")

    def commit(self, batch: int, prepared: Mapping[int, Mapping[str, Any]], /) -> set[int]:
        """Makes prepared partitions visible; may be repeated. Returns partitions that are lost for good."""
        raise self._undeclared("commit")

    def marks(self) -> Mapping[int, Mark]:
        """The newest marker of each partition, found at the start (WHOLE_BATCH for a `BatchWriter`)."""
        return {}

    def newest_batch(self) -> int:
        """The newest batch of this sink_id in the sink, found at the start; -1: none."""
        return max((mark.batch for mark in self.marks().values()), default=-1)

    def forgets_after_s(self) -> float | None:
        """How long a marker is sure to be there after its batch; None: for ever, or there is none."""
        return None

    def write_native(self, rows: DataFrame, /) -> None:
        """The baseline: Spark's own writer in foreachBatch; rows are not encoded."""
        raise self._undeclared("write_native")

    def stream_native(self, rows: DataFrame, /) -> DataStreamWriter:
        """The baseline: Spark's own streaming sink; rows are not encoded."""
        raise self._undeclared("stream_native")

    def close(self) -> None:
        """Gives back what `start` took; nothing by default."""

    def _undeclared(self, step: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} declares a guarantee that needs {step}(), and has none")
