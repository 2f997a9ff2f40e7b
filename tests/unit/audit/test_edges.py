"""Edge cases of the Python auditor that a changed sign or number would move."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from oncebench.audit.python import inputs, model
from oncebench.audit.python.attribution import batch_of_session
from oncebench.audit.python.audit import audit, committed_ends, first_sightings
from oncebench.audit.python.events import parse_json, read_event
from oncebench.audit.python.model import expected_output
from oncebench.audit.python.outputs import read_outputs
from oncebench.audit.python.reads import join_reads
from oncebench.audit.python.records import keep
from oncebench.record import Record
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream
from tests.unit.audit.audit_world import (
    STARTED_US,
    Sent,
    committed_to,
    event,
    final_table,
    input_table,
    key_of,
    lay_out,
    ledger_of,
    make_record,
    make_world,
    observed_table,
    quarantine_table,
    scheduled_us,
)

WORLD = make_world(4, 2)
PLACED = lay_out(WORLD.rows)


def seen(placed: list[tuple[int, int, object]], seen_us: list[int], world: object = WORLD, **parts: object) -> Record:
    observed = Stream(observed_table(placed, seen_us), complete=True)  # type: ignore[arg-type]
    return make_record(world, observed=observed, **parts)  # type: ignore[arg-type]


# What the pipeline has committed


def test_a_partition_without_committed_events_ends_at_0() -> None:
    assert committed_ends([{"kind": "batch", "end_offsets": {"1": 0}}]) == {1: 0}


def test_an_event_at_offset_0_of_a_partition_without_a_committed_end_is_not_covered() -> None:
    sent = [Sent(int(seq > 0), seq, b"k", event("k", seq, 1, 7)) for seq in range(100)]
    record = make_record(WORLD, [], input=Stream(input_table(sent), complete=True), progress=committed_to({1: 100}))
    assert audit(record).counts()["PEND"] == 20
    assert "PEND" not in audit(replace(record, progress=committed_to({0: 1, 1: 100}))).counts()


def test_batches_of_sessions_are_whole_numbers() -> None:
    expected = expected_output(make_record(WORLD).input.table)
    assert batch_of_session(expected, []).dtype == np.int64


# The load and its ledger


def test_sessions_without_planned_events_are_not_acknowledged() -> None:
    ledger = ledger_of(WORLD)
    chosen = ledger.session == 2
    some = replace(ledger, **{name: column[chosen] for name, column in vars(ledger).items()})
    assert audit(make_record(WORLD, ledger=some)).sessions["acknowledged"] == 1
    one = replace(ledger, **{name: column[:1] for name, column in vars(ledger).items()})
    assert audit(make_record(WORLD, ledger=one)).sessions["acknowledged"] == 1


def test_an_event_acknowledged_at_the_first_microsecond_is_acknowledged_and_sent() -> None:
    ledger = ledger_of(WORLD)
    early = replace(ledger, acked_us=np.minimum(ledger.acked_us, 1), sent_us=np.minimum(ledger.sent_us, 1))
    findings = audit(make_record(WORLD, ledger=early))
    assert (findings.sessions["acknowledged"], findings.events["foreign"], findings.counts()) == (4, 0, {})
    gone = make_record(WORLD, ledger=early, input=Stream(input_table(WORLD.sent[1:]), complete=True))
    assert audit(gone).anomalies["SRC"].split == {"absent": 1, "twice": 0, "elsewhere": 0}


def test_a_load_whose_last_session_was_never_acknowledged_has_all_others_acknowledged() -> None:
    ledger = ledger_of(WORLD)
    cut = replace(ledger, acked_us=np.where(ledger.session == 3, 0, ledger.acked_us))
    assert audit(make_record(WORLD, ledger=cut)).sessions["acknowledged"] == 3


def test_an_event_acknowledged_at_offset_0_that_stands_elsewhere_is_SRC() -> None:
    sent = [replace(each, offset=5_000) if at == 0 else each for at, each in enumerate(WORLD.sent)]
    assert (WORLD.sent[0].partition, WORLD.sent[0].offset) == (0, 0)
    found = audit(make_record(WORLD, input=Stream(input_table(sent), complete=True))).anomalies["SRC"]
    assert found.split == {"absent": 0, "twice": 0, "elsewhere": 1}


def test_an_event_of_a_planned_session_that_the_ledger_does_not_have_is_foreign() -> None:
    ledger = ledger_of(WORLD)
    without = replace(ledger, **{name: np.delete(column, 5) for name, column in vars(ledger).items()})
    for due_us in (scheduled_us(0, 5), scheduled_us(0, 1)):  # its own, or that of another event
        changed = json.loads(WORLD.sent[20].value or b"") | {"scheduled_at": due_us}
        sent = [*WORLD.sent[:20], replace(WORLD.sent[20], value=json.dumps(changed).encode()), *WORLD.sent[21:]]
        findings = audit(make_record(WORLD, ledger=without, input=Stream(input_table(sent), complete=True)))
        assert (findings.events["foreign"], findings.counts()) == (1, {})


@pytest.mark.parametrize("step", [1, 7, 100, 399])
def test_the_load_may_be_compared_in_pieces_of_any_size(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [each for at, each in enumerate(WORLD.sent) if at not in (7, 13, 399)]
    sent[25] = replace(sent[25], offset=5_000)
    again = replace(sent[20], offset=7_000)
    record = make_record(WORLD, input=Stream(input_table([*sent, again]), complete=True))
    whole = audit(record)
    monkeypatch.setattr(inputs, "STEP", step)
    pieces = audit(record)
    assert whole.anomalies["SRC"].split == {"absent": 3, "twice": 1, "elsewhere": 1}
    assert (pieces.anomalies, pieces.events) == (whole.anomalies, whole.events)


def test_events_in_input_and_quarantine_are_counted() -> None:
    broken = Sent(0, 1_000, key_of(0).encode(), b"{")
    held = {"key": broken.key, "value": broken.value, "reason": "too-large", "source_partition": 0}
    entries = quarantine_table([held | {"source_offset": 1_000}] * 2)
    record = make_record(
        WORLD,
        input=Stream(input_table([*WORLD.sent, broken]), complete=True),
        quarantine=Stream(entries, complete=True),
    )
    findings = audit(record)
    assert findings.events == {
        "in_topic": 401, "invalid": 1, "foreign": 1, "quarantined": 2, "quarantined_for_another_reason": 2,
    }  # fmt: skip
    assert (findings.invalid, findings.counts()) == ({"not-json": 1}, {})


def test_the_largest_position_is_valid_and_the_next_is_not() -> None:
    base = {"key": b"k", "value": b"v", "reason": "not-json"}
    for partition, offset, example in (
        (2**19 - 1, 2**44 - 1, {"input": [[2**19 - 1, 2**44 - 1]], "reason": None}),
        (0, 0, {"input": [[0, 0]], "reason": None}),
        (0, 2**44, {"input": [], "row": [0, 0]}),
        (0, -1, {"input": [], "row": [0, 0]}),
    ):
        entries = quarantine_table([base | {"source_partition": partition, "source_offset": offset}])
        found = audit(make_record(WORLD, quarantine=Stream(entries, complete=True))).anomalies["QUAR"]
        assert found.examples == ({"kind": "unasked"} | example,), (partition, offset)


# The model of the pipeline


@pytest.mark.parametrize("step", [1, 7, 100, 399])
def test_the_input_may_be_read_in_pieces_of_any_size(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = [replace(each, partition=int(at >= 200), offset=at) for at, each in enumerate(WORLD.sent)]
    for sent in (WORLD.sent, halves):
        whole = expected_output(input_table(sent))
        monkeypatch.setattr(model, "STEP", step)
        pieces = expected_output(input_table(sent))
        monkeypatch.undo()
        assert pieces.session_keys == whole.session_keys
        assert np.array_equal(pieces.total, whole.total)
        assert (pieces.earlier, pieces.last_offset.tolist()) == (whole.earlier, whole.last_offset.tolist())
    assert len(whole.earlier) == 4


def test_fields_at_their_bounds_are_valid_and_a_value_of_65536_bytes_is_not_too_large() -> None:
    for changes in ({"value": 0, "scheduled_at": 0}, {"value": 999_999, "scheduled_at": 2**53}):
        item = {"session_key": "k", "seq": 7, "type": "entry_event"} | changes
        wanted = ("k", 7, changes["value"], changes["scheduled_at"])
        assert read_event(b"k", json.dumps(item).encode()) == wanted
        assert read_event(b"k", json.dumps(item).encode().ljust(65_536)) == wanted
        assert read_event(b"k", json.dumps(item).encode().ljust(65_537)) == "too-large"


def test_text_that_is_no_json_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"^nested too deep$"):
        parse_json(b"[" * 60_000)
    with pytest.raises(ValueError, match=r"^NaN is not JSON$"):
        parse_json(b'{"a": NaN}')


# Two reads of the output


def test_a_row_seen_at_the_end_of_the_final_read_has_not_vanished() -> None:
    ends = {"output": {"0": {"lso": 500, "hw": 500}}, "final_complete": True}
    for place, count in (((0, 499), 1), ((0, 500), 0), ((7, 0), 0)):
        record = seen([*PLACED, (*place, WORLD.rows[0])], [STARTED_US] * 81, ends=ends)
        assert audit(record).anomalies["INCO"].count == count, place


def test_the_first_of_several_contents_of_a_position_counts() -> None:
    sound, broken = final_table(PLACED), final_table([(p, o, replace(row, value=b"{")) for p, o, row in PLACED])
    for tables, corrupt in (((sound, broken), 0), ((broken, sound), 80)):
        findings = audit(make_record(WORLD, final=Stream(pa.concat_tables(tables), complete=True)))
        assert (findings.anomalies["CORR"].count, findings.anomalies["INCO"].count) == (corrupt, 80)


def test_the_first_copy_in_the_log_counts_if_all_were_seen_at_once() -> None:
    placed = lay_out([*WORLD.rows, *WORLD.rows])
    table = observed_table(placed, [STARTED_US + 10**7 + number % 2 for number in range(160)])  # two looks
    at = table.schema.get_field_index("append_ms")
    appended = [STARTED_US // 1000 + (9_000 if number < 80 else 8_000) for number in range(160)]
    table = table.set_column(at, table.schema.field(at), [pa.array(appended, table.schema.field(at).type)])
    record = make_record(WORLD, [*WORLD.rows, *WORLD.rows], observed=Stream(table, complete=True))
    final = record.final.table
    at = final.schema.get_field_index("timestamp_ms")
    final = final.set_column(at, final.schema.field(at), [pa.array(appended, final.schema.field(at).type)])
    gap = audit(replace(record, final=Stream(final, complete=True))).latency.gap
    assert (gap.n, gap.min, gap.max) == (80, 999.5, 999.501)


def test_times_and_places_of_two_reads_are_whole_numbers() -> None:
    record = seen(PLACED, [STARTED_US] * 80)
    reads = join_reads(record.final, record.observed, {0: 999, 1: 999})
    assert {column.dtype for column in (reads.partition, reads.offset, reads.seen_us, reads.append_ms)} == {
        np.dtype(np.int64)
    }


def test_numbers_of_a_row_are_exact_up_to_the_largest_that_a_column_can_hold() -> None:
    values = [
        json.dumps({"session_key": "a", "j": 1, "events": 5, "total": total, "checksum": 9, "ended_at": 11}).encode()
        for total in (2**63 - 1, 2**63 - 2, -(2**63))
    ]
    for nonstandard in ([], [b"{"]):  # read as a whole, and value by value
        column = pa.array([*values, *nonstandard], pa.large_binary())
        records = pa.table({"key": pa.array([b"a"] * len(column), pa.large_binary()), "value": column})
        found = read_outputs(records, np.arange(len(column)), keep)
        assert found.payload[:3, 1].tolist() == [2**63 - 1, 2**63 - 2, -(2**63)]
        assert (found.j.dtype, found.session.dtype, found.id.dtype) == (np.dtype(np.int64),) * 3


# First sightings


def test_a_sighting_at_the_first_microsecond_is_one() -> None:
    latency = audit(seen(PLACED, [1] * 80)).latency
    assert (latency.visible.n, latency.unseen, latency.visible.negative) == (80, 0, 80)


def test_first_sightings_come_with_their_times_in_the_order_of_the_rows() -> None:
    times = [STARTED_US + 10**7 + at for at in range(80)]
    record = seen(PLACED, times)
    expected = expected_output(record.input.table)
    sightings = first_sightings(record, expected)
    found, latency = sightings.seen_us, sightings.latency_us
    at = [20 * session + j for session in map([*map(key_of, range(4))].index, expected.session_keys) for j in range(20)]
    assert (found.tolist(), found.dtype) == ([times[row] for row in at], np.dtype(np.int64))
    assert latency.tolist() == [times[row] - scheduled_us(row // 20, 99) for row in at]


def test_only_a_session_seen_in_part_is_torn() -> None:
    assert audit(make_record(WORLD)).latency.torn_sessions == 0
    nothing_of_one = [each for at, each in enumerate(PLACED) if at >= 20]
    times = [STARTED_US + 10**7 + 1_000 * (at == 0) for at in range(59)]
    latency = audit(seen(nothing_of_one[:59], times)).latency
    assert (latency.torn_sessions, latency.unseen) == (2, 21)


# Order


def test_the_first_two_rows_of_all_in_the_wrong_order_are_REORD() -> None:
    found = audit(make_record(WORLD, [WORLD.rows[1], WORLD.rows[0], *WORLD.rows[2:]])).anomalies["REORD"]
    assert (found.count, found.examples[0]["j_after_j"], found.examples[0]["row"]) == (1, [0, 1], [0, 0])


def test_the_first_expected_row_comes_with_its_expected_payload_if_it_is_corrupt() -> None:
    row = WORLD.rows[0]
    found = audit(make_record(WORLD, [row.changed(total=1), *WORLD.rows[1:]])).anomalies["CORR"]
    expected = [row.row[name] for name in ("events", "total", "checksum", "ended_at")]
    assert (found.examples[0]["id"], found.examples[0]["expected"]) == (f"{key_of(0)}:0", expected)


def test_drained_may_come_long_before_the_last_timeline_line() -> None:
    record = make_record(WORLD, timeline=Lines(({"event": "stalled"}, {"event": "drained"}, {"event": "other"})))
    assert audit(record).drained is True


def test_a_session_in_two_partitions_is_SCAT_only_in_a_log() -> None:
    rows = [replace(row, partition=row.partition + 1) if number in (19, 25) else row
            for number, row in enumerate(WORLD.rows)]  # fmt: skip
    record = make_record(WORLD, rows)
    found = audit(record)
    assert found.counts() == {"SCAT": 2}
    example = found.anomalies["SCAT"].examples[0]
    assert example["session_key"] == key_of(0)
    assert [place[0] for place in example["rows"]] == [0, 1]
    files = replace(record, ends={**record.ends, "output_is_log": False})
    assert audit(files).counts() == {}
