"""Kafka writers: the part of the sink that runs in Python workers.

Promise: a producer exists as long as its worker process, so no batch waits for `init_transactions` (half a second in
librdkafka). It has a transactional id of its own, with the sink_id's prefix. A transactional producer that saw any
error is never used again: its id is left to be fenced, and the next producer has a new id. Therefore each
transactional id has one producer id and one epoch.

Under two-phase, the tasks of a batch that one worker runs share its transaction, as the driver commits all of them
after the last task. The price of a batch then depends on the number of workers, and less on that of partitions. It
takes a task's rows for whole, so it needs that Spark runs no task twice (`partition_of_first_attempt`, and
`spark.stage.maxConsecutiveAttempts`).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from kafka.errors import KafkaError as WireError
from kafka.errors import KafkaTimeoutError

from oncebench.delivery import digest
from oncebench.delivery.contract import TaskView
from oncebench.delivery.errors import DeliveryFailed, PermanentFailure, TransactionTooSlow
from oncebench.delivery.failures.cause import failure
from oncebench.delivery.failures.kafka import fatal_error, named, of_error
from oncebench.sinks.kafka.markers import member_of
from oncebench.sinks.kafka.names import Names, generation_of
from oncebench.sinks.kafka.rows.limits import UNKNOWN, Limits
from oncebench.sinks.kafka.rows.marking import Marker, put_marker
from oncebench.sinks.kafka.rows.produce import Reports, Target, abort_reason, flush, produce_all
from oncebench.sinks.kafka.rows.transactional import TRANSACTION_LIMIT_S, TransactionalProducer, run_in_thread

# librdkafka ignores its own limit in send_offsets (its issue 5456). The call takes milliseconds, and goes on when a
# broker comes back, which took 36 s on a busy machine.
MARK_LIMIT_S = 60.0
# How often a wait for a marker looks at its producer.
LOOK_S = 1.0
# A task shares a transaction that has been open for less than this part of its time-out. A batch may last longer than
# the time-out: it then loses its first transactions but not its last ones, and a replay writes only the lost ones.
SHARED_PART = 0.5

_log = logging.getLogger(__name__)

# By driver: the producer of this process, and others that a lost connection has replaced within a batch.
_producers: dict[str, list[TransactionalProducer]] = {}
_group_metadata: dict[str, object] = {}


def _metadata(client: Mapping[str, Any], group: str) -> object:
    """Returns the metadata of a group without members for `send_offsets_to_transaction`."""
    if group not in _group_metadata:
        consumer = member_of(client, group)
        _group_metadata[group] = consumer.consumer_group_metadata()
        consumer.close()
    return _group_metadata[group]


@dataclass(frozen=True)
class TransactionalWriter:
    """Writes a partition and its marker in one transaction, which it prepares or commits.

    Args:
        client: librdkafka settings of the cluster.
        names: of this driver's transactional ids and marker groups, and of the output topic.
        timeout_ms: how long a transaction may stay open after its first row.
        commits: whether the task commits (idempotent) or leaves the transaction open for the driver (two-phase).
        ended: transactional id -> batch of the newest transaction that the driver committed for this id.
        retired: ids that must not be used again.
        limits: of the cluster and the topic.
    """

    client: Mapping[str, Any]
    names: Names
    timeout_ms: int
    commits: bool
    ended: Mapping[str, int]
    retired: frozenset[str]
    limits: Limits = UNKNOWN

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        """See `Writer.write`: writes rows and marker; commits or leaves the transaction open.

        Under two-phase the first result names the open transaction, so that the driver can commit it. Its fields are
        `transactional_id`, `producer_id` and `epoch`. Under idempotent, or without rows, the first result is empty.

        Raises:
            DeliveryFailed: the transaction failed. A replay writes the partition again, unless its marker is committed.
            AnotherDriver, OlderDriver: another driver has published its name, and this worker stops.
        """
        transactional = None
        try:
            transactional, first, waited = self._begin(task, rows)
            if first is None:
                return {}, {}  # without rows there is no decision, and its marker must not stay
            transactional.begin(task.batch)
            return self._write(transactional, task, first, rows, {"begin": waited})
        except (DeliveryFailed, KafkaException, WireError, SystemError) as error:
            _producers.clear()
            raise self._failed(task, error, transactional) from error
        except BaseException:
            _producers.clear()
            raise

    def _write(
        self,
        transactional: TransactionalProducer,
        task: TaskView,
        first: pa.RecordBatch,
        rows: Iterator[pa.RecordBatch],
        timings: dict[str, float],
    ) -> tuple[dict[str, Any], dict[str, float]]:
        producer, reports, target = (
            transactional.producer,
            Reports(),
            Target(self.names.topic, str(self.client["bootstrap.servers"]), self.limits),
        )
        # Two-phase: the decision holds rows and digest, so the marker need not wait for them. The coordinators need
        # some milliseconds for the marker.
        marker = self._marker(task, {})
        marking = None if self.commits else run_in_thread(lambda: self._mark(producer, marker))
        sent = produce_all(producer, target, _chain(first, rows), reports, task, all_or_none=True)
        task.reach("before-prepare")
        started = time.perf_counter()
        if marking is None:  # only the marker can hold what a replay is compared with
            counted, summed = task.counted()
            marker = self._marker(task, {"rows": counted, "digest": digest.to_text(summed)})
            marking = run_in_thread(lambda: self._mark(producer, marker))
        flush(producer, sent, reports, target, task)
        flushed = time.perf_counter()
        self._wait(marking, transactional, task, marker)
        done = time.perf_counter()
        # `mark` is the part of the marker's time that did not overlap with the rows.
        timings |= {"flush": (flushed - started) * 1000, "mark": (done - flushed) * 1000}
        timings["prepare"] = (done - started) * 1000
        task.reach("after-prepare")
        if self.commits:
            started = time.perf_counter()
            transactional.commit()
            timings["commit"] = (time.perf_counter() - started) * 1000
            return {}, timings
        transaction = transactional.transaction
        prepared = {
            "transactional_id": transaction.transactional_id,
            "producer_id": transaction.producer_id,
            "epoch": transaction.epoch,
        }
        return prepared, timings

    def _failed(self, task: TaskView, error: Exception, transactional: TransactionalProducer | None) -> DeliveryFailed:
        if isinstance(error, DeliveryFailed):
            failed = error
        else:
            # Kafka's client logs while it fails, and Python then raises an error from the log call: the failure of
            # Kafka's client is the cause of that error.
            client = None if transactional is None else transactional.producer
            first: Any = fatal_error(error, client) or error.__cause__ or error
            if isinstance(first, KafkaError) and first.code() == KafkaError._STATE and client is not None:
                first = abort_reason(client) or first
            text = f"batch {task.batch}, partition {task.partition}: its transaction failed: {first}"
            cause = named(of_error(first), self.names.topic, self.names.sink_id)
            failed = failure(cause, text, "A restart of the pipeline aborts it and writes the batch again.")
        waited = transactional is not None and transactional.lacks_marker  # a longer time-out would not help
        spent_s = 0.0 if transactional is None else transactional.open_for_s()
        if waited or spent_s * 1000 < self.timeout_ms or isinstance(failed, PermanentFailure):
            return failed
        most = self.limits.transaction_ms
        allowed = "" if most is None else f", here {most}"
        return TransactionTooSlow(
            f"{failed} It had taken {spent_s:.0f} s, and Kafka aborts a transaction after transaction_timeout_ms, here "
            f"{self.timeout_ms}: raise it (the broker allows transaction.max.timeout.ms{allowed}). "
            "max_events_per_batch, or maxOffsetsPerTrigger in a job of your own, makes later batches smaller."
        )

    def _marker(self, task: TaskView, note: Mapping[str, Any]) -> Marker:
        text = json.dumps({**note, "driver": self.names.driver})
        return Marker(self.names.marker_group(task.partition), self.names.topic, task.batch + 1, text)

    def _mark(self, producer: Producer, marker: Marker) -> None:
        place = TopicPartition(marker.topic, 0, marker.offset, metadata=marker.metadata)
        producer.send_offsets_to_transaction([place], _metadata(self.client, marker.group), TRANSACTION_LIMIT_S)

    def _wait(
        self, marking: Future[None], transactional: TransactionalProducer, task: TaskView, marker: Marker
    ) -> None:
        """Waits for the marker, or puts it into the transaction if librdkafka has removed a broker.

        Raises:
            DeliveryFailed: it takes too long.
            KafkaError: (of kafka-python) a coordinator refuses the marker.
        """
        until = time.monotonic() + MARK_LIMIT_S
        while time.monotonic() < until:
            try:
                return marking.result(LOOK_S)
            except TimeoutError:  # of the wait: a future's own errors are Kafka's
                transactional.look()
            if not transactional.sound:
                _log.warning("a broker has left the cluster, and librdkafka may wait for it: %s", marker)
                transactional.waits = True
                with suppress(KafkaTimeoutError):
                    return put_marker(self.client, transactional.transaction, marker, until - time.monotonic())
        transactional.lacks_marker = True
        raise DeliveryFailed(
            f"batch {task.batch}, partition {task.partition}: Kafka's client has not got its marker into the "
            f"transaction within {MARK_LIMIT_S:g} s (was the broker restarted, or the topic deleted?). A restart of "
            "the pipeline aborts the transaction and writes the batch again."
        )

    def _begin(
        self, task: TaskView, rows: Iterator[pa.RecordBatch]
    ) -> tuple[TransactionalProducer, pa.RecordBatch | None, float]:
        """Returns a producer, the first rows, and how long these waited for it (in ms)."""
        if self._sharing(task.batch) is not None:
            first, asked = next(rows, None), time.perf_counter()
            # While rows were computed, the transaction may have become too old.
            transactional = self._sharing(task.batch) or self._producer(task.batch)
            return transactional, first, (time.perf_counter() - asked) * 1000
        # A new producer takes half a second, while the rows are still being computed.
        with ThreadPoolExecutor(1) as pool:
            finding = pool.submit(self._producer, task.batch)
            first = next(rows, None)
            waited = time.perf_counter()
            transactional = finding.result()
            return transactional, first, (time.perf_counter() - waited) * 1000

    def _sharing(self, batch: int) -> TransactionalProducer | None:
        """Returns a producer whose open transaction has rows of this batch, or None."""
        limit_s = self.timeout_ms / 1000 * SHARED_PART
        open_ = (each for each in _producers.get(self.names.own_prefix, ()) if each.open_batch == batch)
        return next((each for each in open_ if each.open_for_s() < limit_s and self._is_usable(each, batch)), None)

    def _producer(self, batch: int) -> TransactionalProducer:
        """Returns a producer without a transaction."""
        if self.names.own_prefix not in _producers:
            _forget_older(self.names)
        mine = _producers.setdefault(self.names.own_prefix, [])
        for each in mine:
            if each.waits and self._is_committed(each):
                each.retire()
        mine[:] = [each for each in mine if self._is_usable(each, batch)]
        transactional = next((each for each in mine if each.open_batch != batch and self._ready(each)), None)
        if transactional is None:
            transactional = TransactionalProducer(self.client, self.names, self.timeout_ms, self.limits.record_bytes)
            mine.append(transactional)
        return transactional

    def _is_usable(self, transactional: TransactionalProducer, batch: int) -> bool:
        """Whether a producer may be used again.

        Not if it is retired or not sound (see `TransactionalProducer`), if the driver did not commit its last
        transaction, or if the brokers may soon forget the id. A transaction of this batch has the rows of an earlier
        task of this process; the driver commits it later, whether this task writes into it or not.
        """
        transactional.look()
        if transactional.name in self.retired or not transactional.sound:
            return False
        if time.monotonic() - transactional.used_at > self.limits.expires_s / 2:
            return False
        return transactional.open_batch == batch or self._is_committed(transactional)

    def _is_committed(self, transactional: TransactionalProducer) -> bool:
        """Whether this worker or the driver has committed its last transaction."""
        return transactional.open_batch in (None, self.ended.get(transactional.name))

    def _ready(self, transactional: TransactionalProducer) -> bool:
        """Ends the transaction that the driver committed; returns whether the next may begin.

        The producer still has that transaction open. Under TV1 the broker answers a second EndTxn with the same outcome
        with NONE, and the producer can begin the next transaction. If the broker has forgotten the id, or does not
        answer, nothing is lost: the transaction is committed, and a new producer takes over.
        """
        if transactional.open_batch is not None:
            try:
                transactional.commit()
            except KafkaException as error:
                transactional.sound = False
                _log.warning("producer %s is not used again: %s", transactional.name, error.args[0])
        return transactional.sound


@dataclass(frozen=True)
class WarmUp:
    """Makes a worker's producer before the first batch, so no batch waits for it."""

    client: Mapping[str, Any]
    names: Names
    timeout_ms: int
    partitions: int
    transactional: bool
    limits: Limits = UNKNOWN

    def write(self, _task: TaskView, _rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        if self.transactional and self.names.own_prefix not in _producers:
            try:
                mine = TransactionalProducer(self.client, self.names, self.timeout_ms, self.limits.record_bytes)
            except (KafkaException, WireError) as error:
                text = f"a worker's producer for topic {self.names.topic} could not begin: {error.args[0]}"
                cause = named(of_error(error), self.names.topic, self.names.sink_id)
                raise failure(cause, text, "No row was written: start again.") from error
            _producers[self.names.own_prefix] = [mine]
            for partition in range(self.partitions):
                _metadata(self.client, self.names.marker_group(partition))
        return {}, {}


def _forget_older(names: Names) -> None:
    """Drops the producers of older drivers of a sink_id, which the newer driver has fenced."""
    for prefix in list(_producers):
        older = generation_of(names.sink_id, prefix)
        if older is not None and older < names.generation:
            del _producers[prefix]


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
