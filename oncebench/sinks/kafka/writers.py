"""Kafka, the task's side: the writers that run inside Python workers.

Promise: a producer lives as long as its worker process and has a transactional id of its own below the sink_id's
prefix, so that no batch waits for `init_transactions` (half a second in librdkafka). A producer that saw any error is
never used again: its id is left to be fenced, and the next one has a new name; so each id has one producer id and
epoch for all its life.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from oncebench.delivery import digest
from oncebench.delivery.contract import TaskView
from oncebench.delivery.errors import AnotherDriver, DeliveryFailed
from oncebench.sinks.kafka.bounded_call import run_in_thread
from oncebench.sinks.kafka.coordinator import Coordinator
from oncebench.sinks.kafka.markers import member_of, read
from oncebench.sinks.kafka.names import Names
from oncebench.sinks.records import records_of

# Java's default partitioner hashes with murmur2: rows of a session land in the same partition from any client.
COMMON = {"partitioner": "murmur2_random"}
# Longer than a broker's restart (seconds), shorter than an operator's patience.
FLUSH_LIMIT_S = 120.0
# init_transactions, send_offsets and commit on a healthy broker take milliseconds; a restart of the broker, seconds.
TRANSACTION_LIMIT_S = 60.0
# librdkafka 2.14 waits for ever in send_offsets when the group's coordinator has gone away meanwhile, whatever limit it
# is given (its issues 5456, 5511). Milliseconds otherwise; twice what a broker needs to start again after a kill.
MARK_LIMIT_S = 10.0

_log = logging.getLogger(__name__)

# One per worker process, cluster and kind of acknowledgement; processes are reused from batch to batch.
_appenders: dict[tuple[str, bool], Producer] = {}
# By driver: as many as the tasks of one batch that this process was given, one after the other.
_transactional: dict[str, list[_Transactional]] = {}
_group_metadata: dict[str, object] = {}


class _Reports:
    """Counts delivery reports and keeps the first error."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        elif self.error is None:
            self.error = error


def _produce_all(producer: Producer, topic: str, rows: Iterator[pa.RecordBatch], reports: _Reports) -> int:
    sent = 0
    for batch in rows:
        for key, value, headers in records_of(batch):
            while True:
                try:
                    producer.produce(topic, key=key, value=value, headers=headers, on_delivery=reports)
                    break
                except BufferError:  # the queue is full: let reports in, room comes back
                    producer.poll(0.05)
            sent += 1
        producer.poll(0)
    return sent


def _flush(producer: Producer, sent: int, reports: _Reports, must_be_acknowledged: bool) -> None:
    left = producer.flush(FLUSH_LIMIT_S)
    if must_be_acknowledged and (left or reports.error or reports.acknowledged != sent):
        raise DeliveryFailed(
            f"{reports.acknowledged} of {sent} rows were acknowledged within {FLUSH_LIMIT_S:g} s "
            f"(first error: {reports.error}). Look at the broker; a restart of the pipeline writes the batch again."
        )


@dataclass(frozen=True)
class Appender:
    """Writes rows outside of transactions: acks=0 without retries, or acks=all with every report checked."""

    client: Mapping[str, Any]
    topic: str
    acknowledged: bool

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        producer, reports = self._producer(), _Reports()
        try:
            sent = _produce_all(producer, self.topic, rows, reports)
            task.reach("before-prepare")
            started = time.perf_counter()
            _flush(producer, sent, reports, self.acknowledged)
        except BaseException:
            _appenders.pop(self._key, None)
            raise
        if reports.error is not None:
            _appenders.pop(self._key, None)
        prepare = (time.perf_counter() - started) * 1000
        task.reach("after-prepare")
        return {}, {"prepare": prepare}

    def _producer(self) -> Producer:
        settings: dict[str, Any] = {"acks": 0, "retries": 0}
        if self.acknowledged:
            settings = {"acks": "all", "enable.idempotence": True}
        if self._key not in _appenders:
            _appenders[self._key] = Producer({**self.client, **COMMON, **settings})
        return _appenders[self._key]

    @property
    def _key(self) -> tuple[str, bool]:
        return str(self.client["bootstrap.servers"]), self.acknowledged


