"""The code of the Pravega sink that runs in tasks.

It writes a partition as events of one segment.

Promise: `write` returns when the store has acknowledged every event. A transaction then stays open until the driver
ends it.

What can go wrong: Pravega does not acknowledge every row (`DeliveryFailed`), because the lease of the transaction has
ended (`TransactionTooSlow`) or for another reason. A row has no value, or is too large for an event
(`PermanentFailure`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from oncebench.delivery.contract import TaskView
from oncebench.delivery.errors import DeliveryFailed, RecordTooLarge, TransactionTooSlow
from oncebench.delivery.failures.cause import failure, permanent
from oncebench.sinks.records import records_of
from oncebench_pravega.causes import cause_of
from oncebench_pravega.controller import VARIABLE, Controller, ControllerError, Stream, own_segment
from oncebench_pravega.segment_store import EVENT_BYTES, MOVED, Append, SegmentError, SegmentStore, framed

# A restart of a store or of the controller takes some seconds, on a busy machine half a minute.
READY_LIMIT_S = 60.0
# Each try under exactly-once begins a transaction, and the lease ends those that were not used.
READY_PAUSE_S = 1.0
_KEY_SHOWN = 80  # bytes of a row's key in a message
_NO_VALUE = permanent(
    "an event is the value of a row, without its key",
    "Write the key and what its null means into the value, or drop such rows in the query",
)
PRAVEGA_ERRORS = (ControllerError, SegmentError, OSError)

# One per worker process. Spark reuses worker processes for later batches.
_controllers: dict[str, Controller] = {}
_homes: dict[str, tuple[str, int]] = {}
_stores: dict[tuple[str, int], SegmentStore] = {}


def _controller(where: str) -> Controller:
    if where not in _controllers:
        _controllers[where] = Controller(where)
    return _controllers[where]


def _store(controller: Controller, segment: str) -> SegmentStore:
    """Returns a connection to the store of a segment and of its transactions' segments."""
    if segment not in _homes:
        _homes[segment] = controller.home(segment)
    home = _homes[segment]
    if home not in _stores:
        _stores[home] = SegmentStore(*home)
    return _stores[home]


def _drop_stores() -> None:
    """Closes this process's connections to segment stores; the next use looks addresses up."""
    for store in _stores.values():
        store.close()
    _stores.clear()
    _homes.clear()


@dataclass(frozen=True)
class Ready:
    """What a task needs to send its rows.

    Attributes:
        append: an append that the store has accepted.
        transaction: its id; None: there is none.
        begun_s: the `time.perf_counter` just before the transaction began.
    """

    append: Append
    transaction: str | None
    begun_s: float


