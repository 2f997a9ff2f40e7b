"""The job: Kafka -> query -> sink, from start to stop.

Promise: checks come before anything is read or written; the query ends with an exception that says what to do, or
gently between two batches. The order of a start is: journal (takes the generation, so that an older driver stops),
sink (fences that driver's producers, aborts what it left), query (replays an open batch).
"""

from __future__ import annotations

import logging
import re
import threading
import time
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import Any, cast

import pyspark
from confluent_kafka import KafkaException
from kafka.errors import KafkaError
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncebench.delivery import errors
from oncebench.delivery.batch import Batch, warm_up
from oncebench.delivery.contract import Sink, Support
from oncebench.delivery.deterministic_plan import refuse_without_shuffle
from oncebench.delivery.errors import AnotherDriver, NoKafka, PipelineError, QueryDied, RefusedStart, StoppedGently
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.journal import Identity, Journal, open_journal
from oncebench.delivery.protocols import as_shipped, choose, protocol_of
from oncebench.delivery.quarantine import Quarantine
from oncebench.sinks.registry import SINKS
from pipeline.config import PipelineConfig
from pipeline.progress import Listener, Monitoring, Progress, begun_at, committed_position, newest_batch, open_batch
from pipeline.query import query as rows_of
from pipeline.rows import ASIDE, KEY, LONG, TYPES
from pipeline.spark.session import refuse_own, refuse_retries, session, stop

# How often the main thread looks whether the query has ended or should: a stop is answered within a tenth of a second.
POLL_S = 0.05
_log = logging.getLogger(__name__)
_TRACEBACK = "Traceback (most recent call last):"
_ERROR = re.compile(r"\s*[A-Za-z_][\w.]*(: |$)")
_SPELT = {LONG: "bigint"}  # as Spark says it of a DataFrame
# How a task's own error looks when Spark hands it on as text.
_TASK_ERROR = re.compile(r"^oncebench\.delivery\.errors\.(\w+): (.+)$", re.MULTILINE)


