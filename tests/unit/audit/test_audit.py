"""Each anomaly by itself: one thing done to the rows, one code found, and no other."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import orjson
import pytest

from oncebench.audit.anomalies import CATALOGUE, EXAMPLES
from oncebench.audit.python.audit import audit, committed_ends
from oncebench.audit.python.model import Events, Expected, Invalid, expected_output
from oncebench.audit.python.outputs import FIELDS
from oncebench.record import INPUT, Ledger, Plan, RecordError
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream
from tests.unit.audit.audit_world import (
    SEED,
    STARTED_US,
    VisibleRow,
    committed_to,
    final_table,
    input_table,
    key_of,
    lay_out,
    make_record,
    make_world,
)

WORLD = make_world(6, 2)


def without(*gone: int) -> list[VisibleRow]:
    return [row for at, row in enumerate(WORLD.rows) if at not in gone]


def with_row(at: int, row: VisibleRow) -> list[VisibleRow]:
    return [*WORLD.rows[:at], row, *WORLD.rows[at + 1 :]]


def test_a_faultless_run_is_checked_for_every_code_and_has_none() -> None:
    findings = audit(make_record(WORLD))
    assert findings.counts() == {}
    assert findings.anomalies.keys() == CATALOGUE.keys()
    assert findings.rows == {
        "expected": 120, "visible": 120, "visible_distinct": 120,
        "lost": 0, "duplicated": 0, "pending": 0, "corrupt": 0, "phantom": 0,
    }  # fmt: skip
    assert findings.sessions == {
        "planned": 6, "acknowledged": 6, "finished": 6, "unfinished": 0, "visible": 6, "torn": 0, "lost": 0,
    }  # fmt: skip


def test_a_lost_row_is_counted_as_LOSS_and_tears_its_session() -> None:
    findings = audit(make_record(WORLD, without(23)))
    assert findings.counts() == {"LOSS": 1, "TORN": 1}
    assert findings.anomalies["LOSS"].split == {"whole-sessions": 0, "torn-sessions": 1}
    (example,) = findings.anomalies["LOSS"].examples
    assert example["id"] == f"{key_of(1)}:3"
    # session 1 has every third of partition 1's offsets: its events seq 15..19 explain row 3
    assert example["input"] == [[1, 3 * seq] for seq in range(15, 20)]
    assert example["last_event"] == [1, 297]
    (torn,) = findings.anomalies["TORN"].examples
    assert (torn["session_key"], torn["missing"]) == (key_of(1), [3])


def test_a_session_without_any_row_is_lost_and_not_torn() -> None:
    findings = audit(make_record(WORLD, without(*range(40, 60))))
    assert findings.counts() == {"LOSS": 20}
    assert findings.anomalies["LOSS"].split == {"whole-sessions": 20, "torn-sessions": 0}
    assert findings.sessions["lost"] == 1


def test_a_session_with_a_single_row_left_is_torn_and_not_lost() -> None:
    findings = audit(make_record(WORLD, without(*range(40, 59))))
    assert findings.counts() == {"LOSS": 19, "TORN": 1}
    assert findings.anomalies["LOSS"].split == {"whole-sessions": 0, "torn-sessions": 19}


def test_a_session_with_events_in_two_partitions_is_covered_only_when_both_are() -> None:
    moved = [
        replace(each, partition=1, offset=1000 + at)
        if each.key == key_of(0).encode() and json.loads(each.value or b"")["seq"] >= 50
        else each
        for at, each in enumerate(WORLD.sent)
    ]
    record = make_record(WORLD, WORLD.rows[20:], input=Stream(input_table(moved), complete=True))
    for ends, code in (({0: 0, 1: 9000}, "PEND"), ({0: 9000, 1: 0}, "PEND"), ({0: 9000, 1: 9000}, "LOSS")):
        found = audit(replace(record, progress=committed_to(ends))).counts()
        assert found[code] == 20, ends


def test_rows_of_uncommitted_input_are_pending_and_not_lost() -> None:
    # the last events of sessions 1, 3, 5 stand at 297, 298, 299 of partition 1
    gone = [20 * session + 4 for session in (1, 3, 5)]
    findings = audit(make_record(WORLD, without(*gone), progress=committed_to({0: 300, 1: 298})))
    assert findings.counts() == {"LOSS": 1, "TORN": 1, "PEND": 2}
    assert findings.anomalies["LOSS"].examples[0]["id"] == f"{key_of(1)}:4"


def test_without_a_committed_batch_nothing_is_lost() -> None:
    assert audit(make_record(WORLD, [], progress=Lines(()))).counts() == {"PEND": 120}


def test_pending_rows_of_a_run_that_gave_up_are_stalled() -> None:
    stalled = Lines(({"event": "drained"}, {"event": "stalled"}))
    assert audit(make_record(WORLD, [], progress=Lines(()), timeline=stalled)).counts() == {"STALL": 120}
    findings = audit(make_record(WORLD, timeline=stalled))
    assert findings.counts() == {"STALL": 1}
    assert findings.drained is False


def test_a_run_neither_drained_nor_stalled_has_an_unknown_end() -> None:
    assert audit(make_record(WORLD, timeline=Lines(({"event": "load-done"},)))).drained is None


def test_the_committed_end_is_the_highest_of_all_batches() -> None:
    lines = [
        {"kind": "started"},
        {"kind": "batch", "batch": 0, "end_offsets": {"0": 9, "1": 4}},
        {"kind": "batch", "batch": 1, "end_offsets": {"0": 12}},
        {"kind": "batch", "batch": 1, "end_offsets": {"0": 11, "1": 5}},
    ]
    assert committed_ends(lines) == {0: 12, 1: 5}


@pytest.mark.parametrize("line", [{"kind": "batch"}, {"kind": "batch", "end_offsets": 3},
                                  {"kind": "batch", "end_offsets": {"x": 3}}])  # fmt: skip
def test_a_batch_line_without_an_end_is_refused(line: dict[str, object]) -> None:
    with pytest.raises(RecordError, match="end_offsets"):
        committed_ends([line])


def test_a_run_without_recorded_ends_has_no_complete_final_read() -> None:
    findings = audit(make_record(WORLD, ends={}))
    assert (findings.counts(), findings.complete["final"]) == ({}, False)


def test_the_rows_that_the_caller_expects_are_those_that_are_judged() -> None:
    expected = expected_output(input_table(make_world(7, 2).sent))
    findings = audit(make_record(WORLD), expected=expected)
    assert (findings.rows["expected"], findings.rows["visible_distinct"]) == (140, 120)


def test_each_further_copy_of_a_row_is_one_DUP() -> None:
    again = [WORLD.rows[7], replace(WORLD.rows[7], partition=1), WORLD.rows[8]]
    findings = audit(make_record(WORLD, [*WORLD.rows, *again]))
    assert findings.counts() == {"DUP": 3, "SCAT": 1}
    assert findings.anomalies["DUP"].split == {"same-partition": 2, "other-partition": 1}
    assert {example["id"] for example in findings.anomalies["DUP"].examples} == {f"{key_of(0)}:7", f"{key_of(0)}:8"}
    assert len(findings.anomalies["DUP"].examples[0]["rows"]) == 3
    assert findings.anomalies["DUP"].examples[0]["input"] == [[0, 3 * seq] for seq in range(35, 40)]


def test_copies_of_an_early_and_a_late_row_are_counted_by_their_own_partitions() -> None:
    again = [replace(WORLD.rows[1], partition=1), WORLD.rows[87]]
    duplicates = audit(make_record(WORLD, [*WORLD.rows, *again])).anomalies["DUP"]
    assert duplicates.split == {"same-partition": 1, "other-partition": 1}


@pytest.mark.parametrize("field", ["events", "total", "checksum", "ended_at"])
def test_a_changed_payload_is_CORR_and_nothing_else(field: str) -> None:
    row = WORLD.rows[50]
    findings = audit(make_record(WORLD, with_row(50, row.changed(**{field: row.row[field] ^ 1}))))
    assert findings.counts() == {"CORR": 1}
    (example,) = findings.anomalies["CORR"].examples
    assert example["kind"] == "wrong-payload"
    assert example["id"] == f"{key_of(2)}:10"
    assert example["expected"] == [row.row[name] for name in ("events", "total", "checksum", "ended_at")]


@pytest.mark.parametrize(
    "change",
    [
        {"total": "7"},
        {"total": 7.0},
        {"total": None},
        {"events": True},
        {"more": 1},
        {"checksum": 2**64},
        {"ended_at": []},
        {"more": "\ud800"},
    ],
)
def test_a_field_of_the_wrong_type_is_CORR_and_the_row_is_still_there(change: dict[str, object]) -> None:
    findings = audit(make_record(WORLD, with_row(50, WORLD.rows[50].changed(**change))))
    assert findings.counts() == {"CORR": 1}
    assert findings.anomalies["CORR"].split["unreadable"] == 1


@pytest.mark.parametrize("field", ["events", "total", "checksum", "ended_at"])
def test_a_missing_field_is_CORR(field: str) -> None:
    row = {name: value for name, value in WORLD.rows[50].row.items() if name != field}
    changed = replace(WORLD.rows[50], value=json.dumps(row).encode())
    assert audit(make_record(WORLD, with_row(50, changed))).counts() == {"CORR": 1}


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"session_key": 7, "j": 1}',
        b'{"j": 1}',
        b'{"j": NaN}',
        b'{"session_key": "\\ud800", "j": 1}',
    ],
)
def test_a_value_that_names_no_row_is_CORR_and_its_row_is_lost(value: bytes | None) -> None:
    findings = audit(make_record(WORLD, with_row(50, replace(WORLD.rows[50], value=value))))
    assert findings.counts() == {"CORR": 1, "LOSS": 1, "TORN": 1}


def test_every_row_is_lost_if_no_value_can_be_read() -> None:
    rows = [replace(row, value=b"{") for row in WORLD.rows]
    assert audit(make_record(WORLD, rows)).counts() == {"CORR": 120, "LOSS": 120}


@pytest.mark.parametrize("key", [None, b"", b"other", key_of(3).encode()])
def test_a_row_under_another_key_is_CORR(key: bytes | None) -> None:
    findings = audit(make_record(WORLD, with_row(50, replace(WORLD.rows[50], key=key))))
    assert findings.counts() == {"CORR": 1}
    assert findings.anomalies["CORR"].split == {"unreadable": 0, "wrong-key": 1, "wrong-payload": 0}


def test_a_truncated_value_shows_its_beginning_in_the_example() -> None:
    cut = replace(WORLD.rows[50], value=(WORLD.rows[50].value or b"")[:30])
    (example,) = audit(make_record(WORLD, with_row(50, cut))).anomalies["CORR"].examples
    assert example["value"] == (cut.value or b"").decode()
    assert example["row"][0] == 0


def test_another_spelling_of_the_same_json_is_no_anomaly() -> None:
    row = WORLD.rows[3].row
    spelled = json.dumps(dict(reversed(row.items())), indent=2).replace("b-", "\\u0062-")
    assert audit(make_record(WORLD, with_row(3, replace(WORLD.rows[3], value=spelled.encode())))).counts() == {}


def test_two_copies_that_differ_are_DIV_besides_DUP_and_CORR() -> None:
    findings = audit(make_record(WORLD, [*WORLD.rows, WORLD.rows[7].changed(total=1), WORLD.rows[8]]))
    assert findings.counts() == {"DUP": 2, "DIV": 1, "CORR": 1}
    (example,) = findings.anomalies["DIV"].examples
    assert example["id"] == f"{key_of(0)}:7"


def test_copies_are_compared_to_the_last_digit_of_the_largest_numbers() -> None:
    copies = [WORLD.rows[7].changed(total=total) for total in (2**63 - 1, 2**63 - 2)]
    assert audit(make_record(WORLD, [*with_row(7, copies[0]), copies[1]])).counts() == {"DUP": 1, "DIV": 1, "CORR": 2}


def test_two_copies_that_differ_only_in_spelling_are_not_DIV() -> None:
    spaced = replace(WORLD.rows[7], value=json.dumps(WORLD.rows[7].row, indent=1).encode())
    assert audit(make_record(WORLD, [*WORLD.rows, spaced])).counts() == {"DUP": 1}


def test_unreadable_copies_are_compared_by_their_bytes() -> None:
    broken = WORLD.rows[7].changed(total="x")
    twice = audit(make_record(WORLD, [*with_row(7, broken), broken]))
    assert twice.counts() == {"CORR": 2, "DUP": 1}
    other = audit(make_record(WORLD, [*with_row(7, broken), WORLD.rows[7].changed(total="y")]))
    assert other.counts() == {"CORR": 2, "DUP": 1, "DIV": 1}


def test_a_row_that_no_input_explains_is_PHAN() -> None:
    world = make_world(4, 2, unfinished=1)
    stranger = replace(world.rows[0], key=b"x").changed(session_key="x")
    early = replace(world.rows[0], key=key_of(3).encode()).changed(session_key=key_of(3))
    another = stranger.changed(j=1)
    beyond = [world.rows[0].changed(j=j) for j in (20, 21, -1)]
    findings = audit(make_record(world, [*world.rows, stranger, another, early, *beyond]))
    assert findings.counts() == {"PHAN": 6}
    assert findings.anomalies["PHAN"].split == {"unknown-session": 2, "unfinished-session": 1, "row-number": 3}
    assert findings.sessions["unfinished"] == 1


def test_the_first_row_of_all_may_be_a_phantom() -> None:
    stranger = replace(WORLD.rows[0], key=b"x").changed(session_key="x")
    assert audit(make_record(WORLD, [stranger, *WORLD.rows])).counts() == {"PHAN": 1}


def test_a_phantom_visible_twice_is_one_phantom_and_one_duplicate() -> None:
    stranger = WORLD.rows[0].changed(j=33)
    assert audit(make_record(WORLD, [*WORLD.rows, stranger, stranger])).counts() == {"PHAN": 1, "DUP": 1}


def test_rows_of_a_session_that_come_in_another_order_are_REORD_once() -> None:
    rows = list(WORLD.rows)
    rows[2], rows[5] = rows[5], rows[2]
    findings = audit(make_record(WORLD, rows))
    assert findings.counts() == {"REORD": 1}
    assert findings.anomalies["REORD"].examples[0]["session_key"] == key_of(0)


def test_a_replay_after_a_loss_of_nothing_is_no_REORD() -> None:
    assert audit(make_record(WORLD, [*WORLD.rows[:30], *WORLD.rows[10:]])).counts() == {"DUP": 20}


def test_sessions_may_be_interleaved_in_any_order() -> None:
    rows = [row for j in range(20) for row in WORLD.rows[j::20]]
    assert audit(make_record(WORLD, rows)).counts() == {}


def test_a_later_session_may_stand_before_an_earlier_one_in_every_partition() -> None:
    # the very last row is lost, so that the expected rows seen do not fill whole sessions
    rows = [row for session in (5, 3, 1, 4, 2, 0) for row in WORLD.of(session)]
    del rows[19]
    assert audit(make_record(WORLD, rows)).counts() == {"LOSS": 1, "TORN": 1}


def test_a_stuck_last_stable_offset_is_STALL_LSO_per_partition() -> None:
    ends = {"output": {"0": {"lso": 60, "hw": 61}, "1": {"lso": 200, "hw": 200}}, "final_complete": True}
    findings = audit(make_record(WORLD, ends=ends))
    assert findings.counts() == {"STALL-LSO": 1}
    example = {"partition": 0, "lso": 60, "hw": 61, "kind": "untold", "open": []}
    assert findings.anomalies["STALL-LSO"].examples == (example,)


def test_an_incomplete_final_read_is_reported() -> None:
    record = make_record(WORLD)
    assert audit(record).complete == {"input": True, "final": True, "observed": True, "quarantine": True}
    cut = replace(record, final=replace(record.final, complete=False))
    assert not audit(cut).complete["final"]
    unsaid = replace(record, ends={"output": record.ends["output"]})
    assert not audit(unsaid).complete["final"]


def test_the_number_of_examples_is_bounded_and_the_count_is_not() -> None:
    world = make_world(10, 3)
    findings = audit(make_record(world, []))
    assert findings.counts() == {"LOSS": 200}
    assert len(findings.anomalies["LOSS"].examples) == EXAMPLES
    duplicated = audit(make_record(world, [*world.rows, *world.rows]))
    assert duplicated.counts() == {"DUP": 200}
    assert len(duplicated.anomalies["DUP"].examples) == EXAMPLES
    flipped = audit(make_record(world, [row.changed(total=-1) for row in world.rows]))
    assert flipped.counts() == {"CORR": 200}
    assert len(flipped.anomalies["CORR"].examples) == EXAMPLES


def test_a_position_read_twice_counts_once() -> None:
    placed = lay_out(WORLD.rows)
    final = Stream(final_table([*placed, *placed[:9]]), complete=True)
    assert audit(make_record(WORLD, final=final)).counts() == {}


def test_a_hundred_thousand_rows_with_a_thousand_faults_are_counted_exactly() -> None:
    sessions = 5000
    rng = np.random.default_rng(5)
    nothing = np.zeros(0, np.int64)
    number = np.arange(sessions)
    expected = Expected(
        session_keys=[key_of(session) for session in range(sessions)],
        key=number,
        total=rng.integers(0, 5_000_000, (sessions, 20)),
        checksum=rng.integers(1, 2**32, (sessions, 20)),
        ended_at=np.broadcast_to(number[:, None] + STARTED_US, (sessions, 20)),
        last_partition=number % 4,
        last_offset=number,
        events=Events(nothing, nothing, nothing, nothing),
        invalid=Invalid(nothing, nothing),
        keys=[key_of(session) for session in range(sessions)],
    )
    rows = [
        VisibleRow(session % 4, key.encode(), orjson.dumps(dict(zip(FIELDS, (key, j, 5, total, crc, at), strict=True))))
        for session, key in enumerate(expected.session_keys)
        for j, (total, crc, at) in enumerate(
            zip(expected.total[session].tolist(), expected.checksum[session].tolist(),
                expected.ended_at[session].tolist(), strict=True)
        )
    ]  # fmt: skip
    visible = [row for at, row in enumerate(rows) if at % 1000 != 17]
    again = rows[::200]
    flipped = [row.changed(checksum=0) for row in rows[3::500]]
    record = replace(
        make_record(make_world(1), visible + again + flipped),
        plan=Plan(SEED, 0, 0, "input", STARTED_US),
        ledger=Ledger(*(np.zeros(0, kind) for kind in ("u4", "u1", "i8", "i8", "i8", "i4", "i8"))),
        input=Stream(INPUT.empty_table(), complete=True),
        progress=committed_to(dict.fromkeys(range(4), sessions)),
    )
    findings = audit(record, expected=expected)
    assert findings.counts() == {"LOSS": 100, "TORN": 100, "DUP": 700, "CORR": 200, "DIV": 200}
