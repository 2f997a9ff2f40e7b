"""The code in a Spark task: it consumes every row, and loses no rejected record.

This holds whatever becomes of the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from oncebench.delivery import quarantine
from oncebench.delivery.contract import Written
from oncebench.delivery.copies.fitting import Copy
from oncebench.delivery.copies.originals import Original, Position
from oncebench.delivery.digest import HASH
from oncebench.delivery.errors import DeliveryFailed, PermanentFailure
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.quarantine import Quarantine
from oncebench.delivery.tasks import CountTask, WriteTask, refuse_text_that_is_not_utf8
from proofs.without_jvm import deliverable
from tests.kafka_topics import rejected
from tests.unit.delivery.test_batch import At

PARTITION = 1
NONE = Failpoints((), Path("/dev/null"), None)


class Copies(Quarantine):
    """Sends copies to a list.

    They are acknowledged only when the quarantine waits for that. The number `left` never are.
    """

    def __init__(self, left: int = 0) -> None:
        super().__init__("bad", "in", {"bootstrap.servers": "b:1"})
        self.sent: list[Any] = []
        self.acknowledged: list[Any] = []
        self.left = left

    def _send(self, whole: Copy, limit: int | None = None, repeated: bool = False) -> None:
        self.sent.append(whole.value)

    def _read(self, places: list[Position]) -> dict[Position, Original]:
        return {}

    def _acknowledge(self) -> int:
        self.acknowledged = self.sent[: len(self.sent) - self.left]
        return self.left


class Keeps:
    """A writer that takes every row."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def write(self, _task: Any, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        self.rows += [key for batch in rows for key in batch.column("key").to_pylist()]
        return {}, {}


@pytest.fixture(autouse=True)
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: At(PARTITION))


def record(reason: str | None, offset: int, value: bytes) -> pa.RecordBatch:
    """One row, or one rejected record."""
    column = rejected([(reason, 0, offset, b"k", value)])
    if reason is None:
        column = pa.nulls(1, column.type)
    return deliverable(pa.record_batch({"key": ["k"]}), column)


def consumed(taken: list[int]) -> Iterator[pa.RecordBatch]:
    """Two rows and a rejected record; notes when a task has taken all."""
    yield record(None, 0, b"")
    yield record("not JSON", 1, b"wrong")
    yield record(None, 2, b"")
    taken.append(1)


FATES = [(None, None, 0), (Keeps(), frozenset({0}), 0), (Keeps(), None, 2), (Keeps(), frozenset({PARTITION}), 2)]
IDS = ["drained", "of a partition that stays", "written", "of a partition that is written again"]


@pytest.mark.parametrize(("writer", "only", "written"), FATES, ids=IDS)
def test_a_task_consumes_all_and_copies_its_rejected_records(
    writer: Keeps | None, only: frozenset[int] | None, written: int
) -> None:
    copies, taken = Copies(), []  # type: ignore[var-annotated]
    (made,) = WriteTask(7, None, writer, only, NONE, copies)(consumed(taken))  # type: ignore[arg-type]
    result = Written(**json.loads(made.column("result")[0].as_py()))
    assert (copies.acknowledged, result.quarantined) == ([b"wrong"], {"not JSON": 1})
    assert (taken, result.rows, result.partition) == ([1], 2, PARTITION)
    assert len(writer.rows if writer else []) == written


def test_a_task_before_a_batch_writer_copies_its_rejected_records() -> None:
    copies, taken, results = Copies(), [], Added()  # type: ignore[var-annotated]
    passed = list(CountTask(7, NONE, copies, results)(consumed(taken)))
    assert [batch.to_pydict() for batch in passed] == [{"key": ["k"]}] * 2
    ((result, _),) = results.all
    assert (copies.acknowledged, result["quarantined"], result["rows"]) == ([b"wrong"], {"not JSON": 1}, 2)


def text(value: bytes | None) -> pa.Array:
    """A text as Spark's cast gives it, of any bytes."""
    return pa.Array.from_buffers(pa.string(), 1, pa.array([value], pa.binary()).buffers())


def of_text(column: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"key": ["k"], "city": column, HASH: [1]})


NOT_UTF8 = [
    (text(b"caf\xe9"), r" \(b'caf\\xe9'\)"),
    (text(b"\xed\xa0\x80"), r" \(b'\\xed\\xa0\\x80'\)"),  # half of a pair of UTF-16
    (pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), text(b"\xff")), ""),
    (pa.StructArray.from_arrays([text(b"\xff")], ["x"]), ""),
    (pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), text(b"\xff"), pa.array([1])), ""),
]


@pytest.mark.parametrize(("column", "shown"), NOT_UTF8, ids=[str(column.type) for column, _ in NOT_UTF8])
def test_a_text_that_is_not_utf8_ends_the_job_and_names_its_column(column: pa.Array, shown: str) -> None:
    found = f"batch 7, partition 1: column 'city' has a text that is not UTF-8{shown}\\. A restart does not help"
    for task in (WriteTask(7, None, Keeps(), None, NONE, Copies()), CountTask(7, NONE, Copies(), Added())):
        with pytest.raises(PermanentFailure, match=found):
            list(task(iter([of_text(column)])))
    (drained,) = WriteTask(7, None, None, None, NONE, Copies())(iter([of_text(column)]))
    assert json.loads(drained.column("result")[0].as_py())["rows"] == 1, "an older version has written it"


@pytest.mark.parametrize(
    "column",
    [text(None), text(b""), text("caf\u00e9 \ufffd\x00".encode()), pa.array([b"caf\xe9"]), pa.nulls(1)],
    ids=lambda column: str(column.to_pylist()),
)
def test_a_text_of_utf8_and_any_binary_are_written(column: pa.Array) -> None:
    writer = Keeps()
    list(WriteTask(7, None, writer, None, NONE, Copies())(iter([of_text(column)])))
    assert writer.rows == ["k"]


def test_two_halves_of_a_character_in_two_texts_are_not_utf8() -> None:
    """Together they are, so a look at all bytes at once does not do."""
    values = pa.array([b"caf\xc3", b"\xa9"], pa.binary())
    rows = pa.record_batch({"city": pa.Array.from_buffers(pa.string(), 2, values.buffers())})
    with pytest.raises(PermanentFailure):
        refuse_text_that_is_not_utf8(rows, "here")
    refuse_text_that_is_not_utf8(rows.slice(0, 0), "here")


class Added:
    """As much of an accumulator as a task asks of it."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def add(self, results: list[Any]) -> None:
        self.all += results


def test_no_task_is_done_before_its_copies_are_acknowledged() -> None:
    results, passed = Added(), []
    with pytest.raises(DeliveryFailed, match="1 copies were not acknowledged"):
        list(WriteTask(7, None, None, None, NONE, Copies(left=1))(consumed([])))
    with pytest.raises(DeliveryFailed, match="1 copies were not acknowledged"):
        passed.extend(CountTask(7, NONE, Copies(left=1), results)(consumed([])))
    assert results.all == []


def test_records_that_do_not_fit_into_a_tasks_memory_are_all_copied_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quarantine, "MOST_HELD_BYTES", 100)  # about two records
    copies = Copies()
    values = [b"%d" % number for number in range(7)]
    (made,) = WriteTask(7, None, None, None, NONE, copies)(
        record("too old", number, value) for number, value in enumerate(values)
    )
    assert json.loads(made.column("result")[0].as_py())["quarantined"] == {"too old": len(values)}
    assert copies.acknowledged == values