class Job:
    """One run of the pipeline in this process."""

    def __init__(self, config: PipelineConfig) -> None:
        self.config = config
        self.stopping = threading.Event()
        self._failure: BaseException | None = None
        self._last_delivered: tuple[int, int | None] = -1, 0  # batch and rows together: another thread reads them
        self._rows_before: int | None = None
        self._progress = Progress(config.record / "progress.jsonl", config.progress_whole)
        self._failpoints = Failpoints(
            config.faults,
            config.record / "hits.jsonl",
            config.record / "trace.jsonl" if config.trace else None,
        )
        self._quarantine = Quarantine(config.quarantine_topic, config.input_topic, config.kafka_client)

    def run(self) -> None:
        """Runs until `stopping` is set or something fails.

        Raises:
            PipelineError: see `oncebench.delivery.errors`.
        """
        config = self.config
        refuse_retries(config.master)
        refuse_own(config.spark)
        kind = SINKS.get(config.sink)
        if kind is None:
            raise RefusedStart(f"there is no sink {config.sink!r}; there are: {', '.join(sorted(SINKS))}")
        support = choose(kind, config.guarantee, config.variant)
        identity = Identity(config.sink_id, config.sink, config.guarantee, config.variant, config.partitions)
        journal = open_journal(config.checkpoint, identity)
        try:
            sink = kind.open(config)
            sink.start(support, journal.generation, journal.newest_prepared())
        except (KafkaException, KafkaError) as error:  # of the two clients that a sink uses
            said = error.args[0] if error.args else repr(error)
            raise NoKafka(
                f"Kafka at {config.bootstrap_servers} did not do what a start needs: {said}. Is it running, "
                "and is that its address? No row was read or written; start again."
            ) from error
        except RefusedStart:
            journal.check_still_ours()  # a younger driver overtook this start: that is why, and no fault
            raise
        journal.check_still_ours()  # a slow start may have fenced a younger driver: that one goes on, not this
        self._refuse_older_checkpoint(sink)
        if support.variant != "two-phase" or journal.newest_decision() == open_batch(config.checkpoint):
            self._refuse_forgotten(sink)  # without a decision nothing can be committed
        monitoring = Monitoring(config.kafka_client, config.monitoring_group, config.input_topic)
        spark = session(config, kind.spark)
        try:
            self._note_start(journal)
            self._warm(spark, sink)
            spark.streams.addListener(Listener(self._progress, monitoring, config.input_topic))
            self._follow(spark, sink, support, journal)
        except Exception as failure:
            raise in_plain_words(failure, journal) from None
        finally:
            monitoring.close()
            sink.close()
            with suppress(OSError, Py4JError, TimeoutExpired):  # the JVM may have been ended by the same signal
                stop(spark)

    def _refuse_older_checkpoint(self, sink: Sink) -> None:
        marked = max((mark.batch for mark in sink.marks().values()), default=-1)
        newest = newest_batch(self.config.checkpoint)
        if marked > (-1 if newest is None else newest):
            raise RefusedStart(
                f"the sink holds batch {marked} of sink_id {self.config.sink_id!r}, but the checkpoint "
                f"{self.config.checkpoint} knows nothing after batch {newest}: it is new, older, or another's. "
                "Restore the right checkpoint, or take a new sink_id (rows would then be written again)."
            )

    def _refuse_forgotten(self, sink: Sink) -> None:
        batch, checkpoint, limit = open_batch(self.config.checkpoint), self.config.checkpoint, sink.forgets_after_s()
        begun = None if batch is None else begun_at(checkpoint, batch)
        if begun is None or limit is None or time.time() - begun <= limit:
            return
        raise RefusedStart(
            f"batch {batch} was begun {(time.time() - begun) / 3600:.0f} h ago and is open, and the sink knows for "
            f"{limit / 3600:.0f} h only what it holds of a batch (Kafka: offsets.retention.minutes): a replay could "
            f"write it twice. Look whether its rows are in the output (its input ends at {checkpoint}/offsets/{batch}, "
            "and begins where the file before it ends). If they are not, set offsets.retention.minutes to more than "
            "that on the brokers, and start again; if they are, take a new checkpoint, sink_id and output."
        )

    def _note_start(self, journal: Journal) -> None:
        self._progress.write(
            "started",
            generation=journal.generation,
            sink_id=self.config.sink_id,
            open_batch=open_batch(self.config.checkpoint),
            versions={"spark": pyspark.__version__},
        )
        position = committed_position(self.config.checkpoint, self.config.input_topic)
        if position is not None:  # a kill may have come between the commit log and its progress line
            batch, ends = position
            self._progress.write(
                "batch",
                batch=batch,
                start_offsets={},
                end_offsets=ends,
                input_rows=0,
                duration_ms={},
                state=[],
                event_time={},
                recovered=True,
            )

    def _warm(self, spark: SparkSession, sink: Sink) -> None:
        tasks = spark.range(0, self.config.partitions, 1, self.config.partitions)
        warm_up(tasks, sink.warm(), self._failpoints, self._quarantine)

    def _follow(self, spark: SparkSession, sink: Sink, support: Support, journal: Journal) -> None:
        config = self.config
        protocol = protocol_of(SINKS[config.sink], support)
        rows = fitted(rows_of(spark, config))
        if SINKS[config.sink].by_task(support):
            refuse_without_shuffle(rows, config.partitions, KEY)
        if protocol is as_shipped and not config.faults:
            writer = sink.stream_as_shipped(rows)
        else:
            writer = rows.writeStream.foreachBatch(self._deliverer(protocol, sink, journal))
        # With its scheme: Spark takes a plain path for one of its default file system, which may be a cluster's HDFS.
        writer = writer.option("checkpointLocation", f"file://{config.checkpoint.absolute()}")
        query = writer.trigger(processingTime=f"{config.trigger_ms} milliseconds").start()
        self._progress.write("running")
        threading.Thread(target=self._watch_commit_log, daemon=True).start()
        while query.isActive:
            time.sleep(POLL_S)
            if self.stopping.is_set() and (protocol is as_shipped or not query.status["isTriggerActive"]):
                query.stop()
        failure = query.exception()
        if self._failure is not None:
            if not isinstance(self._failure, StoppedGently):
                raise self._failure
        elif failure is not None and not self.stopping.is_set():
            raise failure
        self._progress.write("stopped", why="asked to stop")

    def _deliverer(self, protocol: Any, sink: Sink, journal: Journal) -> Any:
        def deliver(rows: DataFrame, number: int) -> None:
            batch = Batch(rows, number, self.config.partitions, self._failpoints, self._quarantine, self._rows_before)
            try:
                if self.stopping.is_set():
                    raise StoppedGently("asked to stop")
                journal.check_still_ours()
                batch.at("batch-start")
                started = time.perf_counter()
                protocol(batch, sink, journal, self.config.on_lost)
                batch.timings_ms["total"] = (time.perf_counter() - started) * 1000
                batch.at("after-commit")
                self._note(batch)
                journal.prune(number)
            except BaseException as failure:  # kept as it is: on the other side of py4j only its text is left
                self._failure = failure
                raise

        return deliver

    def _note(self, batch: Batch) -> None:
        aside: dict[str, int] = {}
        for result in batch.results:
            for reason, count in result.quarantined.items():
                aside[reason] = aside.get(reason, 0) + count
        self._progress.write(
            "sink",
            batch=batch.id,
            rows=sum(result.rows for result in batch.results),
            drained=batch.drained,
            dropped=batch.dropped,
            quarantined=aside,
            timings_ms={step: round(spent, 3) for step, spent in batch.timings_ms.items()},
        )
        self._rows_before = sum(result.rows for result in batch.results) if batch.results else None
        self._last_delivered = batch.id, self._rows_before

    def _watch_commit_log(self) -> None:
        """Passes `after-commit-log` as soon as Spark's commit log has the batch that was delivered last."""
        if not (self.config.faults or self.config.trace):
            return  # nobody asks
        passed = -1
        while True:
            batch, rows = self._last_delivered
            if batch > passed and (self.config.checkpoint / "commits" / str(batch)).exists():
                self._failpoints.passing("after-commit-log", batch, rows)
                passed = batch
            time.sleep(0.0005)


