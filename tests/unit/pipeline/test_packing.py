"""Packed events give the rows and rejections that the same events give one by one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo

from pipeline.events import AFTER_END, LAST_SEQ, NEVER_ENDED, REPEATED_SEQ, check
from pipeline.packing import pack
from pipeline.sessions import EVENTS_PER_ROW, Sessions

TIMEOUT_MS, WATERMARK_MS, PLANNED_MS = 1000, 50, 70
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
    ]
)
Record = dict[str, Any]
# The generator's, which is recognised in whole batches, and another, which is read event by event.
SPELLINGS = ((",", ":"), (", ", ": "))


def event(session: str, seq: int, value: int = 7) -> bytes:
    kind = "start_event" if seq == 0 else "end_event" if seq == LAST_SEQ else "entry_event"
    fields = {"session_key": session, "seq": seq, "type": kind, "value": value, "scheduled_at": 1_000 + seq}
    return json.dumps(fields, separators=SPELLINGS[seq % 2]).encode()


BAD = (
    None, b"", b"{", b"[]", b"null", b"\xff", b'{"session_key": "a"}', b"x" * 70_000, b"[" * 5_000,
    event("other", 3), event("a", 0).replace(b"start", b"bogus"), event("a", 0, -1), event("a", 0, 10**7),
    event("a", 5).replace(b"7", b"7.0"), event("a", 5).replace(b"7", b"NaN"), event("a", 5).replace(b"7", b"1" * 30),
    event("a", 5)[:-1] + b', "more": "\\ud800"}', event("a", 5)[:-1] + b', "value": 8}',
)  # fmt: skip


class Held:
    """One key's state, the handle of its operator, and the timers of a batch."""

    def __init__(self) -> None:
        self.value: tuple[Any, ...] | None = None
        self.timers: list[int] = []
        self.watermark_ms, self.planned_ms = WATERMARK_MS, PLANNED_MS

    def getValueState(self, _name: str, _schema: str) -> Held:
        return self

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None

    def registerTimer(self, at_ms: int) -> None:
        self.timers.append(at_ms)

    def getCurrentWatermarkInMs(self) -> int:
        return self.watermark_ms

    def getCurrentProcessingTimeInMs(self) -> int:
        return self.planned_ms


