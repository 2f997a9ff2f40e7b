"""A batch that is run again is compared with its first run.

The comparison comes before a row is written in place of another. The frame is as much of Spark as a batch asks of it;
that Spark keeps the rest is for the contract tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from oncebench.delivery.batch import Batch
from oncebench.delivery.contract import WHOLE_BATCH, Mark, Sink
from oncebench.delivery.digest import HASH, digest
from oncebench.delivery.errors import DeliveryFailed, NondeterministicReplay, OlderDriver
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.journal import Identity, open_journal
from oncebench.delivery.protocols import exactly_once_idempotent
from oncebench.delivery.quarantine import Quarantine
from oncebench.jobs.batches import Batches
from pipeline.rows import SCHEMA
from proofs.without_jvm import deliverable

KEYS = {0: "a", 1: "b", 2: "c"}  # the one row of each partition


class Gone(list[int]):
    """What a Spark that has ended keeps."""

    def pop(self, *_: Any) -> int:
        raise ConnectionError("the JVM has ended")


def row(key: str) -> pa.RecordBatch:
    numbers = {name: pa.array([1], pa.int64()) for name in ("events", "total", "checksum", "ended_at")}
    columns = {"session_key": pa.array([key]), "j": pa.array([1], pa.int32()), **numbers}
    return deliverable(pa.record_batch(columns))


def mark(key: str) -> Mark:
    return Mark(7, 1, digest(row(key).column(HASH)))


@dataclass(frozen=True)
class Frame:
    """The rows of a batch by partition.

    The frame counts how often they were made, and how often Spark keeps them.
    """

    parts: Sequence[Sequence[str]]
    made: list[int]
    kept: bool = False
    held: list[int] = field(default_factory=list)
    columns = ("session_key",)

    def mapInArrow(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: Any) -> Frame:
        if not self.kept:
            self.made.append(1)
        found = [self._run(task, number, keys) for number, keys in enumerate(self.parts)]
        return Frame(found, self.made)

    def _run(self, task: Any, number: int, keys: Sequence[str]) -> list[str]:
        before = TaskContext.get()
        TaskContext._setTaskContext(At(number))  # type: ignore[arg-type]
        try:
            return [each["result"] for made in task(iter([row(key) for key in keys])) for each in made.to_pylist()]
        finally:
            TaskContext._setTaskContext(before)

    def persist(self) -> Frame:
        self.made.append(1)
        self.held.append(1)
        return Frame(self.parts, self.made, kept=True, held=self.held)

    def unpersist(self) -> None:
        self.held.pop()

    def collect(self) -> list[tuple[str]]:
        return [(each,) for found in self.parts for each in found]


@dataclass(frozen=True)
class At:
    """Where a task runs."""

    number: int

    def partitionId(self) -> int:
        return self.number

    def attemptNumber(self) -> int:
        return 0


@dataclass
class Marked(Sink):
    """A sink that has these marks."""

    found: Mapping[int, Mark]
    partitions: int = len(KEYS)
    written: list[int] = field(default_factory=list)

    def marks(self) -> Mapping[int, Mark]:
        return self.found

    def idempotent_writer(self) -> Marked:
        return self

    def write(self, task: Any, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        self.written.append(task.partition)
        for _ in rows:
            pass
        return {}, {}


def replayed(sink: Marked, *parts: str) -> list[int]:
    """Runs the batch with these rows in its partitions; returns how often they were made."""
    frame = Frame([list(part) for part in parts], [])
    batch = Batch(frame, 7, 3, Failpoints((), Path("/dev/null"), None), Quarantine("bad", "in", {}))  # type: ignore[arg-type]
    exactly_once_idempotent(batch, sink, None, "rewrite")  # type: ignore[arg-type]
    return frame.made


def test_a_replay_writes_the_partitions_that_are_missing_and_makes_its_rows_once() -> None:
    sink = Marked({1: mark("b"), 0: Mark(6, 1, 1)})
    assert replayed(sink, "a", "b", "c") == [1]
    assert sink.written == [0, 2]


@pytest.mark.parametrize("found", [{p: mark(key) for p, key in KEYS.items()}, {}], ids=["all there", "none there"])
def test_a_batch_that_is_all_there_or_new_is_run_once_and_not_kept(found: Mapping[int, Mark]) -> None:
    sink = Marked(found)
    assert replayed(sink, "a", "b", "c") == [1]
    assert sink.written == ([] if found else [0, 1, 2])


@pytest.mark.parametrize("parts", [("b", "a", "c"), ("a",), ("a", "", "c")], ids=["moved", "no such task", "empty"])
def test_a_replay_that_makes_not_what_is_marked_as_done_writes_no_partition(parts: Sequence[str]) -> None:
    sink = Marked({1: mark("b")})
    with pytest.raises(NondeterministicReplay, match=r"partition 1: the replay made .* the replay has written nothing"):
        replayed(sink, *parts)
    assert sink.written == []


class Full(Marked):
    """A sink that takes no row."""

    def write(self, task: Any, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        raise DeliveryFailed(f"partition {task.partition} is not written")


class Unready(Marked):
    """A sink that makes no writer."""

    def idempotent_writer(self) -> Marked:
        raise DeliveryFailed("there is no writer")


@pytest.mark.parametrize(
    ("sink", "fails"),
    [
        (Marked({1: mark("b")}), None),
        (Marked({1: mark("other")}), NondeterministicReplay),
        (Full({1: mark("b")}), DeliveryFailed),
        (Unready({1: mark("b")}), DeliveryFailed),
    ],
    ids=["written", "other rows", "not written", "no writer"],
)
def test_kept_rows_are_released(tmp_path: Path, sink: Any, fails: type[Exception] | None) -> None:
    frame = Frame([list("a"), list("b"), list("c")], [])
    journal = open_journal(tmp_path, Identity("s", "sqlite", "exactly-once", "idempotent", 3))
    deliver = Batches(exactly_once_idempotent, sink, journal, 3, Quarantine("bad", "in", {}))
    with nullcontext() if fails is None else pytest.raises(fails):
        deliver(frame, 7)  # type: ignore[arg-type]
    assert (frame.made, frame.held) == ([1], [])


def test_rows_that_cannot_be_released_hide_no_failure(tmp_path: Path) -> None:
    frame = Frame([list("a"), list("b"), list("c")], [], held=Gone())
    journal = open_journal(tmp_path, Identity("s", "sqlite", "exactly-once", "idempotent", 3))
    deliver = Batches(exactly_once_idempotent, Full({1: mark("b")}), journal, 3, Quarantine("bad", "in", {}))  # type: ignore[arg-type]
    with pytest.raises(DeliveryFailed, match="partition 0 is not written"):
        deliver(frame, 7)  # type: ignore[arg-type]


def test_a_mark_of_all_of_it_is_compared_with_all_of_it() -> None:
    assert replayed(Marked({WHOLE_BATCH: mark("b")}), "", "b", "") == [1]
    with pytest.raises(NondeterministicReplay, match="the whole batch"):
        replayed(Marked({WHOLE_BATCH: mark("b")}), "a", "b", "")


class Sums:
    """As much of an accumulator as a batch asks of it."""

    def __init__(self, value: list[Any], _param: Any) -> None:
        self.value = value

    def add(self, more: list[Any]) -> None:
        self.value += more


class Handed:
    """The rows of a batch that a writer of Spark's takes.

    `task` is the task that the rows pass on their way.
    """

    def __init__(self, task: Any = None) -> None:
        self.task, self.schema, self.columns = task, SCHEMA, SCHEMA.names
        self.sparkSession = SimpleNamespace(sparkContext=Context())

    def mapInArrow(self, task: Any, _schema: Any) -> Handed:
        return Handed(task)


class Context:
    accumulator = Sums


def test_what_a_writer_of_sparks_takes_after_the_last_row_is_the_batchs_commit() -> None:
    times: list[float] = []

    class Slow:
        def write_batch(self, rows: Any, _batch: int) -> dict[str, float]:
            time.sleep(0.02)  # other rows
            times.append(time.time())
            assert len(list(rows.task(iter([row("a")])))) == 1
            times.append(time.time())
            time.sleep(0.02)  # the commit
            times.append(time.time())
            return {}

    frame: Any = Handed()
    batch = Batch(frame, 7, 1, Failpoints((), Path("/dev/null"), None), Quarantine("bad", "in", {}))
    batch.run(Slow())
    before_last, after_last, committed, end = *times, time.time()
    assert (committed - after_last) * 1000 <= batch.timings_ms["commit"] <= (end - before_last) * 1000


@pytest.mark.parametrize("partitions", [2, 0])
def test_a_batch_that_no_task_has_run_is_in_the_sink_already(partitions: int) -> None:
    class Skips:
        def write_batch(self, _rows: Any, _batch: int) -> dict[str, float]:
            return {}

    frame: Any = Handed()
    frame.rdd = SimpleNamespace(getNumPartitions=lambda: partitions)
    batch = Batch(frame, 7, 1, Failpoints((), Path("/dev/null"), None), Quarantine("bad", "in", {}))
    if partitions == 0:  # a query without new input
        assert batch.run(Skips()) == []
        return
    with pytest.raises(OlderDriver, match="batch 7: another driver has written this batch"):
        batch.run(Skips())


@pytest.mark.parametrize("wanted", [{"only": {0}}, {"expected": {0: (1, 1)}}], ids=["only", "expected"])
def test_a_batch_writer_is_not_asked_for_what_it_cannot_do(wanted: dict[str, Any]) -> None:
    class Whole:
        def write_batch(self, rows: Any, _batch: int) -> dict[str, float]:
            pytest.fail(f"wrote {rows}")

    frame: Any = Handed()
    batch = Batch(frame, 7, 1, Failpoints((), Path("/dev/null"), None), Quarantine("bad", "in", {}))
    with pytest.raises(AssertionError, match="a BatchWriter"):
        batch.run(Whole(), **wanted)


def test_a_digest_of_an_earlier_version_is_not_compared() -> None:
    """Its rows still are."""
    sink = Marked({1: Mark(7, 1, None)})
    assert replayed(sink, "a", "b", "c") == [1]
    with pytest.raises(NondeterministicReplay):
        replayed(Marked({1: Mark(7, 2, None)}), "a", "b", "c")
