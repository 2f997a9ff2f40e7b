"""A stand-in for Spark: two logs, state that tasks commit, and replays of batches.

It promises what the protocols rely on, and no more:

* Batch N is planned in the offset log, runs, and enters the commit log. A batch that is only in the offset log runs
  again over the same input.
* A task's state is committed when its rows are drained. A batch that lacks a task's state is refused (SPARK-52008), and
  so is an entry that the commit log already holds.
* The operator is the pipeline's own, called as `transformWithState` calls it.

Unlike Spark, tasks run one after the other in the order of their partitions, in the driver's process. Durable state is
an object, not a file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from pipeline.packing import pack
from pipeline.rows import ROW
from pipeline.sessions import Sessions
from proofs.without_jvm import as_columns, deliverable, exploded, rejected_column
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
INPUT = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)

Ends = Mapping[int, int]  # per input partition, the offset behind the last event


class SparkDied(Exception):
    """The query ends: Spark itself refuses to continue."""


@dataclass(frozen=True)
class Held:
    """The state of one key: the operator's value, and when its timer fires (epoch ms)."""

    value: tuple[Any, ...]
    timer_ms: int


State = dict[str, Held]


@dataclass
class Checkpoint:
    """The durable state: both logs, and the committed state of each batch by partition."""

    offsets: dict[int, Ends] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    states: dict[int, dict[int, State]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Frame:
    """A DataFrame as far as the delivery code uses it: a function per partition gives its rows."""

    parts: Sequence[Callable[[], Iterator[pa.RecordBatch]]]
    columns = ROW

    def mapInArrow(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: Any) -> _Frame:
        return _Frame([lambda part=part: task(part()) for part in self.parts])  # type: ignore[misc]

    def persist(self) -> _Frame:
        return _Frame([list(part()).__iter__ for part in self.parts])

    def unpersist(self) -> None:
        """Does nothing: the rows end with the driver."""

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
    """Spark in one attempt of the driver.

    Args:
        checkpoint: the durable state of earlier attempts.
        arrivals: the events of the input topic in the order of their arrival, by batch.
        operator: the stateful operator.
        attempt: number of earlier drivers.
        encode: turns the operator's rows into the rows that the sink's writers take.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        arrivals: Sequence[Sequence[Sent]],
        operator: Sessions,
        attempt: int,
        encode: Callable[[pa.RecordBatch], pa.RecordBatch] = as_columns,
    ) -> None:
        self.encode = encode
        self.checkpoint, self.arrivals, self.operator, self.attempt = checkpoint, arrivals, operator, attempt
        self.used_up: dict[int, set[int]] = {}  # by batch, the partitions whose rows were drained in this attempt

    def plan(self) -> int | None:
        """The next batch, planned in the offset log; an open batch comes first. None: no more input."""
        log = self.checkpoint
        number = max(log.offsets, default=-1)
        if number >= 0 and number not in log.commits:
            return number
        if number + 1 == len(self.arrivals):
            return None
        log.offsets[number + 1] = self.ends_after(number + 1)
        return number + 1

    def ends_after(self, batch: int) -> Ends:
        """The end offsets of all events that arrived up to this batch."""
        ends: dict[int, int] = {}
        for event in (event for arrived in self.arrivals[: batch + 1] for event in arrived):
            ends[event.partition] = max(ends.get(event.partition, 0), event.offset + 1)
        return ends

    def rows(self, number: int) -> _Frame:
        """The batch that the delivery code receives."""
        return _Frame([lambda p=p: map(self._deliverable, self.task(number, p)) for p in range(PARTITIONS)])  # type: ignore[misc]

    def _deliverable(self, made: pa.RecordBatch) -> pa.RecordBatch:
        return deliverable(self.encode(made.select(list(ROW))), rejected_column(made))

    def name(self, number: int) -> int:
        """The batch number that the delivery code receives."""
        return number

    def commit(self, number: int) -> None:
        """Writes the batch into the commit log."""
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
        """One task's rows; its state is committed when all rows are drained."""
        state = self.state_of(number - 1, partition)
        groups: dict[bytes, list[dict[str, Any]]] = {}
        for packed in self.packed(number):
            key = packed["key"] or b""
            if self.shuffled_to(key) == partition:
                groups.setdefault(key, []).append(packed)
        made = _called(self.operator, state, groups, self.planned_ms(number - 1), self.planned_ms(number))
        if made:
            yield pa.RecordBatch.from_pylist([row for each in made for row in exploded(each)], OUTPUT)
        self.checkpoint.states.setdefault(number, {})[partition] = state
        self.used_up.setdefault(number, set()).add(partition)

    def planned_ms(self, number: int) -> int:
        """The time at which a batch was planned: any time that grows with the offsets will do."""
        events = [event for before in range(number + 1) for event in self.input_of(before)]
        return max((event.offset * 5 for event in events), default=0)

    def packed(self, number: int) -> Iterator[dict[str, Any]]:
        """The rows before the shuffle: a task packs the events of each input partition."""
        for source in range(PARTITIONS):
            records = [
                {
                    "key": event.key,
                    "value": event.value,
                    "partition": event.partition,
                    "offset": event.offset,
                }
                for event in self.input_of(number)
                if event.partition == source
            ]
            for batch in pack(iter([pa.RecordBatch.from_pylist(records, INPUT)])):
                yield from batch.to_pylist()

    def state_of(self, number: int, partition: int) -> State:
        """A copy of the state after a batch."""
        if number < 0:
            return {}
        if partition not in self.checkpoint.states.get(number, {}):
            raise SparkDied(f"the state of batch {number}, partition {partition} is missing")
        return dict(self.checkpoint.states[number][partition])

    def shuffled_to(self, key: bytes) -> int:
        """The partition whose task holds the state of this key."""
        return zlib.crc32(key) % PARTITIONS


@dataclass
class _Handle:
    """A StatefulProcessorHandle for one key; also its ValueState and the batch's timer values."""

    state: State
    key: str
    watermark_ms: int
    planned_ms: int

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

    def getCurrentProcessingTimeInMs(self) -> int:
        return self.planned_ms

    def getExpiryTimeInMs(self) -> int:
        return self.state[self.key].timer_ms


def _called(
    operator: Sessions, state: State, groups: dict[bytes, list[Any]], watermark_ms: int, planned_ms: int
) -> list[Any]:
    """Calls the operator for every key with input, then for every expired timer."""
    made: list[Any] = []
    for key, records in groups.items():
        handle = _Handle(state, key.decode(), watermark_ms, planned_ms)
        operator.init(handle)  # type: ignore[arg-type]
        made += operator.handleInputRows((key,), iter(records), handle)
    for name in [name for name, held in state.items() if held.timer_ms <= watermark_ms]:
        handle = _Handle(state, name, watermark_ms, planned_ms)
        operator.init(handle)  # type: ignore[arg-type]
        made += operator.handleExpiredTimer((name.encode(),), handle, handle)
    return made
