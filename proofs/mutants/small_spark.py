"""Spark's part of a pipeline in some lines of Python: two logs, state that is committed by tasks, batches run again.

What is promised is what the protocols rely on and no more. Batch N is planned in the offset log, runs, and is put into
the commit log; one that is in the first alone runs again, over the same input. A task's state is committed when its
rows have been used up; a batch of which a task's state is missing is refused (SPARK-52008), and so is an entry of the
commit log that is there already. The operator is the pipeline's own, called as `transformWithState` calls it.

What is not like Spark: tasks run one after the other, in the order of their partitions, in the driver's process; what
outlives a driver is an object, and no file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from pipeline.rows import ROW
from pipeline.sessions import FIELDS, Sessions
from proofs.without_jvm import as_columns, deliverable, rejected_column
from tests.unit.audit.audit_world import Sent

PARTITIONS = 2
OUTPUT = pa.schema(
    [
        *(("session_key", pa.string()), ("j", pa.int32()), ("events", pa.int32())),
        *((name, pa.int64()) for name in ("total", "checksum", "ended_at")),
        *(("reason", pa.string()), ("source_partition", pa.int32()), ("source_offset", pa.int64())),
        *((name, pa.binary()) for name in ("key", "value")),
    ]
)
assert tuple(OUTPUT.names) == FIELDS

Ends = Mapping[int, int]  # per input partition, the offset behind the last event


class SparkDied(Exception):
    """The query ends: Spark itself refuses to go on."""


@dataclass(frozen=True)
class Held:
    """What one key keeps: the operator's value, and when its timer fires (epoch ms)."""

    value: tuple[Any, ...]
    timer_ms: int


State = dict[str, Held]


