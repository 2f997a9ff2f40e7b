"""Both auditors find every wrong answer of a pipeline that counts events in windows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pytest

from oncebench.audit.python.attribution import by_batch
from oncebench.audit.python.audit import audit
from oncebench.audit.python.model import Expected
from oncebench.audit.python.workloads.answers import answer_of
from oncebench.audit.python.workloads.windows import DELAY_US, LATE_IN_KEY_US
from oncebench.audit.sql import count
from oncebench.record import RecordError
from tests.proofs.both_auditors import agreed, codes
from tests.unit.audit.audit_world import STARTED_US, Sent, VisibleRow, event, key_of
from tests.unit.audit.windows_world import (
    CLOSING,
    CLOSING_US,
    ENDS,
    SENT,
    WINDOW_US,
    batch_lines,
    event_time,
    is_expected,
    right_rows,
    row_of,
    windows_of,
    windows_record,
)

RIGHT = right_rows()
KEY = key_of(0)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with count.connection() as opened:
        yield opened


def without(at: int) -> list[VisibleRow]:
    return [*RIGHT[:at], *RIGHT[at + 1 :]]


def with_row(at: int, row: VisibleRow) -> list[VisibleRow]:
    return [*RIGHT[:at], row, *RIGHT[at + 1 :]]


def changed(**by: int) -> list[VisibleRow]:
    row = RIGHT[9]
    return with_row(9, row.changed(**{name: row.row[name] + more for name, more in by.items()}))


def named(row: VisibleRow, name: str) -> VisibleRow:
    return replace(row.changed(session_key=name), key=name.encode())


def late_event_counted() -> list[VisibleRow]:
    late = {pair: events for pair, events in windows_of().items() if pair[1] < event_time(0, 49) - 1_000_000_000}
    assert len(late) == 2
    return [*RIGHT, *(row_of(key, start, events) for (key, start), events in late.items())]


def late_event_counted_in_its_own_time() -> list[VisibleRow]:
    """As if the late event had the time at which it was sent."""
    moved = [
        replace(
            each, value=(each.value or b"").replace(str(event_time(0, 50)).encode(), str(event_time(0, 49)).encode())
        )
        for each in SENT
    ]
    return right_rows(windows_of(moved))


def open_window_returned() -> list[VisibleRow]:
    return [*RIGHT, row_of(CLOSING[0], CLOSING_US[0] // WINDOW_US * WINDOW_US, [(0, 1)])]


def inclusive_ends() -> list[VisibleRow]:
    """A window also gets the events at its end, as `BETWEEN` would give it."""
    windows = windows_of()
    doubled = {
        (key, start): [*events, *_first(windows, key, start + WINDOW_US)] for (key, start), events in windows.items()
    }
    return right_rows(doubled)


def _first(windows: dict[tuple[str, int], list[tuple[int, int]]], key: str, start: int) -> list[tuple[int, int]]:
    return windows.get((key, start), [])[:1]


def returned_too_early() -> list[VisibleRow]:
    """A window in two rows, each with a part of its events."""
    (key, start), events = next(pair for pair in windows_of().items() if len(pair[1]) > 4 and is_expected(*pair[0]))
    rest = [row for row in RIGHT if row.row["session_key"] != f"{key}@{start // 1000}"]
    return [*rest, row_of(key, start, events[:3]), row_of(key, start, events[3:])]


def swapped_values() -> list[VisibleRow]:
    """Two events of a window with each other's value: count and sum are right."""
    (key, start), events = next(pair for pair in windows_of().items() if len(pair[1]) > 4 and is_expected(*pair[0]))
    (first, of_first), (second, of_second), *others = events
    assert of_first != of_second
    wrong = {**windows_of(), (key, start): [(first, of_second), (second, of_first), *others]}
    return right_rows(wrong)


def of_another_key() -> list[VisibleRow]:
    name = RIGHT[9].row["session_key"]
    return with_row(9, named(RIGHT[9], f"{key_of(5)}@{name.split('@')[1]}"))


