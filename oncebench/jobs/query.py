"""Delivers the rows of a query to a sink under a guarantee: three lines of a Spark job.

    sink = KafkaSink("orders-checked", bootstrap_servers="broker1:9092", sink_id="orders-1")
    writer = deliver(rows, sink, guarantee="exactly-once", checkpoint="/data/checkpoint")
    query = writer.trigger(processingTime="1 second").start()

Promise: `deliver` makes every check before it makes a checkpoint, except those that compare input and output with the
journal. It starts the sink before it returns. A refusal names the next step. The writer is Spark's own
`DataStreamWriter`, so trigger, name, output mode and listeners are Spark's. Do not set its `checkpointLocation` or
`foreachBatch` again: the first is refused in the first batch.

What can go wrong: a batch fails, and the query ends. A driver that continued could lose or duplicate rows. End the
process and start it again, or call `deliver` again with the same arguments and start that writer: it takes over from
the failed query, and Spark replays the open batch.

Several queries may run in one process, each with its own sink_id and checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from oncebench.delivery.batch import check_columns, deliverable
from oncebench.delivery.contract import Sink, SinkSettings
from oncebench.delivery.decisions import DROP, REWRITE
from oncebench.delivery.deterministic_plan import refuse_without_shuffle
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.journal import Journal, open_journal
from oncebench.delivery.protocols import choose, native, protocol_of
from oncebench.delivery.quarantine import COLUMN, Quarantine
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.places import Places
from oncebench.delivery.stores.choose import Place, place_at
from oncebench.delivery.topics.check import READ, refuse_unfit, refuse_unfit_quarantine
from oncebench.delivery.topics.settings import LIMIT_S
from oncebench.jobs.batches import Batches
from oncebench.jobs.checkpoint import has_planned, query_id
from oncebench.jobs.inputs.checks import InputChecks, KafkaInput, forget_input, refuse_other_source, refuse_uncompared
from oncebench.jobs.inputs.topic import InputTopic
from oncebench.jobs.object_store import MANAGER, refuse_unfit_manager
from oncebench.jobs.output import OutputChecks, Target
from oncebench.jobs.session import (
    SHUFFLES,
    refuse_shown_secrets,
    refuse_unfit_rows,
    refuse_unfit_settings,
    tasks_per_batch,
)
from oncebench.jobs.sinks import JobSink
from oncebench.jobs.start import identity_of, kafka_must_answer, refuse_access, start_sink
from oncebench.jobs.watch import Watch, watch_of
from oncebench.kafka_repair.admin import admin_client
from oncebench.sinks.registry import find_kind
from oncebench.sinks.sink_ids import refuse_unfit_sink_id

EachBatch = Callable[[DataFrame, int], None]
# Stands for a quarantine in a job that rejects nothing. It never connects.
_REJECTS_NOTHING = Quarantine("", "", {})
# The started sinks of this process, by kind and sink_id, each with its checkpoint.
_started: dict[tuple[str, str], tuple[Place, Sink]] = {}
_starting = Lock()


def deliver(
    rows: DataFrame,
    sink: JobSink,
    *,
    guarantee: str,
    checkpoint: str | Path,
    variant: str | None = None,
    quarantine: Quarantine | None = None,
    on_lost: str = REWRITE,
    accept_gap: str | None = None,
    input: KafkaInput | None = None,
) -> DataStreamWriter:
    """Returns a writer that delivers the rows of a streaming query; call its `start`.

    Args:
        rows: a streaming DataFrame. Its rows must depend on the input alone. Under exactly-once, end it with a shuffle
            by key: `groupBy`, or `rows.repartition(n, "column")` with n at most `spark.sql.shuffle.partitions`.
        sink: where the rows go, see `oncebench.jobs.sinks`.
        guarantee: `at-most-once`, `at-least-once` or `exactly-once`.
        checkpoint: the path of a folder in a local or mounted file system with hard links and fsync; or
            `s3://bucket/folder`, see docs/at_work.md. It belongs to this query alone. `spark.sql.shuffle.partitions`
            must stay the same as long as it exists.
        variant: how the guarantee is kept; None: the sink's default.
        quarantine: where rows whose column `quarantine` is not null are copied, see `oncebench.delivery.quarantine`.
            The query must have that column.
        on_lost: `rewrite`, or `drop` to leave out a decided transaction that its time-out has aborted.
        accept_gap: the text of a loss that a refused start has printed, to go on without what is lost.
        input: the topic that the query reads; a start compares it with the checkpoint. None: no comparison, which is
            refused if an earlier start had an input.

    Raises:
        RefusedStart: a check failed; the next start would meet the same failure.
        NoKafka, NoPostgres, NoStore: a server did not answer; start again if `restart_helps`.
        DeliveryFailed: the disk is full or fails, or the sink's server did not answer; start again.
        AnotherDriver: a newer driver of this checkpoint was started meanwhile.
    """
    watch = watch_of(sink.kind, sink.sink_id)
    with watch.counted_failures():
        return _writer(
            rows, sink, guarantee, place_at(checkpoint), variant, quarantine, on_lost, accept_gap, input, watch
        )


def _writer(
    rows: DataFrame,
    sink: JobSink,
    guarantee: str,
    checkpoint: Place,
    variant: str | None,
    quarantine: Quarantine | None,
    on_lost: str,
    accept_gap: str | None,
    reads: KafkaInput | None,
    watch: Watch,
) -> DataStreamWriter:
    if on_lost not in (REWRITE, DROP):
        raise RefusedStart(f"on_lost is {on_lost!r}, and must be one of: {REWRITE}, {DROP}. Correct this argument.")
    refuse_unfit_rows(rows)
    if not isinstance(checkpoint, Path):
        refuse_unfit_manager(rows.sparkSession.conf.get(MANAGER, "") or "", checkpoint)
    target = _target(sink, guarantee, variant, checkpoint)
    kind, per_task = target.kind, target.kind.commits_per_task(target.support)
    refuse_unfit_settings(rows, per_task, kind.spark)
    refuse_shown_secrets(rows, kind.environment)
    check_columns(rows.schema)
    if COLUMN in rows.columns and quarantine is None:
        raise RefusedStart(
            f"the query has a column {COLUMN!r}, which marks rejected records, and deliver() has no quarantine to copy "
            f"them to. Give quarantine=Quarantine(topic, input topic, client), or drop the column."
        )
    if quarantine is not None and COLUMN not in rows.columns:
        raise RefusedStart(
            f"deliver() has a quarantine, but the query has no column {COLUMN!r}, which marks rejected records. Give "
            "the column this name; or leave out quarantine= if the query rejects nothing."
        )
    tasks = tasks_per_batch(rows)
    if per_task:
        refuse_without_shuffle(rows, tasks, rows.columns[0])
    if reads is not None:
        refuse_other_source(rows, reads.topic)
        refuse_access(reads.client)
        with kafka_must_answer(str(reads.client.get("bootstrap.servers", "")), sink.sink_id):
            refuse_unfit(admin_client(reads.client), {reads.topic: "the input topic"}, LIMIT_S, (READ,))
    settings = SinkSettings(
        output={"output": sink.output},
        sink_id=sink.sink_id,
        partitions=tasks,
        checkpoint=target.checkpoint,
        variant=target.support.variant,
        **sink.more,
    )
    client = settings.kafka or {}
    refuse_access(client)
    with kafka_must_answer(str(client.get("bootstrap.servers", "")), sink.sink_id), ExitStack() as on_failure:
        opened = kind.open(settings)
        on_failure.callback(opened.close)
        opened.check_schema(rows.schema)
        each = deliverable(rows, opened)
        if quarantine is not None:
            _refuse_unfit_quarantine(quarantine, sink.sink_id)
        with _starting, _in_place_of_earlier(opened, target):
            journal = open_journal(target.checkpoint, identity_of(target, tasks), settings.driver)
            gaps = Gaps(journal.folder, accept_gap)
            places = Places(journal.folder)
            checks = OutputChecks(target, journal, gaps, places)
            with _compared(reads, target, journal, gaps, places):
                start_sink(opened, target, journal, checks)
            checks.record(opened)
        on_failure.pop_all()
    batches = Batches(
        protocol_of(kind, target.support), opened, journal, tasks if per_task else None,
        quarantine or _REJECTS_NOTHING, on_lost=on_lost, changed=gaps.changed,
        delivered=(checks.note_batch, watch.note_batch),
    )  # fmt: skip
    opens = kind.transactions.get(target.support.variant)
    watch.open_transactions = None if opens is None else partial(opens, settings)
    writer = each.writeStream.foreachBatch(_guarded(batches, target, tasks, watch))
    return in_checkpoint(writer, target.checkpoint)


def _refuse_unfit_quarantine(quarantine: Quarantine, sink_id: str) -> None:
    """Refuses a quarantine with a login or a topic that cannot be used.

    Its cluster may be another than the sink's.
    """
    refuse_access(quarantine.client)
    with kafka_must_answer(str(quarantine.client.get("bootstrap.servers", "")), sink_id):
        admin = admin_client(quarantine.client)
        if quarantine.source_topic:
            refuse_unfit(admin, {quarantine.source_topic: "the input topic"}, LIMIT_S, (READ,))
        refuse_unfit_quarantine(admin, quarantine.topic, LIMIT_S)


def in_checkpoint(writer: DataStreamWriter, checkpoint: Place) -> DataStreamWriter:
    """Returns a writer with this place as Spark's checkpoint."""
    # With a scheme: Spark takes a plain path for one of its default file system, which may be a cluster's HDFS.
    uri = f"file://{checkpoint.absolute()}" if isinstance(checkpoint, Path) else checkpoint.for_spark
    return writer.option("checkpointLocation", uri)