@dataclass
class Checkpoint:
    """What outlives a driver: both logs, and the state of each batch by the partitions that have committed it."""

    offsets: dict[int, Ends] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    states: dict[int, dict[int, State]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Frame:
    """What the delivery code uses of a DataFrame: one function per partition that gives its rows."""

    parts: Sequence[Callable[[], Iterator[pa.RecordBatch]]]

    def mapInArrow(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: Any) -> _Frame:
        return _Frame([lambda part=part: task(part()) for part in self.parts])  # type: ignore[misc]

    def persist(self) -> _Frame:
        return _Frame([list(part()).__iter__ for part in self.parts])

    def unpersist(self) -> None:
        """It goes with the driver."""

    def collect(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for number, part in enumerate(self.parts):
            before = TaskContext.get()
            TaskContext._setTaskContext(_Context(number))  # type: ignore[arg-type]
            try:
                found += [tuple(row.values()) for batch in part() for row in batch.to_pylist()]
            finally:
                TaskContext._setTaskContext(before)
        return found


@dataclass(frozen=True)
class _Context:
    number: int

    def partitionId(self) -> int:
        return self.number

    def attemptNumber(self) -> int:
        return 0


class Spark:
    """Spark in one life of the driver.

    Args:
        checkpoint: what older lives have left.
        arrivals: the events of the input topic in the order of their arrival, by batch.
        operator: the stateful operator.
        life: how many drivers there were before this one.
        encode: what the sink's writers take of a row.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        arrivals: Sequence[Sequence[Sent]],
        operator: Sessions,
        life: int,
        encode: Callable[[pa.RecordBatch], pa.RecordBatch] = as_columns,
    ) -> None:
        self.encode = encode
        self.checkpoint, self.arrivals, self.operator, self.life = checkpoint, arrivals, operator, life
        self.used_up: dict[int, set[int]] = {}  # by batch, the partitions whose rows were used up in this life

    def plan(self) -> int | None:
        """The next batch, planned in the offset log; the open one first. None: there is no more input."""
        log = self.checkpoint
        number = max(log.offsets, default=-1)
        if number >= 0 and number not in log.commits:
            return number
        if number + 1 == len(self.arrivals):
            return None
        log.offsets[number + 1] = self.ends_after(number + 1)
        return number + 1

    def ends_after(self, batch: int) -> Ends:
        """The offsets behind everything that has arrived by this batch."""
        ends: dict[int, int] = {}
        for event in (event for arrived in self.arrivals[: batch + 1] for event in arrived):
            ends[event.partition] = max(ends.get(event.partition, 0), event.offset + 1)
        return ends

    def rows(self, number: int) -> _Frame:
        """The batch as the delivery code is given it."""
        return _Frame([lambda p=p: map(self._deliverable, self.task(number, p)) for p in range(PARTITIONS)])  # type: ignore[misc]

    def _deliverable(self, made: pa.RecordBatch) -> pa.RecordBatch:
        return deliverable(self.encode(made.select(list(ROW))), rejected_column(made))

    def name(self, number: int) -> int:
        """What the delivery code is told that the batch is called."""
        return number

    def commit(self, number: int) -> None:
        """Puts the batch into the commit log."""
        missing = set(range(PARTITIONS)) - self.used_up.get(number, set())
        if missing:
            raise SparkDied(f"batch {number}: the state of partitions {missing} was not committed")
        if number in self.checkpoint.commits:
            raise SparkDied(f"batch {number} is in the commit log already")
        self.checkpoint.commits.add(number)

    def input_of(self, number: int) -> list[Sent]:
        """The events of a planned batch."""
        log = self.checkpoint.offsets
        starts, ends = log.get(number - 1, {}), log[number]
        events = [event for arrived in self.arrivals for event in arrived]
        return [each for each in events if starts.get(each.partition, 0) <= each.offset < ends.get(each.partition, 0)]

    def task(self, number: int, partition: int) -> Iterator[pa.RecordBatch]:
        """One task's rows; its state is committed once they have all been taken."""
        state = self.state_of(number - 1, partition)
        groups: dict[bytes, list[dict[str, Any]]] = {}
        for event in self.input_of(number):
            key = event.key or b""
            if self.shuffled_to(key) == partition:
                record = {"partition": event.partition, "offset": event.offset, "event_ms": event_ms(event)}
                groups.setdefault(key, []).append({"key": key, "value": event.value, **record})
        seen = [event_ms(event) for before in range(number) for event in self.input_of(before)]
        made = _called(self.operator, state, groups, max(seen, default=0))
        if made:
            columns = zip(*made, strict=True)
            yield pa.RecordBatch.from_pydict(dict(zip(FIELDS, map(list, columns), strict=True)), OUTPUT)
        self.checkpoint.states.setdefault(number, {})[partition] = state
        self.used_up.setdefault(number, set()).add(partition)

    def state_of(self, number: int, partition: int) -> State:
        """A copy of the state that a batch has left."""
        if number < 0:
            return {}
        if partition not in self.checkpoint.states.get(number, {}):
            raise SparkDied(f"the state of batch {number}, partition {partition} is not there")
        return dict(self.checkpoint.states[number][partition])

    def shuffled_to(self, key: bytes) -> int:
        """The partition whose task has the state of this key."""
        return zlib.crc32(key) % PARTITIONS


def event_ms(event: Sent) -> int:
    """When Kafka took the event: any time that grows with its place in the input will do."""
    return event.offset * 5


@dataclass
class _Handle:
    """A StatefulProcessorHandle over one key of `state`; also its one value, and the batch's timer values."""

    state: State
    key: str
    watermark_ms: int

    def getValueState(self, _name: str, _schema: str) -> _Handle:
        return self

    def get(self) -> tuple[Any, ...] | None:
        return self.state[self.key].value if self.key in self.state else None

    def update(self, value: tuple[Any, ...]) -> None:
        timer_ms = self.state[self.key].timer_ms if self.key in self.state else self.registered_ms
        self.state[self.key] = Held(value, timer_ms)

    def clear(self) -> None:
        del self.state[self.key]

    registered_ms = 0

    def registerTimer(self, at_ms: int) -> None:
        self.registered_ms = at_ms
        if self.key in self.state:
            self.state[self.key] = Held(self.state[self.key].value, at_ms)

    def getCurrentWatermarkInMs(self) -> int:
        return self.watermark_ms

    def getExpiryTimeInMs(self) -> int:
        return self.state[self.key].timer_ms


def _called(operator: Sessions, state: State, groups: dict[bytes, list[Any]], watermark_ms: int) -> list[Any]:
    """Calls the operator for every key with input, then for every timer behind the watermark."""
    made: list[Any] = []
    for key, records in groups.items():
        handle = _Handle(state, key.decode(), watermark_ms)
        operator.init(handle)  # type: ignore[arg-type]
        made += operator.handleInputRows((key,), iter(records), handle)
    for name in [name for name, held in state.items() if held.timer_ms <= watermark_ms]:
        handle = _Handle(state, name, watermark_ms)
        operator.init(handle)  # type: ignore[arg-type]
        made += operator.handleExpiredTimer((name.encode(),), handle, handle)
    return made