# What the pipeline does wrong, and which anomalies both auditors count; None: some number.
MUTANTS: dict[str, tuple[Callable[[], list[VisibleRow]], dict[str, int | None]]] = {
    "a window is lost": (lambda: without(9), {"LOSS": 1, "LOSS.whole-sessions": 1}),
    "a window is returned twice": (lambda: [*RIGHT, RIGHT[9]], {"DUP": 1, "DUP.same-partition": 1}),
    "one is lost and one doubled": (lambda: [*without(9), RIGHT[3]],
                                    {"LOSS": 1, "LOSS.whole-sessions": 1, "DUP": 1, "DUP.same-partition": 1}),
    "the count is wrong": (lambda: changed(events=1), {"CORR": 1, "CORR.wrong-payload": 1}),
    "the sum is wrong": (lambda: changed(total=-1), {"CORR": 1, "CORR.wrong-payload": 1}),
    "the values of two events are swapped": (swapped_values, {"CORR": 1, "CORR.wrong-payload": 1}),
    "the end is wrong": (lambda: changed(ended_at=WINDOW_US), {"CORR": 1, "CORR.wrong-payload": 1}),
    "an event is counted twice": (lambda: changed(events=1, total=5, checksum=6), {"CORR": 1, "CORR.wrong-payload": 1}),
    "late events are counted": (late_event_counted, {"PHAN": 2, "PHAN.unfinished-session": 2}),
    "a late event counts where it was sent": (late_event_counted_in_its_own_time, {"CORR": 1, "CORR.wrong-payload": 1}),
    "an open window is returned": (open_window_returned, {"PHAN": 1, "PHAN.unfinished-session": 1}),
    "a window begins elsewhere": (lambda: with_row(9, named(RIGHT[9], f"{KEY}@17")),
                                  {"LOSS": 1, "LOSS.whole-sessions": 1, "PHAN": 1, "PHAN.unknown-session": 1}),
    "windows are shifted": (lambda: right_rows(windows_of(shift_us=50_000)), {"LOSS": None, "PHAN": None}),
    "windows are twice as long": (lambda: right_rows(windows_of(size_us=2 * WINDOW_US), size_us=2 * WINDOW_US),
                                  {"LOSS": None, "CORR": None}),
    "both ends of a window are inclusive": (inclusive_ends, {"CORR": None}),
    "a window is returned in two parts": (returned_too_early, {"DUP": 1, "DIV": 1, "CORR": 2}),
    "a window has another key": (of_another_key, {"LOSS": 1}),
    "the record has another key": (lambda: with_row(9, replace(RIGHT[9], key=KEY.encode())),
                                   {"CORR": 1, "CORR.wrong-key": 1}),
    "the row lacks its window": (lambda: with_row(9, named(RIGHT[9], KEY)),
                                 {"LOSS": 1, "LOSS.whole-sessions": 1, "PHAN": 1, "PHAN.unknown-session": 1}),
    "the row has another number": (lambda: with_row(9, RIGHT[9].changed(j=1)),
                                   {"LOSS": 1, "LOSS.whole-sessions": 1, "PHAN": 1, "PHAN.row-number": 1}),
}  # fmt: skip
# Mutants whose other anomalies follow from how keys and windows happen to lie.
PARTLY = {name for name, (_, wanted) in MUTANTS.items() if None in wanted.values()} | {
    "a window is returned in two parts",
    "a window has another key",
}


def test_right_windows_have_no_anomaly(database: duckdb.DuckDBPyConnection) -> None:
    found = agreed(database, windows_record())
    assert codes(found) == {}
    assert found["events.late"] == 2
    assert found["rows.expected"] == found["rows.visible"] == len(RIGHT)
    assert found["sessions.unfinished"] == 2 + len(CLOSING)


@pytest.mark.parametrize("load_s", [0, 1_850, 3_000])
def test_late_events_at_the_end_of_a_long_load_are_late(database: duckdb.DuckDBPyConnection, load_s: int) -> None:
    record = windows_record()
    record = replace(record, plan=replace(record.plan, started_us=record.plan.started_us - load_s * 1_000_000))
    found = agreed(database, record)
    assert (codes(found), found["events.late"]) == ({}, 2)


@pytest.mark.parametrize("session_s", [1_850, 3_000])
def test_the_first_event_of_a_slow_session_is_not_late(database: duckdb.DuckDBPyConnection, session_s: int) -> None:
    """At a low rate the events of one session take up the whole load."""
    first = next(each for each in SENT if each.key == key_of(1).encode())
    at = event_time(1, 0) - session_s * 1_000_000
    sent = [replace(first, value=event(key_of(1), 0, 5, at)) if each is first else each for each in SENT]
    windows = windows_of(sent)
    start = at // WINDOW_US * WINDOW_US
    rows = [row for row in right_rows(windows) if row.row["session_key"] != f"{key_of(1)}@{start // 1000}"]
    record = windows_record([*rows, row_of(key_of(1), start, windows[key_of(1), start])], sent)
    record.ledger.scheduled_us[100] = at
    record = replace(record, plan=replace(record.plan, started_us=at))
    found = agreed(database, record)
    assert (codes(found), found["events.late"]) == ({}, 2)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_both_auditors_find_a_wrong_answer(database: duckdb.DuckDBPyConnection, mutant: str) -> None:
    wrong, wanted = MUTANTS[mutant]
    found = codes(agreed(database, windows_record(wrong())))
    if mutant in PARTLY:
        assert wanted.keys() <= found.keys()
        assert all(found[name] == number for name, number in wanted.items() if number is not None)
    else:
        assert found == wanted


def test_windows_that_no_later_batch_returned_are_pending(database: duckdb.DuckDBPyConnection) -> None:
    stopped = windows_record([], progress=batch_lines(ENDS[:-1]))
    found = codes(agreed(database, stopped))
    (warm_up,) = (row for row in RIGHT if row.row["session_key"].startswith("8000000000000000"))
    assert found == {"LOSS": 1, "LOSS.whole-sessions": 1, "PEND": len(RIGHT) - 1}
    assert codes(agreed(database, windows_record([warm_up], progress=batch_lines(ENDS[:-1])))) == {
        "PEND": len(RIGHT) - 1
    }