def _guarded(batches: Batches, target: Target, tasks: int, watch: Watch) -> EachBatch:
    """Refuses batches of another checkpoint, and a session changed since `deliver` was called."""
    checked = False

    def each_batch(rows: DataFrame, number: int) -> None:
        with watch.batch():
            check(rows, number)
            batches(rows, number)

    def check(rows: DataFrame, number: int) -> None:
        nonlocal checked
        # Spark writes `offsets/N` before it runs batch N.
        if not has_planned(target.checkpoint, number):
            raise _another_checkpoint(f"batch {number} is not in {target.checkpoint}/offsets")
        if not checked:  # a query has a copy of the session, made at its start
            query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            # None: with PYSPARK_PIN_THREAD=false this thread has no thread of its own in the JVM.
            if query is not None and query != query_id(target.checkpoint):
                raise _another_checkpoint(f"{target.checkpoint}/metadata has another id than the query")
            refuse_unfit_settings(rows, target.kind.commits_per_task(target.support), target.kind.spark)
            if tasks_per_batch(rows) != tasks:
                raise RefusedStart(
                    f"{SHUFFLES} was {tasks} when deliver() was called, and is {tasks_per_batch(rows)} in the query. "
                    "Set it before deliver(). This batch has written nothing."
                )
            checked = True

    return each_batch


