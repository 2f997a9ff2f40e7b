"""The contract of a sink: its declarations, its writers in tasks, its steps in the driver.

A sink declares the guarantees that it supports, each in one or more variants. `oncebench.delivery.protocols` calls only
the steps that the chosen variant needs, in the order of two-phase commit: begin, prepare, commit, abort, recover. The
protocols never ask for a sink's name.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from oncebench.delivery.transactions.left import OpensTransactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from oncebench.delivery.failpoints import Failpoints
    from oncebench.delivery.stores.choose import Place

AT_MOST_ONCE = "at-most-once"
AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
GUARANTEES = (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)
# Stands for the whole batch in place of a partition number, for sinks that commit a batch in one step.
WHOLE_BATCH = -1
# The input of a sink's writers: the columns of the DataFrame, or a record's `key`, `value` and `headers`.
COLUMNS, RECORDS = "columns", "records"


@dataclass(frozen=True)
class Support:
    """A guarantee of a sink, and the variant by which the sink keeps it.

    Attributes:
        guarantee: one of GUARANTEES.
        variant: short name, for example `two-phase`.
        how: one sentence for people that describes the variant.
        default: whether this variant is used if the user names none.
        expected_anomaly: the anomaly code that a deliberately broken sink must show; None for a sound sink.
        triggering_faults: the faults under which a broken sink shows that anomaly.
    """

    guarantee: str
    variant: str
    how: str
    default: bool = False
    expected_anomaly: str | None = None
    triggering_faults: tuple[str, ...] = ("after-commit",)


@dataclass(frozen=True)
class Holder:
    """What drivers of a sink_id have left in the sink.

    Attributes:
        writers: the random names of the starts that wrote the newest markers; an older version wrote no name.
        generation: the newest one.
        batch: the newest batch of the sink_id in the sink; -1: none.
    """

    writers: frozenset[str]
    generation: int
    batch: int

    @staticmethod
    def of(marks: Mapping[int, Mark], generation: int) -> Holder:
        """Makes a holder from the newest markers and the newest generation."""
        writers = frozenset(mark.driver for mark in marks.values() if mark.driver)
        return Holder(writers, generation, max((mark.batch for mark in marks.values()), default=-1))


@dataclass(frozen=True)
class SinkSettings:
    """A job's settings for a sink of any kind. Each kind uses the ones that it needs.

    Attributes:
        output: the place of the rows, in the form of the kind; its field `output` names a topic, a table or a folder.
        sink_id: names this sink in its server; no two pipelines may share a sink_id.
        partitions: tasks per batch; a batch may have more if no marks belong to task numbers.
        checkpoint: the place of Spark's checkpoint, with the journal in it.
        kafka: librdkafka settings of the job's cluster, `bootstrap.servers` at least.
        transaction_timeout_ms: how long a prepared transaction may stay open.
        quarantine_topic: where Spark's own Kafka sink (`native`) writes rejected records.
        row_id: the columns that identify a row, for a sink that overwrites rows (`upsert`).
        variant: the variant of the guarantee; it selects one of the deliberately broken sinks.
        driver: random name of this start, which the sink notes: copies of one checkpoint take equal generations.
    """

    output: Mapping[str, Any]
    sink_id: str
    partitions: int
    checkpoint: Place
    kafka: Mapping[str, Any] = field(default_factory=dict)
    transaction_timeout_ms: int = 60_000
    quarantine_topic: str = ""
    row_id: Sequence[str] = ()
    variant: str = ""
    driver: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True)
class SinkKind:
    """A kind of sink, with everything that a job needs to use it.

    Attributes:
        name: the name that a user gives, for example as `--sink`.
        supports: the guarantees that the kind keeps; one default per guarantee.
        lacks: guarantee or variant -> the reason why the kind does not have it.
        open: makes the driver's side from a job's settings.
        takes: COLUMNS or RECORDS.
        jars: lock files of the jars that Spark needs for this kind.
        spark: settings that Spark needs for this kind.
        environment: variables of the driver that its tasks read, also on other machines.
        protocols: (guarantee, variant) -> protocol, for deliberately broken kinds; all others are in
            `oncebench.delivery.protocols`.
        batch_atomic: whether the driver writes a batch in one atomic step (`BatchWriter`), instead of the tasks.
        transactions: variant -> what opens the transactions that its tasks may leave open.
        timeout_limit: how an operator raises the server's limit of `transaction_timeout_ms`, for a kind whose server
            aborts a prepared transaction after that time. Empty: the server aborts none.
        none_open: why a kind has none, as a part of a sentence; empty if each of its commits is one step.
        missing: an extra that is not installed, and how to install it; empty if nothing is missing. A kind without
            its extra is listed, and its stored reports can be read, but a run that names the kind is refused.
        certify_only: whether the sink is a function of the user, which only `oncebench certify` runs. No list, profile
            or matrix has such a kind.
    """

    name: str
    supports: Sequence[Support]
    lacks: Mapping[str, str]
    open: Callable[[SinkSettings], Sink]
    takes: str = COLUMNS
    jars: Sequence[str] = ()
    spark: Mapping[str, str] = field(default_factory=dict)
    environment: Sequence[str] = ()
    protocols: Mapping[tuple[str, str], Callable[..., None]] = field(default_factory=dict)
    batch_atomic: bool = False
    transactions: Mapping[str, OpensTransactions] = field(default_factory=dict)
    timeout_limit: str = ""
    none_open: str = ""
    missing: str = ""
    certify_only: bool = False

    def commits_per_task(self, support: Support) -> bool:
        """Whether commit state belongs to task numbers, so a replay must keep rows in their tasks.

        False for sinks that commit whole batches, for sinks that overwrite rows by their id (`upsert`), and for
        Spark's own sinks.
        """
        own = support.variant not in ("upsert", "native")
        return support.guarantee == EXACTLY_ONCE and not self.batch_atomic and own


@dataclass(frozen=True)
class Written:
    """The result of one task with its partition of a batch.

    Attributes:
        partition: number of the task, 0 to partitions - 1.
        rows: rows of the partition.
        digest: order-free digest of these rows (`oncebench.delivery.digest`).
        prepared: data with which the driver commits or finds this partition's work; empty if there was no work.
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

    Under two-phase commit the decision contains rows and digest, and `rows` is 0 here. `digest` is None if the marker
    holds no digest that this version can compare. `driver` is the random name of the start that wrote it, if known.
    """

    batch: int
    rows: int
    digest: int | None
    driver: str = ""


# Batches of markers that stand for no batch: the marker that a sink makes before the first batch, and a marker that
# somebody has overwritten from outside.
NO_BATCH, OVERWRITTEN = -1, -2


class TaskView(Protocol):
    """The interface of a task for its writer: position, counts so far, failpoints."""

    batch: int
    partition: int

    def reach(self, point: str) -> None:
        """Reaches a failpoint of this task."""

    def counted(self) -> tuple[int, int]:
        """Returns (rows, digest) of the rows that the writer has got so far."""


class Writer(Protocol):
    """Writes one partition of a batch in a Python worker. Can be pickled; must consume all rows."""

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch], /) -> tuple[dict[str, Any], dict[str, float]]:
        """Writes every row and returns (prepared, timings_ms).

        Raises if a row is less safe than the guarantee promises. Rows come as record batches with the columns that
        `Sink.encode` returned.
        """


@runtime_checkable
class BatchWriter(Protocol):
    """Writes a whole batch from the driver, with Spark's writer.

    For sinks that commit a batch at once.
    """

    def write_batch(self, rows: DataFrame, batch: int, /) -> dict[str, float]:
        """Writes all rows in one step and returns timings_ms.

        The caller adds `commit` to the timings: the time since the last task handed over its last row.
        """


class Sink:
    """The driver's side of a sink. Methods may return a `BatchWriter` in place of a `Writer`.

    A sink implements `start`, `warm_up_writer`, and the steps of the guarantees that its kind declares. The protocols
    never call any other step; such a call raises.
    """

    partitions: int

    def check_schema(self, schema: StructType, /) -> None:
        """Checks the columns before anything is read or written; by default every schema passes.

        Raises:
            RefusedStart: the sink cannot store a column; the message names the column and the next step.
        """

    def encode(self, rows: DataFrame, /) -> DataFrame:
        """Returns the writers' input, computed in the JVM; by default the unchanged rows."""
        return rows

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, Any]], /) -> None:
        """Checks settings, fences older drivers of this sink_id and aborts their open work.

        Args:
            support: the guarantee of this run.
            generation: this driver's number, from the journal.
            decided: the prepared work of the newest decided batch, each with its `batch` and `partition`. It must not
                be aborted unless it is committed already. `finished` is true if Spark's commit log has the batch: the
                sink then has confirmed each commit, and readers may get the rows a little later.

        Raises:
            RefusedStart: a setting does not allow the guarantee; the message names the setting.
        """
        raise self._undeclared("start")

    def identity(self) -> Mapping[str, str]:
        """Returns what identifies the output for its server; may be called before and after `start`.

        A start compares each part with the one that an earlier start found. Empty: there is no output yet, or it has no
        identity. Reads only.
        """
        return {}

    def holder(self) -> Holder | None:
        """Returns what drivers of this sink_id have left; called before `start`.

        None: nothing, or the sink notes no names. Reads only: a start that is refused must not stop another driver.
        """
        return None

    def make_identity(self) -> None:
        """Gives the output an identity if its server gives none; called after a start's checks."""

    def warm_up_writer(self) -> Writer:
        """Returns a writer that makes a worker ready (connections, producers) and writes nothing."""
        raise self._undeclared("warm_up_writer")

    def claim(self, batch: int, /) -> None:
        """Notes in the sink that this driver writes a batch under at-most-once, before it does.

        By default nothing: the journal's claim excludes drivers of this checkpoint, and not those of a copy.

        Raises:
            AnotherDriver: another driver has taken the sink_id, or has claimed this batch.
        """

    def unacknowledged_writer(self) -> Writer | BatchWriter:
        """Returns the writer for at-most-once: it writes each row once and never again."""
        raise self._undeclared("unacknowledged_writer")

    def acknowledged_writer(self) -> Writer | BatchWriter:
        """Returns the writer for at-least-once: it returns when every row is acknowledged."""
        raise self._undeclared("acknowledged_writer")

    def idempotent_writer(self) -> Writer | BatchWriter:
        """Returns the writer for idempotent exactly-once: rows and marker in one atomic step."""
        raise self._undeclared("idempotent_writer")

    def prepare_writer(self) -> Writer:
        """Returns the writer for two-phase exactly-once: rows and marker durable, but invisible."""
        raise self._undeclared("prepare_writer")

    def commit(self, batch: int, prepared: Mapping[int, Mapping[str, Any]], /) -> set[int]:
        """Makes prepared partitions visible, and returns those that are lost for good.

        A call may be repeated.
        """
        raise self._undeclared("commit")

    def marks(self) -> Mapping[int, Mark]:
        """Returns each partition's newest marker at the start (WHOLE_BATCH for a `BatchWriter`)."""
        return {}

    @property
    def keeps_marks(self) -> bool:
        """Whether `marks` finds the marker of every partition that had rows."""
        return type(self).marks is not Sink.marks

    @property
    def restores_marks(self) -> bool:
        """Whether `restore_marks` does anything."""
        return type(self).restore_marks is not Sink.restore_marks

    def restore_marks(self, batches: Mapping[int, int], /) -> None:
        """Makes markers for partitions that have none: partition -> batch, or NO_BATCH.

        A marker that is there from the first start on shows later whether somebody has deleted the markers. Called
        after a start's checks. A sink leaves out a partition whose newest decided batch is not committed yet.
        """

    def newest_batch(self) -> int:
        """Returns the newest batch of this sink_id that the sink held at the start; -1: none."""
        return max((mark.batch for mark in self.marks().values()), default=-1)

    def incomparable(self) -> str | None:
        """Returns why the open batch cannot be compared with its replay; asked after `start`.

        None: it can be compared, or none is open. Otherwise `marks` still has the batch, and an operator must accept a
        replay without a comparison. The text names what is gone, and how it can be restored.
        """
        return None

    def forgets_after_s(self) -> float | None:
        """Returns how many seconds the sink keeps a marker at least; None: for ever.

        May be called before `start`.
        """
        return None

    def hindrance(self) -> str | None:
        """Returns what keeps the server from taking rows now, for the message of a failed batch.

        None: nothing can be seen.
        """
        return None

    def write_native(self, rows: DataFrame, /) -> None:
        """Writes the baseline, with Spark's own writer in foreachBatch; rows are not encoded."""
        raise self._undeclared("write_native")

    def stream_native(self, rows: DataFrame, /) -> DataStreamWriter:
        """Returns the baseline, Spark's own streaming sink; rows are not encoded."""
        raise self._undeclared("stream_native")

    @property
    def always_streams(self) -> bool:
        """Whether the sink is a streaming sink of Spark in runs with faults too.

        See `stream_with_failpoints`.
        """
        return False

    def stream_with_failpoints(self, rows: DataFrame, failpoints: Failpoints, /) -> DataStreamWriter:
        """Returns a streaming sink of Spark whose rows pass the failpoints of a task."""
        raise self._undeclared("stream_with_failpoints")

    def close(self) -> None:
        """Releases everything that `start` opened; by default nothing."""

    def _undeclared(self, step: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} declares a guarantee that needs {step}(), but does not implement it"
        )