def test_without_batches_nothing_is_lost(database: duckdb.DuckDBPyConnection) -> None:
    assert codes(agreed(database, windows_record([], progress=batch_lines([])))) == {"PEND": len(RIGHT)}


def test_a_window_belongs_to_the_batch_after_its_watermark() -> None:
    doubled = windows_record([*RIGHT, RIGHT[-1]])
    assert by_batch(doubled, answer_of(doubled)) == {4: (0, 1)}
    (warm_up,) = (row for row in RIGHT if row.row["session_key"].startswith("8000000000000000"))
    doubled = windows_record([*RIGHT, warm_up])
    assert by_batch(doubled, answer_of(doubled)) == {2: (0, 1)}


def test_invalid_events_count_in_no_window(database: duckdb.DuckDBPyConnection) -> None:
    bad = Sent(0, ENDS[-1][0], KEY.encode(), event(KEY, 100, 1, event_time(0, 1)))
    found = agreed(database, windows_record(sent=[*SENT, bad]))
    assert codes(found) == {"QUAR": 1, "QUAR.missing": 1}


def test_another_workload_is_not_judged() -> None:
    record = windows_record(cell={"cell": {"workload": "joins"}})
    with pytest.raises(RecordError, match="the run is of the workload 'joins'"):
        audit(record)


def test_examples_name_the_events_of_a_window() -> None:
    (example,) = audit(windows_record(without(9))).anomalies["LOSS"].examples
    name = RIGHT[9].row["session_key"]
    events: list[Any] = [[each.partition, each.offset] for each in SENT if window_of(each) == name]
    assert (example["id"], example["input"]) == (f"{name}:0", events)


def window_of(each: Sent) -> str:
    fields = json.loads(each.value or b"")
    return f"{fields['session_key']}@{fields['scheduled_at'] // 100_000}00"


def test_a_run_without_any_event_expects_no_window() -> None:
    record = windows_record([], sent=[])
    nothing = replace(record.ledger, **{name: column[:0] for name, column in vars(record.ledger).items()})
    assert answer_of(replace(record, ledger=nothing)).session_keys == []


def test_a_window_of_a_batch_that_read_no_event_is_pending(database: duckdb.DuckDBPyConnection) -> None:
    lines = batch_lines([*ENDS[:4], *ENDS[3:]])  # the batch after the first closing event read nothing
    assert codes(agreed(database, windows_record(RIGHT[:-1], progress=lines))) == {"PEND": 1}


NEWEST_US = STARTED_US + 50 * WINDOW_US


def answer_to(*events: tuple[int, int], ends: Sequence[dict[int, int]] = ()) -> Expected:
    """The right answer to events of one key, (partition, time); the load ended at NEWEST_US."""
    offsets = [sum(each[0] == partition for each in events[:at]) for at, (partition, _) in enumerate(events)]
    sent = [Sent(partition, offset, KEY.encode(), event(KEY, at + 1, 1, due_us))
            for at, ((partition, due_us), offset) in enumerate(zip(events, offsets, strict=True))]  # fmt: skip
    record = windows_record(sent=sent, progress=batch_lines(ends))
    return answer_of(replace(record, ledger=replace(record.ledger, scheduled_us=np.array([NEWEST_US]))))


@pytest.mark.parametrize(("more_us", "late"), [(0, 1), (1, 1), (WINDOW_US - 1, 1), (WINDOW_US, 0)])
def test_a_window_is_late_until_its_end_is_younger_than_the_limit(more_us: int, late: int) -> None:
    found = answer_to((1, NEWEST_US - LATE_IN_KEY_US - WINDOW_US + more_us), (1, NEWEST_US))
    assert (found.parts and found.parts.late, len(found.session_keys)) == (late, 2 - late)


@pytest.mark.parametrize(("more_us", "windows"), [(-1, 1), (0, 1), (WINDOW_US - 1, 1), (WINDOW_US, 0)])
def test_a_window_that_begins_with_the_last_planned_event_is_expected(more_us: int, windows: int) -> None:
    assert len(answer_to((1, NEWEST_US + more_us)).session_keys) == windows


def test_the_first_position_of_the_topic_may_be_the_last_of_a_batch() -> None:
    passing_us = NEWEST_US + WINDOW_US + DELAY_US
    ends = [{0: 0, 1: 1}, {0: 0, 1: 2}, {0: 1, 1: 2}]
    found = answer_to((1, NEWEST_US), (1, passing_us), (0, passing_us), ends=ends)
    assert (found.last_partition.tolist(), found.last_offset.tolist()) == ([0], [0])


@pytest.mark.parametrize("ends", [[], [{0: 0, 1: 1}], [{0: 0, 1: 1}, {0: 0, 1: 2}]])
def test_a_window_without_a_known_batch_ends_after_all_events(ends: list[dict[int, int]]) -> None:
    found = answer_to((1, NEWEST_US), (1, NEWEST_US + WINDOW_US + DELAY_US), ends=ends)
    assert (found.last_partition.tolist(), found.last_offset.tolist()) == ([1], [2])