def _another_checkpoint(seen: str) -> RefusedStart:
    return RefusedStart(
        f"{seen}: the query has another checkpoint than its journal. Do not set checkpointLocation on the writer. This "
        "batch has written nothing."
    )


def _target(sink: JobSink, guarantee: str, variant: str | None, checkpoint: Place) -> Target:
    kind = find_kind(sink.kind)
    if kind.missing:
        raise RefusedStart(f"sink {kind.name} cannot be used here: {kind.missing}")
    support = choose(kind, guarantee, variant)
    if protocol_of(kind, support) is native:
        raise RefusedStart("native is Spark's own sink, without a mark of ours. Use rows.writeStream.format(...).")
    refuse_unfit_sink_id(sink.sink_id)
    absolute = checkpoint.absolute() if isinstance(checkpoint, Path) else checkpoint
    return Target(kind, support, sink.sink_id, sink.output, absolute)


@contextmanager
def _compared(reads: KafkaInput | None, target: Target, journal: Journal, gaps: Gaps, places: Places) -> Iterator[None]:
    """Starts a sink inside the context, with an input that was compared before.

    Then records the input's identity. Without an input to compare, no identity stays recorded.

    Raises:
        RefusedStart: the input does not fit the checkpoint, or is not compared any more, and that is not accepted.
        NoKafka: its cluster does not answer.
    """
    if reads is None:
        refuse_uncompared(gaps, places)
        yield
        forget_input(journal.folder, places)
        return
    servers = str(reads.client.get("bootstrap.servers", ""))
    topic = InputTopic(reads.client, reads.topic)
    checks = InputChecks(target.checkpoint, reads.topic, topic, journal.folder, gaps, places)
    with kafka_must_answer(servers, target.sink_id):
        checks.check()
    yield
    with kafka_must_answer(servers, target.sink_id):
        checks.record()


@contextmanager
def _in_place_of_earlier(sink: Sink, target: Target) -> Iterator[None]:
    """Starts a sink inside; then closes the sink of an earlier query with the same checkpoint.

    Raises:
        RefusedStart: the sink_id belongs to another checkpoint.
    """
    key = target.kind.name, target.sink_id
    checkpoint, earlier = _started.get(key, (target.checkpoint, None))
    if checkpoint != target.checkpoint:
        raise RefusedStart(
            f"another query of this process has, or had, sink {target.kind.name} and sink_id {target.sink_id!r}, with "
            f"the checkpoint {checkpoint}. Take that checkpoint, or a sink_id and a checkpoint of this query's own."
        )
    yield
    _started[key] = target.checkpoint, sink
    if earlier is not None:
        with suppress(Exception):  # its query has failed, or fails now: this start has fenced it
            earlier.close()
