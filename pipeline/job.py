"""The job: Kafka -> query -> sink, from start to stop.

Promise: all checks come before anything is read or written. The query ends with an exception that names the next step,
or it stops gently between two batches. A start first checks settings, columns, input and quarantine topic. A refusal by
these checks stops no other driver. Then the start has three steps. The journal takes a new generation, and an older
driver stops. The sink fences that driver's producers and aborts the transactions that they left. The query replays an
open batch.

One exception to the gentle stop: Spark's own streaming sink (`native` without faults) is stopped in the middle of a
batch. Spark cannot stop a query that always has input more gently.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from subprocess import TimeoutExpired

import pyspark
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from oncebench.delivery.batch import Batch, deliverable, warm_up
from oncebench.delivery.contract import Sink, SinkKind
from oncebench.delivery.deterministic_plan import refuse_without_shuffle
from oncebench.delivery.errors import QueryDied, RefusedStart, StoppedGently
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.journal import Journal, open_journal
from oncebench.delivery.protocols import native, protocol_of
from oncebench.delivery.quarantine import Quarantine
from oncebench.delivery.stores.choose import Place
from oncebench.delivery.topics import settings
from oncebench.delivery.topics.check import READ, refuse_unfit, refuse_unfit_quarantine
from oncebench.jobs.batches import Batches, rows_of
from oncebench.jobs.checkpoint import committed_position, has_finished, newest_finished, open_batch
from oncebench.jobs.output import Target
from oncebench.jobs.query import in_checkpoint
from oncebench.jobs.start import identity_of, kafka_must_answer, refuse_access, start_sink
from oncebench.kafka_repair.admin import admin_client
from oncebench.sinks.folder_events import changes_in
from pipeline.config import PipelineConfig
from pipeline.failures import advised, explain
from pipeline.progress import Listener, Monitoring, Progress
from pipeline.rows import KEY, check_query, rows_for
from pipeline.sink import open_sink, target_of
from pipeline.spark.cluster.executors import why_lost
from pipeline.spark.cluster.machines import needed_files
from pipeline.spark.cluster.masters import is_local
from pipeline.spark.cluster.settings import environment_of, for_executors
from pipeline.spark.session import refuse_fixed_settings, refuse_task_retries, session, stop
from pipeline.spark.signals import Stopping
from pipeline.starting.checks import StartChecks
from pipeline.workloads.queries import query_of

# How often the main thread checks whether the query has ended or must stop: a stop begins within a tenth of a second.
POLL_S = 0.05
# For the look at the topics before a start takes anything. It must not delay the report of a local mistake by much.
FIRST_LOOK_S = 3.0
# How often the id of the input topic is compared, by a request of a millisecond. A broker that has just started may not
# know its topics yet, so one look is not enough.
INPUT_CHECK_S = 2.0
INPUT_CHECKS = 2
# How often the commit log is read where the kernel reports no change: as often as a batch may end.
COMMIT_LOG_POLL_S = 0.005


class Job:
    """One run of the pipeline in this process."""

    def __init__(self, config: PipelineConfig, stopping: Stopping | None = None) -> None:
        self.config = config
        self._checks: StartChecks | None = None
        self.stopping = stopping or Stopping()
        self._failure: BaseException | None = None
        self._last_delivered: tuple[int, int | None] = -1, 0  # batch and rows together: another thread reads them
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
        if self.stopping.is_set():
            return
        config = self.config
        refuse_task_retries(config.master)
        refuse_fixed_settings(config.spark)
        refuse_access(config.kafka_client)
        target = target_of(config)
        driver = uuid.uuid4().hex
        with suppress(KafkaException):  # a Kafka that does not answer is reported by the second look
            self._refuse_unfit_topics(FIRST_LOOK_S, {"log_level": 0})
        with kafka_must_answer(config.bootstrap_servers, config.sink_id):
            sink = open_sink(target.kind, config, driver)
        with closing(sink), ExitStack() as opened:
            journal = open_journal(config.checkpoint, identity_of(target, config.partitions), driver)
            checks = self._checks = StartChecks(config, target, journal)
            with kafka_must_answer(config.bootstrap_servers, config.sink_id):
                checks.input.check()
                start_sink(sink, target, journal, checks.output, config.trigger_ms / 1000)
                monitoring = Monitoring(config.kafka_client, config.monitoring_group, config.input_topic)
            try:
                variables = opened.enter_context(self._executors_variables(target.kind, journal))
                spark = session(config, {**target.kind.spark, **for_executors(variables)})
            except (RefusedStart, QueryDied):
                if self.stopping.is_set():  # a service manager's SIGTERM also ends a JVM that is starting
                    return
                raise
            try:
                with kafka_must_answer(config.bootstrap_servers, config.sink_id):
                    self._refuse_unfit_topics(settings.LIMIT_S)
                self._note_start(journal)
                self._warm_up(spark, sink)
                with kafka_must_answer(config.bootstrap_servers, config.sink_id):
                    checks.record(sink, self._progress)
                Listener(self._progress, monitoring, config.input_topic, self._fail).listen(spark)
                self._run_query(spark, target, sink, journal, checks)
            except Exception as failure:
                if self.stopping.cut_a_start:  # the error is of the call that the signal interrupted
                    raise StoppedGently("asked to stop") from None
                cause = why_lost(spark, config.master, explain(failure, journal))
                lost = checks.lost_input() if isinstance(cause, QueryDied) else None
                raise lost or advised(cause, config, journal, sink.hindrance) from None
            finally:
                monitoring.close()
                with suppress(OSError, Py4JError, TimeoutExpired):  # the JVM may have been ended by the same signal
                    stop(spark)

    def _refuse_unfit_topics(self, limit_s: float, more: Mapping[str, int] | None = None) -> None:
        """Refuses topics that this job reads or writes, whatever its sink is.

        `more`: settings of the client.
        """
        admin = admin_client({**self.config.kafka_client, **(more or {})})
        refuse_unfit(admin, {self.config.input_topic: "the input topic"}, limit_s, (READ,))
        if self.config.quarantine_topic:
            refuse_unfit_quarantine(admin, self.config.quarantine_topic, limit_s)

    def _fail(self, failure: BaseException) -> None:
        """Ends the query with this failure; for threads whose errors Spark would only log."""
        self._failure = self._failure or failure

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
            self._progress.write_recovered_batch(*position)

    @contextmanager
    def _executors_variables(self, kind: SinkKind, journal: Journal) -> Iterator[Mapping[str, str]]:
        """Yields the variables of executors on other machines.

        Executors on this machine have the driver's own variables.
        """
        config = self.config
        if is_local(config.master):
            yield {}
            return
        variables = environment_of(kind, os.environ)
        with needed_files(config.checkpoint, journal.generation, config.kafka_client, variables) as needed:
            yield {**variables, **needed}

    def _warm_up(self, spark: SparkSession, sink: Sink) -> None:
        tasks = spark.range(0, self.config.partitions, 1, self.config.partitions)
        warm_up(tasks, sink.warm_up_writer(), self._failpoints, self._quarantine)

    def _run_query(
        self, spark: SparkSession, target: Target, sink: Sink, journal: Journal, checks: StartChecks
    ) -> None:
        """Builds and starts the query, and waits until it ends or must stop."""
        config, kind = self.config, target.kind
        protocol = protocol_of(kind, target.support)
        rows = query_of(config.workload)(spark, config)
        check_query(rows, config.workload)
        per_task = kind.commits_per_task(target.support)
        if per_task:
            refuse_without_shuffle(rows, config.partitions, KEY)
        rows = rows_for(kind.takes, rows)
        by_batch = not sink.always_streams and (protocol is not native or bool(config.faults))
        if protocol is not native:
            rows = deliverable(rows, sink)
        if by_batch:
            batches = Batches(
                protocol, sink, journal, config.partitions if per_task else None, self._quarantine,
                on_lost=config.on_lost, failpoints=self._failpoints, changed=checks.changed,
                delivered=(self._note, checks.output.note_batch),
            )  # fmt: skip
            writer = rows.writeStream.foreachBatch(self._delivered_by(batches))
        elif sink.always_streams:
            writer = sink.stream_with_failpoints(rows, self._failpoints)
        else:
            writer = sink.stream_native(rows)
        writer = in_checkpoint(writer, config.checkpoint)
        query = writer.trigger(processingTime=f"{config.trigger_ms} milliseconds").start()
        self.stopping.start_is_over()
        self._progress.write("running")
        watch_commits = self._watch_streamed if sink.always_streams else self._watch_commit_log
        for watch in (watch_commits, self._watch_input):
            threading.Thread(target=watch, daemon=True).start()
        while query.isActive:
            time.sleep(POLL_S)
            may_stop = self.stopping.is_set() and not (by_batch and query.status["isTriggerActive"])
            if self._failure is not None or may_stop:
                query.stop()
        failure = query.exception()
        if self._failure is not None:
            if not isinstance(self._failure, StoppedGently):
                raise self._failure
        elif failure is not None and not self.stopping.is_set():
            raise failure
        checks.watch_input()
        self._progress.write("stopped", why="asked to stop")

    def _delivered_by(self, batches: Batches) -> Callable[[DataFrame, int], None]:
        def deliver(rows: DataFrame, number: int) -> None:
            try:
                if self.stopping.is_set():
                    raise StoppedGently("asked to stop")
                batches(rows, number)
            except BaseException as failure:  # kept here, because py4j passes on only its text
                self._fail(failure)
                raise

        return deliver

    def _note(self, batch: Batch) -> None:
        self._progress.write_delivered(batch)
        self._last_delivered = batch.id, rows_of(batch)

    def _watch_input(self) -> None:
        """Ends the query soon after the input topic was made again, with other records."""
        found = 0
        while self._checks is not None:
            time.sleep(INPUT_CHECK_S)
            other = self._checks.other_input()
            found = found + 1 if other is not None else 0
            if other is not None and found == INPUT_CHECKS:
                self._fail(other)
            if other is None:
                self._checks.watch_input()

    def _watch_commit_log(self) -> None:
        """Reaches `after-commit-log` as soon as Spark's commit log has the last delivered batch."""
        if not (self.config.faults or self.config.trace):
            return
        checkpoint = self.config.checkpoint
        changes = changes_in(checkpoint / "commits") if isinstance(checkpoint, Path) else None
        passed = -1
        while True:
            batch, rows = self._last_delivered
            if batch > passed and has_finished(checkpoint, batch):
                self._failpoints.reach("after-commit-log", batch, rows)
                passed = batch
            elif changes is None:
                time.sleep(_poll_s(checkpoint))
            else:
                changes.wait(POLL_S)

    def _watch_streamed(self) -> None:
        """Reaches `after-commit-log` for each batch of a streaming sink of Spark.

        No other code sees the calls of such a sink.
        """
        checkpoint = self.config.checkpoint
        passed = newest_finished(checkpoint)
        while True:
            if has_finished(checkpoint, passed + 1):
                passed += 1
                self._failpoints.reach("after-commit-log", passed)
            else:
                time.sleep(_poll_s(checkpoint))


def _poll_s(checkpoint: Place) -> float:
    """Returns the time between two looks at the commit log, in s.

    In an object store each look is a request.
    """
    return COMMIT_LOG_POLL_S if isinstance(checkpoint, Path) else POLL_S