class _Transactional:
    """A transactional producer of this worker process, and the one transaction it may have open."""

    def __init__(self, client: Mapping[str, Any], names: Names, timeout_ms: int) -> None:
        self.name = names.fresh_id()
        self.open_batch: int | None = None
        self.sound = True
        self._failures = 0
        settings = {"transactional.id": self.name, "transaction.timeout.ms": timeout_ms}
        # By default (`rebootstrap`) a client that has lost all brokers forgets them, but not that one of those was a
        # group's coordinator: it waits for it, beyond any limit, when it sends the next marker.
        settings |= {"metadata.recovery.strategy": "none"}
        # The one place where librdkafka tells of every connection that it loses; some ten lines for each, else none.
        settings |= {"debug": "broker", "logger": self}
        self.producer = Producer({**client, **COMMON, **settings})
        self.producer.init_transactions(TRANSACTION_LIMIT_S)
        with Coordinator({"bootstrap_servers": client["bootstrap.servers"]}) as coordinator:
            described = coordinator.describe([self.name])[self.name]
        self.producer_id, self.epoch = described.producer_id, described.epoch
        newest = read(client, names.generation_group, names.topic)
        if newest is not None and newest.number > names.generation:
            raise AnotherDriver(
                f"generation {newest.number} of {names.sink_id} was started; this worker belongs to generation "
                f"{names.generation} and stops."
            )

    def log(self, level: int, form: str, facility: str, *more: str) -> None:
        """librdkafka's log, as `logging.Logger` would be called. A lost connection is a FAIL; it asks again by itself.

        Its callback for errors hears of connections that could not be made, and of no lost one.
        """
        self._failures += facility == "FAIL"
        if level > logging.DEBUG:
            _log.log(level, form, facility, *more)

    def commit(self) -> None:
        """Commits the open transaction; if the driver has done so, that is a repetition to the broker."""
        self._end(self.producer.commit_transaction)

    def abort(self) -> None:
        """Aborts the open transaction."""
        self._end(self.producer.abort_transaction)

    def _end(self, ask: Callable[[float], None]) -> None:
        """Sends EndTxn. If a connection is lost meanwhile, this producer is `sound` no more and must not go on.

        The first EndTxn could still be on its way, and would end the next transaction (the flaw that KIP-890 mends for
        clients that speak TV2).
        """
        self.producer.poll(0)  # serves `log`
        before = self._failures
        ask(TRANSACTION_LIMIT_S)
        self.open_batch = None
        self.producer.poll(0)
        self.sound = self.sound and self._failures == before


def _metadata(client: Mapping[str, Any], group: str) -> object:
    """What `send_offsets_to_transaction` wants to know of a group; it has no members, only offsets."""
    if group not in _group_metadata:
        consumer = member_of(client, group)
        _group_metadata[group] = consumer.consumer_group_metadata()
        consumer.close()
    return _group_metadata[group]


