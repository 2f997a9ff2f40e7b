"""The examples of a count: the position of the row and its input events; at most 32."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oncebench.audit.anomalies import EXAMPLES, Anomaly
from oncebench.audit.python.audit import audit
from oncebench.record import Record
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream
from tests.unit.audit.audit_world import (
    Sent,
    VisibleRow,
    event,
    input_table,
    key_of,
    lay_out,
    make_record,
    make_world,
    observed_table,
    quarantine_table,
    scheduled_us,
)
from tests.unit.audit.windows_world import right_rows, windows_record

WORLD = make_world(6, 2, unfinished=1)
MANY = make_world(EXAMPLES + 3, 2)
KEY = key_of(1)
# Session 1 has the first of every three offsets of partition 1.
ROW_3 = [[1, 45], [1, 48], [1, 51], [1, 54], [1, 57]]
ROW_4 = [[1, 60], [1, 63], [1, 66], [1, 69], [1, 72]]
ROW_7 = [[1, 105], [1, 108], [1, 111], [1, 114], [1, 117]]


def found(code: str, rows: list[VisibleRow] | None = None, **parts: Any) -> Anomaly:
    return audit(make_record(WORLD, rows, **parts)).anomalies[code]


def changed(**rows: VisibleRow) -> list[VisibleRow]:
    """The rows of the world, but for those named r<place>."""
    return [rows.get(f"r{at}", row) for at, row in enumerate(WORLD.rows)]


def test_a_lost_row_comes_with_its_input_and_a_torn_session_with_its_missing_rows() -> None:
    rows = [row for at, row in enumerate(WORLD.rows) if at not in (23, 24, 65)]
    assert found("LOSS", rows).examples == (
        {"id": f"{KEY}:3", "input": ROW_3, "last_event": [1, 297]},
        {"id": f"{KEY}:4", "input": ROW_4, "last_event": [1, 297]},
        {"id": f"{key_of(3)}:5", "input": [[1, 3 * seq + 1] for seq in range(25, 30)], "last_event": [1, 298]},
    )
    assert found("TORN", rows).examples == (
        {"session_key": KEY, "missing": [3, 4], "input": [[1, 297]]},
        {"session_key": key_of(3), "missing": [5], "input": [[1, 298]]},
    )


def test_a_duplicated_row_comes_with_all_its_positions_in_order() -> None:
    again = [*WORLD.rows, replace(WORLD.rows[27], partition=0), WORLD.rows[27]]
    anomaly = found("DUP", again)
    assert anomaly.examples == ({"id": f"{KEY}:7", "rows": [[0, 90], [1, 10], [1, 60]], "input": ROW_7},)
    assert anomaly.split == {"same-partition": 1, "other-partition": 1}
    divergent = found("DIV", [*WORLD.rows, WORLD.rows[27].changed(total=1)])
    assert divergent.examples == ({"id": f"{KEY}:7", "rows": [[1, 10], [1, 60]], "input": ROW_7},)


def test_an_example_has_at_most_32_positions() -> None:
    anomaly = found("DUP", [*WORLD.rows, *[WORLD.rows[27]] * 40])
    (example,) = anomaly.examples
    assert (anomaly.count, len(example["rows"])) == (40, EXAMPLES)


def test_a_phantom_comes_with_the_events_of_its_session() -> None:
    stranger = replace(WORLD.rows[20], key=b"x").changed(session_key="x", j=3)
    early = replace(WORLD.rows[0], partition=1, key=key_of(5).encode()).changed(session_key=key_of(5), j=19)
    anomaly = found("PHAN", [*WORLD.rows, stranger, early, WORLD.rows[21].changed(j=20)])
    assert anomaly.examples == (
        {"id": "x:3", "rows": [[1, 60]], "input": []},
        {"id": f"{key_of(5)}:19", "rows": [[1, 61]], "input": [[1, 3 * seq + 2] for seq in range(95, 99)]},
        {"id": f"{KEY}:20", "rows": [[1, 63]], "input": []},
    )


def test_a_corrupt_row_comes_with_its_text_and_the_expected_payload_if_it_has_an_id() -> None:
    row = WORLD.rows
    rows = changed(
        r21=replace(row[21], value=b"\xff" + b"y" * 300),
        r22=replace(row[22], value=None),
        r23=replace(row[23], key=b"k"),
        r24=row[24].changed(checksum=7),
        r25=row[25].changed(j=-3, events="x"),
    )
    expected = [[row[at].row[name] for name in ("events", "total", "checksum", "ended_at")] for at in (23, 24)]
    assert found("CORR", rows).examples == (
        {"row": [1, 1], "kind": "unreadable", "value": "\\xff" + "y" * 199},
        {"row": [1, 3], "kind": "unreadable", "value": None},
        {"row": [1, 7], "kind": "unreadable", "value": (rows[25].value or b"").decode()},
        {"row": [1, 4], "kind": "wrong-key", "value": (row[23].value or b"").decode(),
         "id": f"{KEY}:3", "expected": expected[0], "input": ROW_3},
        {"row": [1, 6], "kind": "wrong-payload", "value": (rows[24].value or b"").decode(),
         "id": f"{KEY}:4", "expected": expected[1], "input": ROW_4},
    )  # fmt: skip


def test_a_corrupt_window_comes_with_its_own_number_of_events() -> None:
    rows = right_rows()
    chosen = list({row.row["events"]: at for at, row in enumerate(rows)}.values())  # one window of each number
    assert len(chosen) > 1
    wrong = [row.changed(total=-1) if at in chosen else row for at, row in enumerate(rows)]
    examples = audit(windows_record(wrong)).anomalies["CORR"].examples
    events_of = {row.row["session_key"]: row.row["events"] for row in rows}
    assert len(examples) == len(chosen)
    assert all(example["expected"][0] == events_of[example["id"].removesuffix(":0")] for example in examples)


def test_a_reordered_session_comes_with_its_first_row_that_is_too_early() -> None:
    rows = changed(r22=WORLD.rows[35], r35=WORLD.rows[22], r66=WORLD.rows[67], r67=WORLD.rows[66])
    assert found("REORD", rows).examples == (
        {"session_key": KEY, "row": [1, 4], "j_after_j": [2, 3], "input": [[1, 297]]},
        {"session_key": key_of(3), "row": [1, 39], "j_after_j": [6, 7], "input": [[1, 298]]},
    )


def test_a_scattered_session_comes_with_its_first_row_in_two_partitions() -> None:
    rows = changed(r27=replace(WORLD.rows[27], partition=0), r65=replace(WORLD.rows[65], partition=0))
    assert found("SCAT", rows).examples == (
        {"session_key": KEY, "rows": [[0, 30], [1, 0]], "input": [[1, 297]]},
        {"session_key": key_of(3), "rows": [[0, 61], [1, 28]], "input": [[1, 298]]},
    )


def test_the_first_row_of_all_alone_in_a_partition_scatters_its_session() -> None:
    assert found("SCAT", changed(r0=replace(WORLD.rows[0], partition=1))).count == 1


def test_an_accepted_loss_comes_with_the_row_or_the_event() -> None:
    batch = {"kind": "batch", "t_us": 1, "batch": 0, "start_offsets": {}, "end_offsets": {"0": 300, "1": 299}}
    gap = {"kind": "gap", "t_us": 2, "batch": None}
    rows = [row for at, row in enumerate(WORLD.rows) if at != 23]
    of_rows = found("GAP-ROWS", rows, progress=Lines((batch, {**gap, "text": "output/all:none..0"})))
    assert of_rows.examples == ({"id": f"{KEY}:3", "input": ROW_3, "last_event": [1, 297]},)
    sent = [each for at, each in enumerate(WORLD.sent) if at not in (7, 13)]  # session 1, seq 1 and 2
    record = replace(with_input(*sent), progress=Lines((batch, {**gap, "text": "input/1:3..3"})))
    anomalies = audit(record).anomalies
    gone = [{"session_key": KEY, "seq": seq, "acknowledged_at": [1, 3 * seq]} for seq in (1, 2)]
    assert anomalies["GAP-EVENTS"].examples == ({"kind": "accepted", **gone[0]},)
    assert anomalies["SRC"].examples == ({"kind": "absent", **gone[1]},)


def test_each_kind_of_disagreement_between_reads_comes_with_its_position() -> None:
    placed = lay_out(WORLD.rows)
    seen = [(p, o, replace(row, value=b"other") if at == 29 else row) for at, (p, o, row) in enumerate(placed)]
    seen += [(*seen[30][:2], replace(WORLD.rows[0], key=None)), (1, 10_000, WORLD.rows[0])]
    ends = {"output": {"1": {"lso": 20_000, "hw": 20_000}}, "final_complete": True}
    record = make_record(WORLD, observed=Stream(observed_table(seen, [1] * len(seen)), complete=True), ends=ends)
    table = record.final.table
    twice = table.slice(60, 1).set_column(4, table.schema.field(4), [pa.array([b"other"], pa.binary())])
    final = Stream(pa.concat_tables([table.slice(0, 33), table.slice(34), twice]), complete=True)
    anomaly = audit(replace(record, final=final)).anomalies["INCO"]
    behind = [
        {"id": f"{KEY}:{j}", "input": [[1, 3 * seq] for seq in range(5 * j, 5 * j + 5)], "last_event": [1, 297]}
        for j in (9, 10, 13)
    ]
    first = {"id": f"{key_of(0)}:0", "input": [[0, 3 * seq] for seq in range(5)], "last_event": [0, 297]}
    third = {"id": f"{key_of(3)}:0", "input": [[1, 3 * seq + 1] for seq in range(5)], "last_event": [1, 298]}
    assert anomaly.examples == (
        {"row": [1, 13], "kind": "changed", **behind[0]},
        {"row": [1, 19], "kind": "vanished", **behind[2]},
        {"row": [1, 10_000], "kind": "vanished", **first},
        {"row": [1, 30], "kind": "final-read-twice", **third},
        {"row": [1, 15], "kind": "observed-twice", **behind[1], "also": first},
    )
    assert anomaly.split == {"changed": 1, "vanished": 2, "final-read-twice": 1, "observed-twice": 1}


def test_a_position_with_two_rows_comes_with_both_of_them() -> None:
    placed, ends = lay_out(WORLD.rows), {"output": {"0": {"lso": 500, "hw": 500}}, "final_complete": True}
    seen = [(*placed[at][:2], replace(WORLD.rows[at + 3], key=b"x" * at)) for at in range(2)]
    seen += [(0, 400, replace(WORLD.rows[0], value=b"{")), (0, 401, WORLD.rows[0].changed(j=20))]
    observed = Stream(observed_table(seen, [9, 8, 7, 6]), complete=True)
    anomaly = found("INCO", observed=observed, ends=ends)
    assert [(example["row"], example.get("id"), example.get("also", {}).get("id")) for example in anomaly.examples] == [
        (list(placed[0][:2]), f"{key_of(0)}:0", f"{key_of(0)}:3"),
        (list(placed[1][:2]), f"{key_of(0)}:1", f"{key_of(0)}:4"),
        ([0, 400], None, None),
        ([0, 401], None, None),
    ]
    assert anomaly.examples[0]["also"]["input"] == [[0, 3 * seq] for seq in range(15, 20)]


def test_each_of_32_positions_with_two_rows_comes_with_both() -> None:
    seen = [(*place, MANY.rows[(at + 40) % len(MANY.rows)]) for at, (*place, _) in enumerate(lay_out(MANY.rows))]
    observed = Stream(observed_table(seen, [1] * len(seen)), complete=True)
    examples = audit(make_record(MANY, observed=observed)).anomalies["INCO"].examples
    sessions = [0] * 20 + [2] * 12  # the first ones of partition 0
    assert [(example["id"], example["also"]["id"]) for example in examples] == [
        (f"{key_of(session)}:{at % 20}", f"{key_of(session + 2)}:{at % 20}") for at, session in enumerate(sessions)
    ]


def with_input(*sent: Sent, held: list[dict[str, Any]] | None = None) -> Record:
    quarantine = Stream(quarantine_table(held or []), complete=True)
    return make_record(WORLD, input=Stream(input_table(list(sent)), complete=True), quarantine=quarantine)


def test_each_load_fault_comes_with_its_event_and_acknowledged_position() -> None:
    sent = [each for at, each in enumerate(WORLD.sent) if at not in (7, 13)]
    twice, moved = sent[20], sent[25]
    sent[25] = replace(moved, offset=5_000)
    anomaly = audit(with_input(*sent, replace(twice, offset=7_000))).anomalies["SRC"]
    assert anomaly.split == {"absent": 2, "twice": 1, "elsewhere": 1}
    places = {each: [each.partition, each.offset] for each in (WORLD.sent[7], WORLD.sent[13], twice, moved)}
    kinds = ("absent", "absent", "twice", "elsewhere")
    assert anomaly.examples == tuple(
        {"session_key": (each.key or b"").decode(), "seq": at // 6, "kind": kind, "acknowledged_at": place}
        for (each, place), kind, at in zip(places.items(), kinds, (7, 13, 22, 27), strict=True)
    )


def test_each_quarantine_fault_comes_with_its_position() -> None:
    known = event(KEY, 4, 1, scheduled_us(1, 4))
    broken = [Sent(1, 1_000, KEY.encode(), b"{"), Sent(1, 1_001, KEY.encode(), known), Sent(0, 1_002, None, b"")]
    base = {"key": KEY.encode(), "value": b"x", "reason": "not-json"}
    held = [
        base | {"source_partition": 1, "source_offset": 1_000},
        base | {"source_partition": 1, "source_offset": 8},
        base | {"source_partition": None, "source_offset": 1_001},
        base | {"source_partition": 2**19, "source_offset": 0},
    ]
    anomaly = audit(with_input(*WORLD.sent, *broken, held=held)).anomalies["QUAR"]
    assert anomaly.split == {"missing": 2, "unasked": 3, "changed": 1}
    assert anomaly.examples == (
        {"kind": "missing", "input": [[0, 1_002]], "reason": "null-key"},
        {"kind": "missing", "input": [[1, 1_001]], "reason": "after-end"},
        {"kind": "unasked", "input": [[1, 8]], "reason": None},
        {"kind": "changed", "input": [[1, 1_000]], "reason": "not-json"},
        {"kind": "unasked", "input": [], "row": [0, 2]},
        {"kind": "unasked", "input": [], "row": [0, 3]},
    )


def test_stuck_partitions_come_sorted_by_number_and_leftovers_by_name() -> None:
    ends = {str(p): {"lso": 1, "hw": 2} for p in (10, 9, 0)} | {"3": {"lso": 2, "hw": 2}}
    parts = {"output": ends, "final_complete": True, "leftovers": ["b", "a"]}
    examples = found("STALL-LSO", ends=parts).examples
    assert [(example["partition"], example["lso"], example["hw"]) for example in examples] == [
        (0, 1, 2),
        (9, 1, 2),
        (10, 1, 2),
    ]
    assert found("ORPH", ends=parts).examples == ({"what": "a"}, {"what": "b"})


def test_stalled_rows_have_the_examples_of_pending_rows() -> None:
    pending = found("PEND", [], progress=Lines(()))
    stalled = found("STALL", [], progress=Lines(()), timeline=Lines(({"event": "stalled"},)))
    assert pending.examples[0] == {
        "id": f"{key_of(0)}:0", "input": [[0, 3 * seq] for seq in range(5)], "last_event": [0, 297],
    }  # fmt: skip
    assert (stalled.count, stalled.examples, stalled.split) == (pending.count, pending.examples, {})


@cache
def many_faults() -> dict[str, Record]:
    """By code, a record with a few more faults than examples are kept."""
    rows = list(MANY.rows)
    halves = [row for row in rows if row.row["j"] < 10]
    swapped = [row for at in range(0, len(rows), 20) for row in (rows[at + 1], rows[at], *rows[at + 2 : at + 20])]
    strange = [row.changed(j=20) for row in rows[::20]]
    observed = Stream(observed_table([(0, 10_000 + at, rows[0]) for at in range(40)], [1] * 40), complete=True)
    ends = {"output": {str(p): {"lso": 20_000, "hw": 20_001} for p in range(40)}, "final_complete": True}
    sound = make_record(MANY)
    nowhere = quarantine_table(
        [{"key": b"", "value": b"", "reason": "", "source_partition": None, "source_offset": None}] * 40
    )
    return {
        "TORN": make_record(MANY, halves),
        "PEND": make_record(MANY, [], progress=Lines(())),
        "REORD": make_record(MANY, swapped),
        "SCAT": make_record(MANY, [replace(row, partition=40) if row.row["j"] == 19 else row for row in rows]),
        "PHAN": make_record(MANY, [*rows, *strange]),
        "DIV": make_record(MANY, [*rows, *(row.changed(total=1) for row in rows[::20])]),
        "INCO": make_record(MANY, observed=observed, ends=ends),
        "STALL-LSO": make_record(MANY, ends=ends),
        "ORPH": make_record(MANY, ends={**sound.ends, "leftovers": list(map(str, range(40)))}),
        "SRC": replace(sound, input=Stream(sound.input.table.slice(40), complete=True)),
        "QUAR": replace(sound, quarantine=Stream(nowhere, complete=True)),
    }


@pytest.mark.parametrize("code", sorted(many_faults()))
def test_each_code_has_32_examples_and_counts_all(code: str) -> None:
    anomaly = audit(many_faults()[code]).anomalies[code]
    assert (len(anomaly.examples), anomaly.count > EXAMPLES) == (EXAMPLES, True)


def test_more_than_32_examples_are_refused() -> None:
    Anomaly(examples=({},) * EXAMPLES)
    with pytest.raises(ValueError, match=f"{EXAMPLES + 1} examples, at most {EXAMPLES}"):
        Anomaly(examples=({},) * (EXAMPLES + 1))


def test_examples_hold_no_numpy_numbers() -> None:
    rows = [*WORLD.rows[1:], WORLD.rows[30].changed(total=1), WORLD.rows[50].changed(j=44)]
    examples = [each for anomaly in audit(make_record(WORLD, rows)).anomalies.values() for each in anomaly.examples]
    assert len(examples) == 6
    assert not [item for item in leaves(examples) if isinstance(item, np.generic)]


def leaves(item: Any) -> list[Any]:
    inside = item.values() if isinstance(item, dict) else item if isinstance(item, list) else None
    return [item] if inside is None else [leaf for each in inside for leaf in leaves(each)]
