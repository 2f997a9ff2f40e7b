"""Sends a partition's rows, counts acknowledgements, names the row that the topic refuses.

Promise: under a guarantee that needs acknowledgements, `flush` raises unless every row was acknowledged. A row that is
too large for the topic raises `PermanentFailure` with the row's key and size, because every replay makes the same row.
At-most-once leaves such a row out and sends the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from oncebench.delivery.contract import TaskView
from oncebench.delivery.errors import DeliveryFailed, RecordTooLarge
from oncebench.delivery.failures.cause import UNKNOWN, failure
from oncebench.delivery.failures.kafka import PURGED, fatal_error, named, of_code
from oncebench.kafka_repair import addresses
from oncebench.sinks.kafka.rows.limits import UNKNOWN as UNKNOWN_LIMITS
from oncebench.sinks.kafka.rows.limits import Limits
from oncebench.sinks.records import records_of

# Java's default partitioner hashes with murmur2: every client then writes a session's rows to the same partition.
COMMON = {"partitioner": "murmur2_random"}
# Longer than a broker's restart, which takes seconds.
FLUSH_LIMIT_S = 120.0
# Enough of a key to find the row again, in one line.
_KEY_SHOWN = 60
# What a producer answers to a wrong call if no error has aborted its transaction, or if it has no transactions.
_NOT_ABORTED = frozenset({KafkaError._STATE, KafkaError._NOT_CONFIGURED, KafkaError._CONFLICT})
# How long a marker may still be on its way in a transaction that was aborted: its call then fails within milliseconds.
MARKER_LIMIT_S = 5.0
PAUSE_S = 0.01


@dataclass(frozen=True)
class Target:
    """The topic that takes a task's rows.

    Attributes:
        topic: its name.
        bootstrap_servers: of its cluster.
        limits: what it takes.
    """

    topic: str
    bootstrap_servers: str
    limits: Limits = UNKNOWN_LIMITS


class Reports:
    """Counts delivery reports, and keeps the first error with its row."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.error: KafkaError | None = None
        self.row = ""
        self.size = 0
        self.has_key = False

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        try:
            if error is None:
                self.acknowledged += 1
            else:
                self.refused(error, message.key(), message.value())
        except SystemError as failed:
            self.client_failed(failed)

    def refused(self, error: KafkaError, key: Any, value: Any) -> None:
        """Keeps the error of a row that was not taken, if it is the first.

        A batch of records is refused as a whole. Rows that are refused only because of others come after these.
        """
        if self.error is None or self.error.code() == KafkaError._INVALID_DIFFERENT_RECORD:
            self.error, self.row, self.size = error, _described(key, value), sum(map(len, _bytes(key, value)))
            self.has_key = key is not None

    def client_failed(self, failed: BaseException | None, client: Any = None) -> None:
        """Keeps the error by which Kafka's client or its transaction has failed. It concerns no row."""
        found = fatal_error(failed, client)
        if found is not None:
            self.error, self.row = found, ""


def _described(key: Any, value: Any) -> str:
    texts = _bytes(key, value)
    shown = texts[0][:_KEY_SHOWN].decode("utf-8", "replace") + ("..." if len(texts[0]) > _KEY_SHOWN else "")
    sizes = [len(each) for each in texts]
    return f"the row with key {shown!r} has {sum(sizes):,} bytes (key {sizes[0]:,}, value {sizes[1]:,})"


def _bytes(*texts: Any) -> list[bytes]:
    return [each.encode() if isinstance(each, str) else each or b"" for each in texts]


def produce_all(
    producer: Producer,
    target: Target,
    rows: Iterator[pa.RecordBatch],
    reports: Reports,
    task: TaskView,
    all_or_none: bool,
) -> int:
    """Hands every row to the client; returns their number.

    Args:
        all_or_none: whether a row that the client refuses fails the task. Otherwise the row is only reported.

    Raises:
        PermanentFailure: the client refuses a row, because it is longer than the topic allows.
        DeliveryFailed: the broker has refused an earlier row of the transaction, see `flush`.
    """
    sent, repair = 0, addresses.Repair(producer, target.bootstrap_servers)
    for batch in rows:
        for key, value, headers in records_of(batch):
            while True:
                try:
                    producer.produce(target.topic, key=key, value=value, headers=headers, on_delivery=reports)
                    break
                except BufferError:  # the queue is full; handling delivery reports makes room
                    producer.poll(0.05)
                    repair.look(reports.acknowledged)
                except KafkaException as error:
                    if error.args[0].code() == KafkaError._STATE:  # the broker has refused an earlier row meanwhile
                        flush(producer, sent + 1, reports, target, task)  # raises the reason
                    if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                        raise
                    reports.refused(error.args[0], key, value)
                    if all_or_none:
                        raise refused(reports, target, task) from None
                    break
            sent += 1
        producer.poll(0)
    return sent


def flush(producer: Producer, sent: int, reports: Reports, target: Target, task: TaskView) -> None:
    """Waits until every row is acknowledged.

    Raises:
        DeliveryFailed: a row was not acknowledged; `PermanentFailure` if it never will be.
    """
    try:
        left = addresses.flush(producer, target.bootstrap_servers, FLUSH_LIMIT_S)
    except (KafkaException, SystemError) as failed:
        reports.client_failed(failed, producer)
        if reports.error is None:
            raise
        raise refused(reports, target, task, sent) from failed
    if reports.error is not None and reports.error.code() in PURGED:
        reports.client_failed(abort_reason(producer), producer)
    if left or reports.error or reports.acknowledged != sent:
        raise refused(reports, target, task, sent, left)


def refused(reports: Reports, target: Target, task: TaskView, sent: int = 0, left: int = 0) -> DeliveryFailed:
    """Returns the error of a task whose rows were not all taken."""
    where = f"batch {task.batch}, partition {task.partition}"
    error = reports.error
    code = KafkaError.NO_ERROR if error is None else error.code()
    if code == KafkaError.INVALID_RECORD and reports.has_key:
        code = KafkaError.INVALID_TIMESTAMP  # the client's code if the broker refuses the time of several records
    cause = UNKNOWN if error is None else of_code(code)
    if cause.permanent and reports.row:
        most = target.limits.record_bytes
        limit = "" if most is None else f" (it takes {most:,} bytes)"
        failed = failure(
            named(cause, target.topic, size=reports.size),
            f"{where}: {reports.row}, and topic {target.topic}{limit} refuses it: {error}",
        )
        too_large = error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        return RecordTooLarge(str(failed)) if too_large else failed
    waited = f" within {FLUSH_LIMIT_S:g} s" if left else ""
    first = "" if error is None else f" (first error: {error})"
    return failure(
        named(cause, target.topic),
        f"{where}: topic {target.topic} acknowledged {reports.acknowledged} of {sent} rows{waited}{first}",
    )


def abort_reason(producer: Producer) -> KafkaException | None:
    """Returns the error that aborted a producer's open transaction; None if no error did.

    A call that is wrong in an open transaction, and changes nothing, gets this error as its answer. While another
    thread still puts the marker into the transaction, the answer is only that it does.
    """
    until = time.monotonic() + MARKER_LIMIT_S
    while True:
        try:
            producer.begin_transaction()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError._CONFLICT and time.monotonic() < until:
                time.sleep(PAUSE_S)
                continue
            return None if code in _NOT_ABORTED else error
        return None