def in_plain_words(failure: BaseException, journal: Journal) -> PipelineError:
    """What a failure really is: another driver's work before all else, then what a task said, else its first cause.

    To be asked while the JVM lives, which holds the words.
    """
    if isinstance(failure, PipelineError):
        return failure
    try:
        journal.check_still_ours()
    except AnotherDriver as other:
        return other
    said = _TASK_ERROR.findall(str(failure))
    if said:
        name, words = said[-1]
        kind = getattr(errors, name, PipelineError)
        return cast(PipelineError, kind(words))
    with suppress(Py4JError, OSError):
        _log.error("the query died:\n%s", failure)
    return QueryDied(
        f"{_first_cause(failure)}. What was not committed is run again by a restart, once that is mended; the whole "
        "story is in the log."
    )


def fitted(rows: DataFrame) -> DataFrame:
    """The query's rows, with empty columns where it sets nothing aside.

    Raises:
        RefusedStart: a column of `pipeline.rows` is missing, or of another type.
    """
    given = dict(rows.dtypes)
    for name, kind in TYPES.items():
        if given.get(name) != (_SPELT.get(kind, kind)):
            raise RefusedStart(
                f"the query in pipeline/query.py gives column {name!r} as {given.get(name, 'nothing at all')}, and "
                f"pipeline/rows.py says {kind}. Cast it there, or name your own columns in rows.py."
            )
    aside = {name: kind for name, kind in given.items() if name.lower() in ASIDE}
    wanted = {name: _SPELT.get(kind, kind) for name, kind in ASIDE.items()}
    if aside and aside != wanted:
        raise RefusedStart(
            f"the query in pipeline/query.py gives {aside} for what it sets aside; it must be all of {wanted}, or none"
        )
    return rows if aside else rows.withColumns({name: f.lit(None).cast(kind) for name, kind in wanted.items()})


def _first_cause(failure: BaseException) -> str:
    """Java's innermost exception, or what Python says: of a traceback the last line, which has the error."""
    try:
        cause = getattr(failure, "java_exception", None)
        while cause is not None and cause.getCause() is not None:
            cause = cause.getCause()
        lines = str(failure if cause is None else cause.toString()).splitlines()
    except (Py4JError, OSError):  # the JVM has died, and the words with it
        lines = []
    if any(_TRACEBACK in line for line in lines):
        lines = [line for line in lines if _ERROR.match(line)][-1:]  # its words may go on in further lines
    told = "".join(lines[:1])
    return told.strip().rstrip(".") or type(failure).__name__
