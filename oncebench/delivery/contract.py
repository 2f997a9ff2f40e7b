"""What a sink is to the delivery code: what it declares, what it does in a task, what it does in the driver.

A sink declares which guarantees it supports and in which variants; `oncebench/delivery/protocols.py` calls only what
the chosen
variant needs, in the words of two-phase commit (begin, pre-commit, commit, abort, recover). Nothing in the delivery
code knows a sink's name.
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

    from oncebench.sinks.reader import LogReader, Reader
    from pipeline.config import PipelineConfig

AT_MOST_ONCE = "at-most-once"
AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
# In place of a partition: all of the batch, for sinks whose atomic step is the batch.
WHOLE = -1
GUARANTEES = (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)


@dataclass(frozen=True)
class Support:
    """One guarantee that a sink can keep, and how.

    `shows`, `shown_by`: of a demonstrator only, the anomaly code with which it breaks its promise under these faults.
    """

    guarantee: str
    variant: str
    how: str
    default: bool = False
    shows: str | None = None
    shown_by: tuple[str, ...] = ("after-commit",)


@dataclass(frozen=True)
class Place:
    """Where a run may put its output.

    Attributes:
        name: of the run, never used before; letters, digits, `.`, `_` and `-`. Also the pipeline's sink_id.
        folder: of the run, for sinks that live in files.
        partitions: of the input and of each batch.
        kafka: librdkafka settings of the cluster that is always there.
        make_topic: creates a topic of that many partitions on it, and returns its name.
    """

    name: str
    folder: Path
    partitions: int
    kafka: Mapping[str, Any]
    make_topic: Callable[[str], str]


@dataclass(frozen=True)
class Kind:
    """A kind of sink, as its file registers it in `KINDS`.

    Attributes:
        name: what a user calls it.
        supports: the guarantees that it keeps; one default per guarantee.
        lacks: guarantee or variant -> why there is none.
        ordered: whether a reader sees the rows of a session in the order in which they were written.
        swept: whether what dead writers leave disturbs no reader and is removed by housekeeping of the sink's own, so
            that a start must not touch it; it is told, and no guarantee forbids it.
        provide: makes an empty output and returns its target: what `open` and `read` need to find it, as JSON, with
            `output`, a name for people. Secrets stay in the environment.
        open: the driver's side, from a pipeline's configuration.
        read: a committed reader of a target.
        services: what must be running beside Kafka (`oncebench.servers.sink_servers`).
        jars: lock files of jars that Spark needs for it (`oncebench/downloads/locks`).
        spark: settings that Spark needs for it.
        protocols: by (guarantee, variant), of what is broken on purpose; all others are in
        `oncebench.delivery.protocols`.
        whole: whether its atomic step is the batch, written from the driver (`BatchWriter`) and not by workers.
        alone: whether a task that has begun to write keeps every other writer out until it ends.
        in_folder: whether its rows are files below the folder of their place.
        stamped: whether its reader tells when a row was written, which may be before it was committed; of the others it
            tells when the row was committed or found.
        expires: whether the server aborts what a task has prepared, if nobody has ended it within the time-out.
        transactional_ids: prefix of the Kafka transactional ids of a sink_id, if it holds Kafka transactions.
        log: a reader of the log beneath a target, where that tells who wrote each record and how transactions ended.
        missing: what of an extra is not installed here, and how to install it; empty where all is there. Such a kind is
            listed, and its stored reports can be read, but it is not run unless it is named, and then refused.
    """

    name: str
    supports: Sequence[Support]
    lacks: Mapping[str, str]
    ordered: bool
    provide: Callable[[Place], dict[str, Any]]
    open: Callable[[PipelineConfig], Sink]
    read: Callable[[Mapping[str, Any]], Reader]
    services: Sequence[str] = ()
    jars: Sequence[str] = ()
    spark: Mapping[str, str] = field(default_factory=dict)
    protocols: Mapping[tuple[str, str], Callable[..., None]] = field(default_factory=dict)
    swept: bool = False
    whole: bool = False
    alone: bool = False
    in_folder: bool = False
    stamped: bool = False
    expires: bool = False
    transactional_ids: Callable[[str], str] | None = None
    log: Callable[[Mapping[str, Any]], LogReader] | None = None
    missing: str = ""

    def by_task(self, support: Support) -> bool:
        """Whether what it has of a batch is told by number of task, which must then be a row's own in every replay.

        Not of a whole batch, of a row by its id (`upsert`), or by a sink of Spark's.
        """
        return support.guarantee == EXACTLY_ONCE and not self.whole and support.variant not in ("upsert", "native")


@dataclass(frozen=True)
class Written:
    """What one task did with its partition of a batch.

    Attributes:
        partition: number of the task, 0 to partitions - 1.
        rows: rows of the partition.
        digest: order-free digest of these rows (see `oncebench.delivery.digest`).
        prepared: what the driver needs to commit or find this partition's work; empty when there was nothing.
        quarantined: how many records were set aside, by reason.
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
    """A marker found in the sink: the newest batch that a partition has committed, with its rows and digest.

    Under two-phase commit rows and digest stand in the decision, and are 0 here.
    """

    batch: int
    rows: int
    digest: int


