"""Both auditors find every wrong answer of a pipeline that passes a user's records through."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from oncebench.audit.python.audit import audit
from oncebench.audit.sql import count
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream
from tests.proofs.both_auditors import agreed, codes
from tests.unit.audit.audit_world import SEED, Sent, VisibleRow
from tests.unit.audit.records_world import EVENTS, SENT, TEXTS, due_us, event, records_record, right_rows, row_of

RIGHT = right_rows()
AT = 5  # the row of line 3: text beyond ASCII
LONG = 3 + 6  # the row of line 7, which is longer than SQL reads by itself


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with count.connection() as opened:
        yield opened


def with_row(at: int, *rows: VisibleRow) -> list[VisibleRow]:
    return [*RIGHT[:at], *rows, *RIGHT[at + 1 :]]


def changed(at: int = AT, **by: object) -> list[VisibleRow]:
    return with_row(at, RIGHT[at].changed(**by))


def named(row: VisibleRow, name: str) -> VisibleRow:
    partition = next((each.partition for each in RIGHT if each.row["session_key"] == name), row.partition)
    return replace(row.changed(session_key=name), key=name.encode(), partition=partition)


def of_another_record(at: int) -> list[VisibleRow]:
    """A sound row, but with the record of another line."""
    row = RIGHT[at].row
    return with_row(at, row_of(row["session_key"], TEXTS[3], row["ended_at"]))


CORRUPT, UNREADABLE = {"CORR": 1, "CORR.wrong-payload": 1}, {"CORR": 1, "CORR.unreadable": 1}
LOST = {"LOSS": 1, "LOSS.whole-sessions": 1}
# What the pipeline does wrong, and which anomalies both auditors count.
MUTANTS: dict[str, tuple[Callable[[], list[VisibleRow]], dict[str, int]]] = {
    "a record is lost": (lambda: with_row(AT), LOST),
    "a long record is lost": (lambda: with_row(LONG), LOST),
    "a record is returned twice": (lambda: [*RIGHT, RIGHT[AT]], {"DUP": 1, "DUP.same-partition": 1}),
    "a long record is returned twice": (lambda: [*RIGHT, RIGHT[LONG]], {"DUP": 1, "DUP.same-partition": 1}),
    "of two equal records one is returned twice": (lambda: with_row(3, RIGHT[4]),
                                                   LOST | {"DUP": 1, "DUP.same-partition": 1}),
    "one letter of a record is changed": (lambda: changed(record=TEXTS[2].replace("Z", "z")), UNREADABLE),
    "one letter of a long record is changed": (lambda: changed(LONG, record=TEXTS[6].replace("x", "y", 1)), UNREADABLE),
    "a record is cut": (lambda: changed(record=TEXTS[2][:-1]), UNREADABLE),
    "the record is missing": (lambda: changed(record=None), UNREADABLE),
    "the row has the record of another line": (lambda: of_another_record(AT), CORRUPT),
    "a long row has the record of another line": (lambda: of_another_record(LONG), CORRUPT),
    "spaces of a record are left out": (lambda: of_text(TEXTS[4].replace(" ", "")), CORRUPT),
    "the time is wrong": (lambda: changed(ended_at=due_us(2) + 1), CORRUPT),
    "the count is wrong": (lambda: changed(events=2), CORRUPT),
    "the length is wrong": (lambda: changed(total=1), UNREADABLE),
    "the row has one more field": (lambda: changed(note="more"), UNREADABLE),
    "the row has another line's name": (lambda: with_row(AT, named(RIGHT[AT], "4")),
                                        LOST | {"DUP": 1, "DUP.same-partition": 1, "DIV": 1, "CORR": 1,
                                                "CORR.wrong-payload": 1}),
    "the row has an unknown name": (lambda: with_row(AT, named(RIGHT[AT], "99")),
                                    LOST | {"PHAN": 1, "PHAN.unknown-session": 1}),
    "the row has another number": (lambda: changed(j=1), LOST | {"PHAN": 1, "PHAN.row-number": 1}),
    "the output's key is another": (lambda: with_row(AT, replace(RIGHT[AT], key=b"anna")),
                                    {"CORR": 1, "CORR.wrong-key": 1}),
}  # fmt: skip


def of_text(text: str) -> list[VisibleRow]:
    at = 3 + 4
    row = RIGHT[at].row
    return with_row(at, row_of(row["session_key"], text, row["ended_at"]))


def test_right_records_have_no_anomaly(database: duckdb.DuckDBPyConnection) -> None:
    found = agreed(database, records_record())
    assert codes(found) == {}
    assert found["rows.expected"] == found["rows.visible"] == 3 + EVENTS
    assert found["events.in_topic"] == 3 + EVENTS
    assert found["events.foreign"] == 3, "the warm-up"


def spelled(rows: Sequence[VisibleRow], **how: Any) -> list[VisibleRow]:
    """The same rows in another spelling of JSON."""
    return [replace(row, value=json.dumps(row.row, **how).encode()) for row in rows]


@pytest.mark.parametrize("spaced", [False, True])
def test_the_spelling_of_rows_and_events_is_free(database: duckdb.DuckDBPyConnection, spaced: bool) -> None:
    separators = (", ", ": ") if spaced else (",", ":")
    rows = spelled(RIGHT, separators=separators)
    sent = [replace(each, value=json.dumps(json.loads(each.value or b""), separators=separators).encode())
            for each in SENT]  # fmt: skip
    assert codes(agreed(database, records_record(rows, sent))) == {}


# SQL reads the spelling of the pipeline by itself; Python helps it with every other one.
@pytest.mark.parametrize("how", [{"ensure_ascii": False, "separators": (",", ":")}, {}], ids=["ours", "another"])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_both_auditors_find_a_wrong_answer(
    database: duckdb.DuckDBPyConnection, mutant: str, how: Mapping[str, Any]
) -> None:
    wrong, wanted = MUTANTS[mutant]
    assert codes(agreed(database, records_record(spelled(wrong(), **how)))) == wanted


def test_records_that_no_batch_has_read_are_pending(database: duckdb.DuckDBPyConnection) -> None:
    assert codes(agreed(database, records_record([], progress=Lines(())))) == {"PEND": len(RIGHT)}


@pytest.mark.parametrize(
    "body",
    [None, b"", b"[]", b'{"a": 1}', event("1", "UP", 0, 1, "{}"), event("1", "b", -1, 1, "{}"),
     event("1", "b", 10**10, 1, "{}"), event("1", "b", 0, -1, "{}"), event("1", "b", 0, 1, "{}", more=1),
     event("1", "b", 0, 1, "{}").replace(b'"{}"', b"7"), event("1", "b", True, 1, "{}"),
     event("1", "b", 0, 1, "\\ud83d").replace(b"\\\\", b"\\")],
)  # fmt: skip
def test_what_is_no_event_has_no_row(database: duckdb.DuckDBPyConnection, body: bytes | None) -> None:
    bad = Sent(0, sum(each.partition == 0 for each in SENT), b"anna", body)
    found = agreed(database, records_record(sent=[*SENT, bad]))
    assert codes(found) == {"QUAR": 1, "QUAR.missing": 1}
    assert found["invalid.wrong-fields"] == 1


@pytest.mark.parametrize("text", [TEXTS[2], TEXTS[0], "{}"], ids=["the same", "another", "a short one"])
def test_an_event_that_is_in_the_topic_twice_is_the_generators_fault(
    database: duckdb.DuckDBPyConnection, text: str
) -> None:
    where = SENT[AT].partition
    again = Sent(
        where, sum(each.partition == where for each in SENT), b"anna", event("3", f"{SEED:x}", 2, due_us(2), text)
    )
    found = codes(agreed(database, records_record(sent=[*SENT, again])))
    assert found == {"SRC": 1, "SRC.twice": 1}


def test_examples_name_the_line_and_its_place() -> None:
    (example,) = audit(records_record(with_row(AT))).anomalies["LOSS"].examples
    assert (example["id"], example["input"]) == ("3:0", [[SENT[AT].partition, SENT[AT].offset]])


def test_an_input_that_is_read_in_pieces_has_the_same_answer(database: duckdb.DuckDBPyConnection) -> None:
    record = records_record()
    whole = record.input.table
    table = pa.concat_tables([whole.slice(0, 7), whole.slice(7)])
    assert codes(agreed(database, replace(record, input=Stream(table, complete=True)))) == {}


@pytest.mark.parametrize(("n", "due"), [(0, 0), (10**10 - 1, 2**53)])
def test_the_smallest_and_the_largest_numbers_are_those_of_an_event(
    database: duckdb.DuckDBPyConnection, n: int, due: int
) -> None:
    last = Sent(0, sum(each.partition == 0 for each in SENT), b"anna", event("99", "b", n, due, "{}"))
    assert codes(agreed(database, records_record([*RIGHT, row_of("99", "{}", due)], [*SENT, last]))) == {}


def test_no_event_of_this_workload_can_be_late() -> None:
    assert "late" not in audit(records_record()).events