@dataclass(frozen=True)
class EventWriter:
    """Writes a partition as events of one segment: the stream's own, or an open transaction's.

    Attributes:
        where: the controller's address.
        stream: the stream.
        lease_ms: how long a transaction waits for the driver; None: no transaction.
    """

    where: str
    stream: Stream
    lease_ms: int | None = None

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        first = next(rows, None)
        if first is None:  # without rows there is no transaction and nothing to decide
            task.reach("before-prepare")
            task.reach("after-prepare")
            return {}, {}
        ready: Ready | None = None
        try:
            started = time.perf_counter()
            ready = self._ready(task)
            begin_ms = (time.perf_counter() - started) * 1000
            prepared, timings = self._write(task, ready, first, rows)
            return prepared, {"begin": begin_ms, **timings}
        except BaseException as error:
            _drop_stores()  # late answers would be taken for answers to the next batch
            if not isinstance(error, PRAVEGA_ERRORS):
                raise
            raise self._failed(task, error, 0.0 if ready is None else time.perf_counter() - ready.begun_s) from error

    def _failed(self, task: TaskView, error: Exception, held_s: float) -> DeliveryFailed:
        where = f"Pravega ({self.where}, stream {self.stream})"
        text = f"batch {task.batch}, partition {task.partition}: {where} did not acknowledge every row ({error})"
        cause = cause_of(error)
        # `held_s` begins before the lease, so a transaction that the controller has aborted is never younger.
        if cause.permanent or self.lease_ms is None or held_s * 1000 < self.lease_ms:
            return failure(cause, text)
        return TransactionTooSlow(
            f"{text}. It had taken {held_s:.0f} s, and the controller aborts a transaction after "
            f"transaction_timeout_ms, here {self.lease_ms}: raise it. max_events_per_batch, or maxOffsetsPerTrigger in "
            "a job of your own, makes later batches smaller."
        )

    def _ready(self, task: TaskView) -> Ready:
        """Returns an append that the store has accepted.

        No row was sent yet, so a lost answer costs nothing, and each step is repeated for READY_LIMIT_S. The connection
        may have been cut since the last batch, or the segment may have moved to another store.
        """
        deadline = time.monotonic() + READY_LIMIT_S
        while True:
            try:
                return self._ready_once(task)
            except PRAVEGA_ERRORS as error:
                _drop_stores()
                refused = cause_of(error).permanent or (isinstance(error, SegmentError) and error.kind != MOVED)
                if refused or time.monotonic() > deadline:
                    raise
            time.sleep(READY_PAUSE_S)

    def _ready_once(self, task: TaskView) -> Ready:
        begun_s = time.perf_counter()
        controller = _controller(self.where)
        transaction = None if self.lease_ms is None else controller.begin(self.stream, self.lease_ms)
        segments = controller.segments(self.stream) if transaction is None else transaction.segments
        segment = segments.names[task.partition % len(segments.names)]
        append = _store(controller, own_segment(segment)).set_up(segment, segments.token)
        return Ready(append, None if transaction is None else transaction.id, begun_s)

    def _write(
        self, task: TaskView, ready: Ready, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        def events() -> Iterator[bytes]:
            yield from _events(task, first)
            for batch in others:
                yield from _events(task, batch)
            task.reach("before-prepare")

        started = time.perf_counter()
        ready.append.write(framed(events()))
        prepare_ms = (time.perf_counter() - started) * 1000
        task.reach("after-prepare")
        prepared = {} if ready.transaction is None else {"transaction": ready.transaction}
        return prepared, {"prepare": prepare_ms}


def _events(task: TaskView, rows: pa.RecordBatch) -> Iterator[bytes]:
    """Yields the values of rows.

    A row that cannot become an event ends the job, because no reader would see it.
    """
    for key, value, _ in records_of(rows):
        if value is None:
            raise failure(_NO_VALUE, f"{_named(task, key)} has no value")
        if len(value) > EVENT_BYTES:
            cause = permanent(f"an event has at most {EVENT_BYTES:,} bytes", "Split or reject such rows in the query")
            raise RecordTooLarge(str(failure(cause, f"{_named(task, key)} has {len(value):,} bytes")))
        yield value


def _named(task: TaskView, key: bytes | None) -> str:
    shown = (key or b"")[:_KEY_SHOWN].decode("utf-8", "replace") + ("..." if len(key or b"") > _KEY_SHOWN else "")
    return f"batch {task.batch}, partition {task.partition}: the row with key {shown!r}"


@dataclass(frozen=True)
class WarmUp:
    """Makes a worker's connections before the first batch."""

    where: str
    stream: Stream

    def write(self, _task: TaskView, _rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        try:
            controller = _controller(self.where)
            for segment in controller.segments(self.stream).names:
                _store(controller, segment)
        except PRAVEGA_ERRORS as error:
            cause = cause_of(error)
            if cause.permanent:
                raise failure(
                    cause, f"Pravega ({self.where}, stream {self.stream}) refuses a worker: {error}"
                ) from error
            raise DeliveryFailed(
                f"a worker cannot reach Pravega, but the driver could: {error}. Check from the worker's machine that "
                f"the address in {VARIABLE} can be reached."
            ) from error
        return {}, {}