class TaskView(Protocol):
    """What a writer sees of its task: where it is, what was counted so far, and the failpoints."""

    batch: int
    partition: int

    def passing(self, point: str) -> None:
        """Passes a failpoint of this task."""

    def counted(self) -> tuple[int, int]:
        """(rows, digest) of the rows handed out so far."""


class Writer(Protocol):
    """Writes one partition of a batch inside a Python worker. Must be picklable and must use up the rows."""

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch], /) -> tuple[dict[str, Any], dict[str, float]]:
        """Takes every row; returns (prepared, timings_ms). Raises if a row is not as safe as the guarantee says.

        Rows come as record batches with the columns of `pipeline.rows`.
        """


@runtime_checkable
class BatchWriter(Protocol):
    """Writes a whole batch from the driver, by a writer of Spark's: for sinks whose atomic step is the batch."""

    def write_batch(self, rows: DataFrame, batch: int, /) -> dict[str, float]:
        """Writes all rows (the columns of `pipeline.rows`) in one go, and returns timings_ms. `commit` is added to
        them: from the moment at which the last task had handed over its last row until this returns."""


class Sink:
    """The driver's side of a sink. What it gives as a `Writer` may be a `BatchWriter` instead.

    A sink has `start`, `warm`, and the steps of what its kind declares; a step that no declaration needs is never
    called, and says so if it is.
    """

    partitions: int

    def start(self, support: Support, generation: int, keep: Sequence[Mapping[str, Any]], /) -> None:
        """Checks settings, fences older drivers of this sink_id and aborts what they left.

        Args:
            support: the guarantee of this run.
            generation: of this driver, from the journal.
            keep: what the newest decided batch prepared, each with its `batch` and `partition`: not to be aborted
                unless it is committed already.

        Raises:
            RefusedStart: a setting does not allow the guarantee; the message says which.
        """
        raise self._undeclared("start")

    def warm(self) -> Writer:
        """A writer that makes a worker ready (connections, producers) and writes nothing."""
        raise self._undeclared("warm")

    def unacknowledged(self) -> Writer | BatchWriter:
        """at-most-once: write each row once, never again."""
        raise self._undeclared("unacknowledged")

    def acknowledged(self) -> Writer | BatchWriter:
        """at-least-once: write, and return only when every row is acknowledged."""
        raise self._undeclared("acknowledged")

    def marked(self) -> Writer | BatchWriter:
        """Idempotent: rows and the batch's marker in one atomic step."""
        raise self._undeclared("marked")

    def prepare(self) -> Writer:
        """Two-phase, pre-commit: rows durable but invisible, with the marker among them."""
        raise self._undeclared("prepare")

    def commit(self, batch: int, prepared: Mapping[int, Mapping[str, Any]], /) -> set[int]:
        """Two-phase, commit: makes prepared partitions visible; may be called again. Returns what is lost for good."""
        raise self._undeclared("commit")

    def marks(self) -> Mapping[int, Mark]:
        """The newest marker of each partition, as found at the start of this driver; of WHOLE for a `BatchWriter`."""
        return {}

    def forgets_after_s(self) -> float | None:
        """How long a marker is sure to be there after its batch; None: for ever, or there is none."""
        return None

    def write_as_shipped(self, rows: DataFrame, /) -> None:
        """The baseline: Spark's own writer, called from foreachBatch."""
        raise self._undeclared("write_as_shipped")

    def stream_as_shipped(self, rows: DataFrame, /) -> DataStreamWriter:
        """The baseline: Spark's own streaming sink."""
        raise self._undeclared("stream_as_shipped")

    def close(self) -> None:
        """Gives back what `start` took; nothing by default."""

    def _undeclared(self, step: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} declares a guarantee that needs {step}(), and has none")