def packed(batches: Sequence[Sequence[Record]]) -> tuple[list[Any], dict[Any, Held]]:
    """Returns the output and the states of the packed path.

    Args:
        batches: each a list of records in the order of arrival.
    """
    states: dict[Any, Held] = {}
    made: list[Any] = []
    for batch in batches:
        groups: dict[Any, list[Record]] = {}
        for partition in (0, 1):
            records = [each for each in batch if each["partition"] == partition]
            # Arrow splits a task's records anywhere.
            halves = (records[: len(records) // 3], records[len(records) // 3 :])
            for arrow in pack(pa.RecordBatch.from_pylist(half, SCHEMA) for half in halves):
                for row in arrow.to_pylist():
                    groups.setdefault(row["key"], []).append(row)
        for key, rows in groups.items():
            operator, held = Sessions(TIMEOUT_MS), states.setdefault(key, Held())
            operator.init(held)  # type: ignore[arg-type]
            made += operator.handleInputRows((key,), iter(rows[::-1]), held)
    return made, states


def one_by_one(batches: Sequence[Sequence[Record]]) -> tuple[list[Any], dict[Any, tuple[Any, ...]]]:
    """The same from a plain model that takes one event after the other."""
    states: dict[Any, tuple[Any, ...]] = {}
    made: list[Any] = []
    for batch in batches:
        for each in sorted(batch, key=lambda record: (record["partition"], record["offset"])):
            key, value, position = each["key"], each["value"], (each["partition"], each["offset"])
            found = check(key, value)
            if isinstance(found, str):
                made.append((found, *position, key, value))
                continue
            finished, last_ms, ended_at, values = states.get(key, (False, 0, 0, {}))
            last_ms = PLANNED_MS
            if finished or found.seq in values:
                made.append((AFTER_END if finished else REPEATED_SEQ, *position, key, value))
            else:
                values = {**values, found.seq: found.value}
                ended_at = found.scheduled_at if found.seq == LAST_SEQ else ended_at
                if len(values) == LAST_SEQ + 1:
                    finished = True
                    made.append((key.decode(), ended_at, *zip(*parts(values), strict=True)))
                    values = {}
            states[key] = (finished, last_ms, ended_at, values)
    return made, states


def parts(values: dict[int, int]) -> Iterator[tuple[int, int]]:
    for first in range(0, LAST_SEQ + 1, EVENTS_PER_ROW):
        text = "".join(f"{seq}={values[seq]};" for seq in range(first, first + EVENTS_PER_ROW))
        yield sum(values[seq] for seq in range(first, first + EVENTS_PER_ROW)), zlib.crc32(text.encode())


def plain(made: Any) -> tuple[Any, ...]:
    if made["reason"] is not None:
        return tuple(made[name] for name in ("reason", "source_partition", "source_offset", "key", "value"))
    return made["session_key"], made["ended_at"], tuple(made["totals"]), tuple(made["checksums"])


@st.composite
def inputs(draw: st.DrawFn) -> list[list[Record]]:
    """Draws batches of two sessions, with bad records in between.

    The sessions may repeat, skip and exceed their events.
    """
    sessions = [[("a", seq) for seq in range(100)], [("b", seq) for seq in range(draw(st.sampled_from([60, 100])))]]
    events = [each for session in sessions for each in session]
    events += draw(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 99)), max_size=8))
    events = draw(st.permutations(events))
    values: list[tuple[bytes | None, bytes | None]] = [(name.encode(), event(name, seq)) for name, seq in events]
    for bad in draw(st.lists(st.tuples(st.sampled_from([None, b"a", b"\xff"]), st.sampled_from(BAD)), max_size=8)):
        values.insert(draw(st.integers(0, len(values))), bad)
    records = [
        {"key": key, "partition": at % 2, "offset": at, "value": value} for at, (key, value) in enumerate(values)
    ]
    cuts = sorted(draw(st.lists(st.integers(0, len(records)), max_size=3)))
    return [records[first:last] for first, last in zip([0, *cuts], [*cuts, len(records)], strict=True)]


@given(inputs())
def test_packed_events_give_the_rows_of_single_events(batches: list[list[Record]]) -> None:
    (made, held), (expected, states) = packed(batches), one_by_one(batches)
    assert sorted(map(plain, made), key=repr) == sorted(expected, key=repr)
    accepted = {key: state.value for key, state in held.items() if state.value is not None}
    assert {key: value[:2] for key, value in accepted.items()} == {key: value[:2] for key, value in states.items()}
    assert all(len(state.timers) == 1 for state in held.values() if state.value is not None)


def test_every_bad_record_keeps_its_bytes_and_its_position() -> None:
    bad = BAD[:-1]  # the last one is valid after all: JSON readers take the later of two equal names
    records = [{"key": b"a", "partition": 1, "offset": at, "value": value} for at, value in enumerate(bad)]
    made, _ = packed([records])
    rejected = {plain(each)[2]: plain(each)[4] for each in made}
    assert rejected == {at: value for at, value in enumerate(bad) if isinstance(check(b"a", value), str)}
    assert len(rejected) >= 14


class Session(Held):
    """The state of one session, with the batches and timers that the operator gets."""

    def __init__(self) -> None:
        super().__init__()
        self.operator = Sessions(TIMEOUT_MS)
        self.operator.init(self)  # type: ignore[arg-type]

    def sees(self, seq: int, planned_ms: int) -> None:
        """A batch with one event, planned at this time.

        The watermark is the time of the batch before.
        """
        self.watermark_ms, self.planned_ms = self.planned_ms, planned_ms
        record = {"key": b"a", "partition": 0, "offset": seq, "value": event("a", seq)}
        (rows,) = pack(iter([pa.RecordBatch.from_pylist([record], SCHEMA)]))
        assert not list(self.operator.handleInputRows((b"a",), iter(rows.to_pylist()), self))

    def passes(self, watermark_ms: int) -> list[Any]:
        """What the timers that are due make, in a batch without events of this session."""
        self.watermark_ms = self.planned_ms = max(self.planned_ms, watermark_ms)
        return self.expire()

    def expire(self) -> list[Any]:
        due = [timer for timer in self.timers if timer <= self.watermark_ms]
        self.timers = [timer for timer in self.timers if timer > self.watermark_ms]
        infos = [ExpiredTimerInfo(timer) for timer in due]
        return [row for info in infos for row in self.operator.handleExpiredTimer((b"a",), self, info)]


