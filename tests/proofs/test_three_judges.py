"""Both auditors count the same as a judge of one page.

This holds for random histories, and whatever is wrong with their output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncebench.audit.agreement import counts_of
from oncebench.audit.python.audit import audit
from oncebench.audit.sql import count
from oncebench.record import Record
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream
from proofs.three_judges.plain_judge import judge
from proofs.three_judges.plain_pipeline import Copy, Event, Plain, Row
from tests.proofs.both_auditors import files_of
from tests.proofs.test_audit_injection import EXAMPLES
from tests.unit.audit.audit_world import VisibleRow, World, event, input_table, make_record, quarantine_table

TIMEOUT_MS = 1000
CODES = ("LOSS", "DUP", "PHAN", "CORR", "QUAR.missing", "QUAR.unasked", "QUAR.changed")
KEYS = ("a", "b", "c")
WRONG = ("lost", "doubled", "changed", "phantom", "uncopied", "unasked", "other bytes", "two copies", "other place")


@dataclass(frozen=True)
class History:
    """What a run read and made."""

    batches: list[list[Event]]
    rows: list[Row]
    quarantine: list[Copy]


@pytest.fixture(scope="module", autouse=True)
def database() -> Iterator[None]:
    with count.connection() as Shared.database:
        yield


class Shared:
    """One database for all tests."""

    database: duckdb.DuckDBPyConnection


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Draws what two partitions get, and what the plain pipeline makes of it.

    A session's events are in order, and mostly in one partition. Some come again in any partition, with the same bytes
    or another value, at once or after the session. Some records are no events. Between batches, time passes.
    """
    sent: list[tuple[int, str, bytes | None]] = []  # partition, key, value
    for at, key in enumerate(KEYS[: draw(st.integers(1, 3))]):
        home = at % 2
        events = [(home, key, event(key, seq, draw(st.integers(0, 9)), seq)) for seq in range(100)]
        del events[draw(st.sampled_from([100, 100, 100, 57])) :]
        for _ in range(draw(st.integers(0, 4))):
            _, _, value = events[draw(st.integers(0, min(99, len(events) - 1)))]
            changed = json.dumps(json.loads(value) | {"value": 10}).encode() if draw(st.booleans()) else value
            events.insert(draw(st.integers(0, len(events))), (draw(st.integers(0, 1)), key, changed))
        for _ in range(draw(st.integers(0, 2))):
            bad = draw(st.sampled_from([None, b"{", event("other", 3, 1, 1)]))
            events.insert(draw(st.integers(0, len(events))), (draw(st.integers(0, 1)), key, bad))
        place = draw(st.integers(0, len(sent)))
        sent = [*sent[:place], *events, *sent[place:]]
    cuts = sorted(draw(st.lists(st.integers(0, len(sent)), max_size=6)))
    batches, now_ms, ends = [], 0, [0, 0]
    for first, last in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        now_ms += draw(st.sampled_from([1, 1, TIMEOUT_MS - 1, 2 * TIMEOUT_MS]))
        batch = []
        for partition, key, value in sent[first:last]:
            batch.append(Event(partition, ends[partition], key.encode(), value, now_ms))
            ends[partition] += 1
        batches.append(batch)
    pipeline = Plain(TIMEOUT_MS, forgets=draw(st.booleans()))
    pipeline.run(batches)
    return History(batches, pipeline.rows, pipeline.quarantine)


def record_of(history: History) -> Record:
    names = ("session_key", "j", "total", "checksum", "ended_at")
    rows = [
        VisibleRow(KEYS.index(row[0]) % 2, row[0].encode(),
                   json.dumps({**dict(zip(names, row, strict=True)), "events": 5}).encode())
        for row in history.rows
    ]  # fmt: skip
    fields = ("reason", "source_partition", "source_offset", "key", "value")
    held = quarantine_table([dict(zip(fields, copy, strict=True)) for copy in history.quarantine])
    ends, lines = [0, 0], []
    for number, batch in enumerate(history.batches):
        for each in batch:
            ends[each.partition] = each.offset + 1
        lines.append({"kind": "batch", "t_us": 1, "batch": number, "start_offsets": {},
                      "end_offsets": {"0": ends[0], "1": ends[1]}})  # fmt: skip
    sent = [each for batch in history.batches for each in batch]
    table = input_table(sent)
    times = table.schema.get_field_index("timestamp_ms")
    table = table.set_column(times, table.schema.field(times), [[each.time_ms for each in sent]])
    return make_record(
        World(0, 2, (), ()), rows, cell={"session_timeout_ms": TIMEOUT_MS}, input=Stream(table, complete=True),
        quarantine=Stream(held, complete=True), progress=Lines(tuple(lines)),
    )  # fmt: skip


