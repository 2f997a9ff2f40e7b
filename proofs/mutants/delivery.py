"""Delivery code with one detail changed: protocols, operator, order of Spark's steps."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from oncebench.delivery.batch import Batch
from oncebench.delivery.contract import Sink
from oncebench.delivery.decisions import commit
from oncebench.delivery.journal import Journal
from oncebench.delivery.protocols import exactly_once_two_phase
from pipeline.sessions import Sessions, finished_session
from proofs.mutants.small_run import QuarantineList
from proofs.mutants.small_spark import PARTITIONS, Spark

# ------------------------------------------------------------------------------------------ protocols


def claimed_late(batch: Batch, sink: Sink, journal: Journal, _on_lost: str) -> None:
    """At-most-once that writes first and claims afterwards."""
    batch.run(sink.acknowledged_writer())
    batch.failpoint("before-decision")
    journal.claim(batch.id)


def not_compared(batch: Batch, sink: Sink, _journal: Journal, _on_lost: str) -> None:
    """Idempotent, but a replay's rows are not compared with those of the first run."""
    done = {partition for partition, mark in sink.marks().items() if mark.batch == batch.id}
    batch.run(sink.idempotent_writer(), only=set(range(PARTITIONS)) - done)


def done_by_number(batch: Batch, sink: Sink, _journal: Journal, _on_lost: str) -> None:
    """Idempotent, but a marker covers all lower batch numbers too, as with Delta's txnVersion."""
    done = {partition for partition, mark in sink.marks().items() if mark.batch >= batch.id}
    batch.run(sink.idempotent_writer(), only=set(range(PARTITIONS)) - done)


def returns_early(batch: Batch, sink: Sink, journal: Journal, on_lost: str) -> None:
    """Two-phase, but a replay of a decided batch commits it without draining the rows."""
    for made in journal.decisions(batch.id):
        commit(batch, sink, {each["partition"]: each["prepared"] for each in made["partitions"] if each["prepared"]})
        return
    exactly_once_two_phase(batch, sink, journal, on_lost)


# ------------------------------------------------------------------------------------------ the operator


class EmitsUnfinishedSessions(Sessions):
    """An unfinished session produces its rows when its timer fires."""

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        _, _, _, ended_at, values = self.session.get()
        for _ in super().handleExpiredTimer(key, timerValues, expiredTimerInfo):
            yield finished_session(key[0].decode(), [max(0, value) for value in values], ended_at)


class UsesTheClock(Sessions):
    """A row contains the time of its production."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in super().handleInputRows(key, rows, timerValues):
            now = {} if row["ended_at"] is None else {"ended_at": time.time_ns()}
            yield Row(**{**row.asDict(), **now})


# ------------------------------------------------------------------------------------------ Spark, and the quarantine


class CommitsFirst(Spark):
    """A batch enters the commit log before the sink holds it."""

    def rows(self, number: int) -> Any:
        self.checkpoint.commits.add(number)
        return super().rows(number)

    def commit(self, number: int) -> None:
        """Does nothing: `rows` has committed the batch."""


class CommitsWhenRead(CommitsFirst):
    """Offsets and state are committed as soon as the input is read."""

    def task(self, number: int, partition: int) -> Iterator[pa.RecordBatch]:
        yield from list(super().task(number, partition))


class RenumbersReplays(Spark):
    """Offsets are stored apart from the rows, and a replay has another batch number."""

    def name(self, number: int) -> int:
        return number + 1000 * self.attempt


class RedistributesRows(Spark):
    """The operator's rows are distributed to the writers differently in each attempt."""

    def task(self, number: int, partition: int) -> Iterator[pa.RecordBatch]:
        for own in range(PARTITIONS):
            for batch in super().task(number, own):
                dealt = [self._dealt_to(key, own) == partition for key in batch.column("session_key").to_pylist()]
                yield batch.filter(pa.array(dealt, pa.bool_()))

    def _dealt_to(self, key: str | None, own: int) -> int:
        return own if key is None else (zlib.crc32(key.encode()) + self.attempt) % PARTITIONS


class BeginsNewCheckpoint(Spark):
    """The second driver has a new checkpoint, so it reads the whole input again."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if self.attempt == 1:
            for part in (self.checkpoint.offsets, self.checkpoint.commits, self.checkpoint.states):
                part.clear()
        if self.attempt:
            self.arrivals = [[event for arrived in self.arrivals for event in arrived]]


class CopiesNothing(QuarantineList):
    """Rejected records are not copied to the quarantine topic."""

    def copy(self, rejected: pa.StructArray) -> None:
        assert pc.all(pc.is_valid(rejected.field("reason"))).as_py()