@dataclass(frozen=True)
class TransactionalWriter:
    """Writes a partition in one transaction with its marker; prepares it, or (`commits`) commits it at once.

    Args:
        client, names, timeout_ms: as in KafkaSink.
        commits: commit in the task (idempotent), or leave the transaction open for the driver (two-phase).
        ended: transactional id -> batch of the last transaction that the driver has committed of it.
        retired: ids that must not be used again.
    """

    client: Mapping[str, Any]
    names: Names
    timeout_ms: int
    commits: bool
    ended: Mapping[str, int]
    retired: frozenset[str]

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        begun = time.monotonic()
        try:
            # A new producer takes half a second; meanwhile the rows are still being computed. The broker hears of the
            # transaction with its first row, for its clock runs from there.
            with ThreadPoolExecutor(1) as beside:
                beginning = beside.submit(self._begun, task.batch)
                first = next(rows, None)
                waited = time.perf_counter()
                transactional = beginning.result()
                waited = (time.perf_counter() - waited) * 1000
            if first is None:
                self._undo_empty(transactional)
                return {}, {}
            begun = time.monotonic()
            return self._write(transactional, task, first, rows, {"begin": waited})
        except (DeliveryFailed, KafkaException, SystemError) as error:
            _transactional.clear()
            raise DeliveryFailed(self._error_text(task, error, time.monotonic() - begun)) from error
        except BaseException:
            _transactional.clear()
            raise

    def _write(
        self,
        transactional: _Transactional,
        task: TaskView,
        first: pa.RecordBatch,
        rows: Iterator[pa.RecordBatch],
        timings: dict[str, float],
    ) -> tuple[dict[str, Any], dict[str, float]]:
        producer, reports = transactional.producer, _Reports()
        # Two-phase: the decision holds rows and digest, so the marker need not wait for them. The coordinators take
        # some milliseconds for it.
        marking = None if self.commits else run_in_thread(lambda: self._mark(producer, task, {}))
        sent = _produce_all(producer, self.names.topic, _chain(first, rows), reports)
        sent_all = time.perf_counter()
        if marking is not None:
            marking.result()
        waited = time.perf_counter() - sent_all  # for what the rows' own time has not hidden of the marker
        task.reach("before-prepare")
        started = time.perf_counter() - waited
        if self.commits:  # nothing else will hold what the replay must be compared with
            counted, summed = task.counted()
            self._mark(producer, task, {"rows": counted, "digest": digest.to_text(summed)})
        marked = time.perf_counter()
        _flush(producer, sent, reports, must_be_acknowledged=True)
        done = time.perf_counter()
        timings |= {"mark": (marked - started) * 1000, "flush": (done - marked) * 1000}
        timings["prepare"] = (done - started) * 1000
        task.reach("after-prepare")
        if self.commits:
            started = time.perf_counter()
            transactional.commit()
            timings["commit"] = (time.perf_counter() - started) * 1000
            return {}, timings
        prepared = {
            "transactional_id": transactional.name,
            "producer_id": transactional.producer_id,
            "epoch": transactional.epoch,
        }
        return prepared, timings

    def _error_text(self, task: TaskView, error: Exception, spent_s: float) -> str:
        words = str(error)
        if not isinstance(error, DeliveryFailed):
            # Kafka's client logs while it fails, and Python then tells of the log's call: the failure is its cause.
            words = (
                f"batch {task.batch}, partition {task.partition}: its transaction failed: {error.__cause__ or error}. "
                "A restart of the pipeline aborts it and writes the batch again."
            )
        if spent_s * 1000 < self.timeout_ms:
            return words
        return (
            f"{words} It had taken {spent_s:.0f} s, and Kafka aborts a transaction after transaction_timeout_ms, here "
            f"{self.timeout_ms}: raise that (the broker allows transaction.max.timeout.ms), or set "
            "max_events_per_batch, for smaller batches."
        )

    def _mark(self, producer: Producer, task: TaskView, note: Mapping[str, Any]) -> None:
        marker = TopicPartition(self.names.topic, 0, task.batch + 1, metadata=json.dumps(note))
        group = _metadata(self.client, self.names.marker_group(task.partition))
        marking = run_in_thread(lambda: producer.send_offsets_to_transaction([marker], group, TRANSACTION_LIMIT_S))
        try:
            marking.result(MARK_LIMIT_S)
        except TimeoutError:
            raise DeliveryFailed(
                f"batch {task.batch}, partition {task.partition}: Kafka's client has not got its marker into the "
                f"transaction within {MARK_LIMIT_S:g} s (was the broker restarted?). A restart of the pipeline aborts "
                "the transaction and writes the batch again."
            ) from None

    def _undo_empty(self, transactional: _Transactional) -> None:
        """Ends a transaction that got no row: there is nothing to decide about, and its marker must not stay."""
        transactional.abort()

    def _begun(self, batch: int) -> _Transactional:
        """A producer that has begun a transaction; nothing of it reaches the broker before a row or a marker does."""
        mine = _transactional.setdefault(self.names.own_prefix, [])
        mine[:] = [each for each in mine if self._may_serve(each, batch)]
        transactional = next((each for each in mine if each.open_batch != batch and self._ready(each)), None)
        if transactional is None:
            transactional = _Transactional(self.client, self.names, self.timeout_ms)
            mine.append(transactional)
        transactional.producer.begin_transaction()
        transactional.open_batch = batch
        return transactional

    def _may_serve(self, transactional: _Transactional, batch: int) -> bool:
        """Whether it may ever be used again: not if it was retired, if a request of it may still be on its way, or if
        its last transaction was not committed by the driver. What is of this batch, of another task that this process
        has done, the driver has yet to commit.
        """
        if transactional.name in self.retired or not transactional.sound:
            return False
        open_batch = transactional.open_batch
        return open_batch in (None, batch) or self.ended.get(transactional.name) == open_batch

    def _ready(self, transactional: _Transactional) -> bool:
        """Ends what the driver has committed, and says whether a transaction may be begun.

        For the producer that one is still open. Under TV1 a second EndTxn with the same outcome is answered NONE and
        lets it begin the next one.
        """
        if transactional.open_batch is not None:
            transactional.commit()
        return transactional.sound


@dataclass(frozen=True)
class WarmUp:
    """Makes a worker's producer before the first batch, so that no batch pays for it."""

    client: Mapping[str, Any]
    names: Names
    timeout_ms: int
    partitions: int
    transactional: bool

    def write(self, _task: TaskView, _rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        if self.transactional and self.names.own_prefix not in _transactional:
            _transactional[self.names.own_prefix] = [_Transactional(self.client, self.names, self.timeout_ms)]
            for partition in range(self.partitions):
                _metadata(self.client, self.names.marker_group(partition))
        return {}, {}


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