def test_a_session_that_was_just_seen_survives_any_jump_of_the_watermark() -> None:
    a = Session()
    a.sees(0, 100)
    assert not a.passes(10**12)  # a pipeline that was down for years
    a.sees(1, 10**12 + 1)
    assert not a.passes(10**12 + 1 + TIMEOUT_MS)
    assert a.value is not None


def test_a_session_seen_in_the_batch_of_its_timer_survives_the_jump_that_follows() -> None:
    a = Session()
    a.sees(0, 100)
    a.planned_ms = 5000  # the watermark of the next batch
    a.sees(1, 6000)
    assert not a.expire()
    assert not a.passes(10**6)
    assert not a.passes(10**6 + TIMEOUT_MS - 1)
    assert a.value is not None


def test_a_session_that_was_not_seen_for_the_timeout_is_rejected_with_its_values() -> None:
    a = Session()
    a.sees(0, 100)
    a.sees(3, 200)
    assert not a.passes(200 + TIMEOUT_MS)
    (rejected,) = a.passes(200 + 2 * TIMEOUT_MS + 1)  # a second timer has an odd time
    assert plain(rejected) == (NEVER_ENDED, None, None, b"a", b'{"values": {"0": 7, "3": 7}}')
    assert a.value is None
    assert not a.timers


@pytest.mark.parametrize("start_ms", [100, 101])
def test_the_first_timer_of_a_session_does_not_use_the_state(start_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a = Session()
    a.sees(0, start_ms)
    for name in ("get", "update", "clear"):
        monkeypatch.setattr(a, name, lambda *_: pytest.fail("the state is used"))
    assert not a.passes(start_ms + TIMEOUT_MS + 1)
    assert len(a.timers) == 1


@pytest.mark.parametrize("last_ms", [5000, 5001, -5000, -5001])
def test_the_state_of_an_earlier_checkpoint_is_continued(last_ms: int) -> None:
    a = Session()  # earlier versions had one timer for all; below zero, it was the second one
    a.value, a.timers = (False, last_ms, 1, 0, [7, *[-1] * 99]), [abs(last_ms) + TIMEOUT_MS]
    made = [row for passed in range(3) for row in a.passes(10**9 + passed * (TIMEOUT_MS + 1))]
    (rejected,) = made
    assert plain(rejected)[4] == b'{"values": {"0": 7}}'
    assert not a.timers


@pytest.mark.parametrize("start_ms", [100, 101])
def test_no_session_leaves_before_the_timeout_or_after_twice_the_timeout(start_ms: int) -> None:
    for pause in range(1, 3 * TIMEOUT_MS, 97):
        a = Session()
        a.sees(0, start_ms)
        last_ms = start_ms
        if pause < TIMEOUT_MS:
            a.passes(start_ms + pause)
            last_ms = start_ms + pause
            a.sees(1, last_ms)
        left_ms = next(at for at in range(last_ms, last_ms + 4 * TIMEOUT_MS) if a.passes(at))
        assert TIMEOUT_MS <= left_ms - last_ms <= 2 * TIMEOUT_MS + 2, (start_ms, pause)


def test_the_events_of_a_session_in_a_record_batch_are_one_row() -> None:
    keys = [b"a", b"b"] * 4
    records = [
        {"key": key, "partition": 0, "offset": at, "value": event(key.decode(), at)} for at, key in enumerate(keys)
    ]
    (rows,) = pack(iter([pa.RecordBatch.from_pylist(records, SCHEMA)]))
    assert rows["key"].to_pylist() == [b"a", b"b"]