def agreed(history: History) -> dict[str, int]:
    """What all three judges count."""
    record = record_of(history)
    first = counts_of(audit(record))
    with Shared.database.cursor() as con:
        second = count.count(con, files_of(record))
    differ = {name: (first.get(name, 0), second.get(name, 0)) for name in first.keys() | second.keys()
              if first.get(name, 0) != second.get(name, 0)}  # fmt: skip
    assert not differ
    third = judge(history.batches, TIMEOUT_MS, history.rows, history.quarantine)
    assert {code: first[code] for code in CODES if first.get(code)} == third
    return third


@settings(max_examples=max(30, EXAMPLES // 15), deadline=None)
@given(histories())
def test_all_judges_find_a_right_output_right(history: History) -> None:
    assert agreed(history) == {}


@settings(max_examples=max(30, EXAMPLES // 15), deadline=None)
@given(histories(), st.data())
def test_all_judges_count_what_is_wrong_alike(history: History, data: st.DataObject) -> None:
    rows, quarantine = list(history.rows), list(history.quarantine)
    events = [each for batch in history.batches for each in batch]
    for kind in data.draw(st.lists(st.sampled_from(WRONG), min_size=1, max_size=3)):
        at = data.draw(st.integers(0, 10**6))
        match kind:
            case "lost" if rows:
                del rows[at % len(rows)]
            case "doubled" if rows:
                rows.append(rows[at % len(rows)])
            case "changed" if rows:
                key, j, total, *rest = rows[at % len(rows)]
                rows[at % len(rows)] = (key, j, total + 1, *rest)  # type: ignore[assignment]
            case "phantom":
                rows.append((KEYS[at % 3], 20, 0, 0, 0))
            case "uncopied" if quarantine:
                del quarantine[at % len(quarantine)]
            case "unasked":
                each = events[at % len(events)]
                quarantine.append(Copy("repeated-seq", *each[:4]))
            case "other bytes" if quarantine:
                quarantine[at % len(quarantine)] = quarantine[at % len(quarantine)]._replace(value=b"other")
            case "two copies" if quarantine:
                quarantine.append(quarantine[at % len(quarantine)])
            case "other place" if quarantine:
                each = events[at % len(events)]
                place = at % len(quarantine)
                quarantine[place] = quarantine[place]._replace(partition=each.partition, offset=each.offset)
    agreed(History(history.batches, rows, quarantine))


def one_each(*batches: Sequence[tuple[int, int, int]]) -> list[list[Event]]:
    """Batches of one session's events (partition, seq, value), a second apart."""
    ends, made = [0, 0], []
    for number, batch in enumerate(batches):
        made.append([])
        for partition, seq, value in batch:
            made[-1].append(Event(partition, ends[partition], b"a", event("a", seq, value, 0), number * 2 * TIMEOUT_MS))
            ends[partition] += 1
    return made


def ran(batches: list[list[Event]], forgets: bool = False) -> History:
    pipeline = Plain(TIMEOUT_MS, forgets)
    pipeline.run(batches)
    return History(batches, pipeline.rows, pipeline.quarantine)


def test_the_copy_that_was_read_first_counts_also_if_its_partition_has_the_higher_number() -> None:
    history = ran(one_each([(1, seq, 1) for seq in range(99)], [(0, 5, 2)], [(1, 99, 1)]))
    assert [copy[1:3] for copy in history.quarantine] == [(0, 0)]
    assert agreed(history) == {}
    other = [Copy("repeated-seq", 1, 5, b"a", history.batches[0][5].value)]
    assert agreed(History(history.batches, history.rows, other)) == {"QUAR.missing": 1, "QUAR.unasked": 1}


def test_a_pause_explains_a_session_that_never_ended_and_a_gap_without_a_pause_does_not() -> None:
    first, second = ([(0, seq, 1) for seq in half] for half in (range(50), range(50, 100)))
    history = ran(one_each(first, [], second), forgets=True)
    assert history.quarantine == []  # no batch was planned meanwhile, as far as this pipeline knows
    other = Event(1, 0, b"b", event("b", 0, 1, 0), 1500)
    paused = ran([history.batches[0], [other], history.batches[2]], forgets=True)
    assert [(copy.reason, copy.key) for copy in paused.quarantine] == [("never-ended", b"a"), ("never-ended", b"b")]
    assert agreed(paused) == {}
    at_once = [[each._replace(time_ms=0) for each in batch] for batch in paused.batches]
    assert agreed(History(at_once, paused.rows, paused.quarantine)) == {"LOSS": 20, "QUAR.unasked": 1}
