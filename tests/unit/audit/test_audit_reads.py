"""Two reads of the output: what they disagree on, and when each row was first seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oncebench.audit.python import records
from oncebench.audit.python.audit import Findings, audit, first_sightings
from oncebench.audit.python.model import expected_output
from oncebench.audit.python.reads import join_reads
from oncebench.audit.python.workloads.answers import answer_of
from oncebench.record import Record
from oncebench.record.streams import Stream
from oncebench.record.validation import RecordError
from tests.unit.audit.audit_world import (
    STARTED_US,
    VisibleRow,
    lay_out,
    make_record,
    make_world,
    observed_table,
    quarantine_table,
    scheduled_us,
)
from tests.unit.audit.records_world import records_record
from tests.unit.audit.windows_world import right_rows, windows_record

WORLD = make_world(4, 2)
LATE_US = 250_000


def seen_us(row: VisibleRow) -> int:
    return int(row.row["ended_at"]) + LATE_US


def watched(rows: list[VisibleRow] | None = None, *, seen: list[VisibleRow] | None = None, **parts: Any) -> Record:
    """The observer saw each row LATE_US after its end event; or `seen` in the same places."""
    visible = list(WORLD.rows) if rows is None else rows
    placed = lay_out(visible)
    saw = placed if seen is None else [(p, o, row) for (p, o, _), row in zip(placed, seen, strict=True)]
    table = observed_table(saw, [seen_us(row) for *_, row in placed])
    return make_record(WORLD, visible, observed=Stream(table, complete=True), **parts)


def judged(record: Record) -> Findings:
    return audit(record)


def test_two_reads_that_agree_are_consistent() -> None:
    findings = judged(watched())
    assert findings.counts() == {}
    assert findings.anomalies["INCO"].split == {"changed": 0, "vanished": 0, "final-read-twice": 0, "observed-twice": 0}


@pytest.mark.parametrize("change", [{"value": b"other"}, {"value": None}, {"key": None}, {"key": b"other"}])
def test_a_position_with_another_content_in_the_second_read_is_INCO(change: dict[str, Any]) -> None:
    seen = [*WORLD.rows[:9], replace(WORLD.rows[9], **change), *WORLD.rows[10:]]
    findings = judged(watched(seen=seen))
    assert findings.counts() == {"INCO": 1}
    assert findings.anomalies["INCO"].examples[0]["kind"] == "changed"


def test_a_row_that_was_seen_and_is_gone_is_INCO_and_not_visible() -> None:
    record = watched()
    rows = [at for at in range(80) if at != 3]
    gone = replace(record, final=Stream(record.final.table.take(rows), complete=True))
    assert judged(gone).counts() == {"INCO": 1, "LOSS": 1, "TORN": 1}


def test_a_row_seen_above_the_end_of_the_final_read_has_not_vanished() -> None:
    record = watched()
    last = record.final.table["offset"].to_pylist()[19]
    kept = pa.array([p != 0 or o < last for p, o in zip(*map(pa.ChunkedArray.to_pylist, record.final.table.columns[:2]),
                                                         strict=True)])  # fmt: skip
    short = replace(
        record,
        final=Stream(record.final.table.filter(kept), complete=True),
        ends={"output": {"0": {"lso": last, "hw": last}, "1": {"lso": 999, "hw": 999}}, "final_complete": True},
    )
    assert "INCO" not in judged(short).counts()


def test_an_incomplete_final_read_makes_nothing_vanish() -> None:
    record = watched()
    short = replace(record, final=Stream(record.final.table.slice(0, 10), complete=False))
    assert "INCO" not in judged(short).counts()


def test_a_read_that_shows_one_position_twice_with_different_content_is_INCO() -> None:
    record = watched()
    table = record.final.table
    twice = table.slice(5, 1).set_column(4, table.schema.field(4), [pa.array([b"other"], pa.binary())])
    final = Stream(pa.concat_tables([table, twice]), complete=True)
    findings = judged(replace(record, final=final))
    assert findings.counts() == {"INCO": 1}
    assert findings.anomalies["INCO"].split["final-read-twice"] == 1
    observed = record.observed.table
    again = observed.slice(5, 1).set_column(5, observed.schema.field(5), [pa.array([b"other"], pa.binary())])
    findings = judged(replace(record, observed=Stream(pa.concat_tables([observed, again]), complete=True)))
    assert findings.counts() == {"INCO": 1}
    assert findings.anomalies["INCO"].split["observed-twice"] == 1


def test_a_row_that_only_the_observer_saw_has_the_content_that_it_saw() -> None:
    record = watched()
    reads = join_reads(Stream(record.final.table.slice(0, 77), complete=False), record.observed, {})
    by_position = [row for session in (0, 2, 1, 3) for row in WORLD.of(session)]
    assert reads.finals == 77
    assert reads.records["value"].take(pa.array(reads.rows)).to_pylist() == [row.value for row in by_position]


def test_contents_of_one_position_come_by_time_and_those_seen_at_once_in_the_order_of_the_file() -> None:
    seen = observed_table([(0, 400, row) for row in WORLD.rows], [STARTED_US + 1, STARTED_US] * 40)
    reads = join_reads(make_record(WORLD).final, Stream(seen, complete=True), {})
    by_time = [*WORLD.rows[1::2], *WORLD.rows[::2]]
    assert reads.disputed["value"].to_pylist() == [row.value for row in by_time]


def test_a_position_is_counted_once_with_its_first_kind() -> None:
    record = watched(seen=[replace(WORLD.rows[0], value=b"other"), *WORLD.rows[1:]])
    table = record.final.table
    twice = table.slice(0, 1).set_column(4, table.schema.field(4), [pa.array([b"third"], pa.binary())])
    findings = judged(replace(record, final=Stream(pa.concat_tables([table, twice]), complete=True)))
    assert findings.counts() == {"INCO": 1}
    assert sum(findings.anomalies["INCO"].split.values()) == 1


def test_a_position_observed_twice_counts_from_its_first_sighting() -> None:
    record = watched()
    table = record.observed.table
    at = table.schema.get_field_index("seen_us")
    later = table.set_column(at, table.schema.field(at), [table["seen_us"].to_numpy() + 10**7])
    for tables in ([table, later], [later, table]):
        findings = judged(replace(record, observed=Stream(pa.concat_tables(tables), complete=True)))
        assert findings.counts() == {}
        assert (findings.latency.visible.n, findings.latency.visible.max) == (80, 250.0)


def test_latency_runs_from_the_scheduled_end_event_to_the_first_sighting() -> None:
    latency = judged(watched()).latency
    assert (latency.visible.n, latency.visible.min, latency.visible.max) == (80, 250.0, 250.0)
    assert latency.gap.n == 80
    assert latency.gap.max == (scheduled_us(3, 99) + LATE_US - STARTED_US) / 1000 - 5_000.5  # stamps are cut off
    assert (latency.torn_sessions, latency.unseen) == (0, 0)


def test_copies_seen_later_do_not_count() -> None:
    rows = [*WORLD.rows, *WORLD.rows[:20]]
    placed = lay_out(rows)
    table = observed_table(placed, [seen_us(row) + (at >= 80) * 10**7 for at, (*_, row) in enumerate(placed)])
    backwards = table.take(list(range(table.num_rows))[::-1])
    for observed in (table, backwards):
        latency = judged(make_record(WORLD, rows, observed=Stream(observed, complete=True))).latency
        assert (latency.visible.n, latency.visible.max) == (80, 250.0)


def test_a_row_seen_only_by_its_copy_counts_from_the_copy() -> None:
    rows = [*WORLD.rows, WORLD.rows[0]]
    placed = lay_out(rows)
    table = observed_table(placed[1:], [seen_us(row) + (at == 79) * 10**6 for at, (*_, row) in enumerate(placed[1:])])
    latency = judged(make_record(WORLD, rows, observed=Stream(table, complete=True))).latency
    assert (latency.visible.n, latency.visible.max) == (80, 1250.0)


def test_warm_up_is_dropped_by_scheduled_time_and_from_latencies_only() -> None:
    placed = lay_out(WORLD.rows[:-1])
    table = observed_table(placed, [seen_us(row) for *_, row in placed])
    record = make_record(WORLD, WORLD.rows[:-1], observed=Stream(table, complete=True))
    end_of_second_s = (scheduled_us(1, 99) - STARTED_US) / 1e6
    findings = audit(record, warmup_s=end_of_second_s)
    assert findings.latency.visible.n == 59  # sessions 1 and 2, and 19 rows of 3; session 0 ended earlier
    assert findings.counts() == {"LOSS": 1, "TORN": 1}


def test_a_session_seen_in_parts_is_torn_for_its_reader() -> None:
    placed = lay_out(WORLD.rows)
    late = [seen_us(row) + (row.row["j"] >= 12 and at < 40) * 3_000 for at, (*_, row) in enumerate(placed)]
    record = make_record(WORLD, observed=Stream(observed_table(placed, late), complete=True))
    latency = judged(record).latency
    assert judged(record).counts() == {}
    assert latency.torn_sessions == 2


def test_rows_that_the_observer_missed_are_counted() -> None:
    placed = lay_out(WORLD.rows)
    table = observed_table(placed[5:], [seen_us(row) for *_, row in placed[5:]])
    record = make_record(WORLD, observed=Stream(table, complete=True))
    latency = judged(record).latency
    assert (latency.unseen, latency.visible.n, latency.torn_sessions) == (5, 75, 1)
    assert (latency.visible.unseen, latency.gap.unseen, latency.visible.max) == (5, 5, None)
    later = audit(record, warmup_s=1e6).latency  # no row is due after the warm-up
    assert (later.unseen, later.visible.unseen) == (5, 0)


def test_a_row_due_at_the_end_of_the_warm_up_counts_also_if_the_observer_missed_it() -> None:
    placed = [each for at, each in enumerate(lay_out(WORLD.rows)) if not 20 <= at < 25]
    table = observed_table(placed, [seen_us(row) for *_, row in placed])
    record = make_record(WORLD, observed=Stream(table, complete=True))
    latency = audit(record, warmup_s=(scheduled_us(1, 99) - STARTED_US) / 1e6).latency
    assert (latency.visible.n, latency.visible.unseen) == (55, 5)


def test_a_row_that_is_lost_was_not_missed_by_the_observer() -> None:
    rows = list(WORLD.rows[1:])
    placed = lay_out(rows)
    table = observed_table(placed[4:], [seen_us(row) for *_, row in placed[4:]])
    findings = judged(make_record(WORLD, rows, observed=Stream(table, complete=True)))
    assert (findings.rows["lost"], findings.latency.unseen) == (1, 4)


def test_phantoms_and_unreadable_rows_have_no_latency() -> None:
    rows = [*WORLD.rows, WORLD.rows[0].changed(j=30), replace(WORLD.rows[0], value=b"{")]
    placed = lay_out(rows)
    table = observed_table(placed, [STARTED_US + 5_000_000] * len(placed))
    assert judged(make_record(WORLD, rows, observed=Stream(table, complete=True))).latency.visible.n == 80


def test_a_row_seen_before_its_time_has_a_negative_latency() -> None:
    placed = lay_out(WORLD.rows)
    table = observed_table(placed, [int(row.row["ended_at"]) - 2_500 for *_, row in placed])
    visible = judged(make_record(WORLD, observed=Stream(table, complete=True))).latency.visible
    assert (visible.p50, visible.min, visible.negative) == (-2.5, -2.5, 80)


def test_first_sightings_are_one_per_expected_row() -> None:
    record = watched([*WORLD.rows, *WORLD.rows])
    sightings = first_sightings(record, expected_output(record.input.table))
    assert len(sightings.seen_us) == 80
    assert np.array_equal(np.unique(sightings.latency_us), [LATE_US])


def test_a_sighting_says_how_many_events_its_row_has() -> None:
    rows, record = right_rows(), windows_record()
    seen = observed_table(lay_out(rows), [STARTED_US + 10**9] * len(rows))
    expected = answer_of(record)
    sightings = first_sightings(replace(record, observed=Stream(seen, complete=True)), expected)
    events_of = {row.row["session_key"]: row.row["events"] for row in rows}
    assert len(set(events_of.values())) > 1
    assert np.array_equal(sightings.events, [events_of[name] for name in expected.session_keys])


def test_write_times_are_reported_only_if_the_sink_has_them() -> None:
    record = watched(WORLD.rows)
    sightings = first_sightings(record, expected_output(record.input.table))
    assert sightings.written_us is not None
    assert sightings.written_us.tolist() == [STARTED_US + 5_000_500] * 80
    assert judged(record).latency.gap.n == 80
    silent = replace(record, ends={**record.ends, "stamped": False})
    assert first_sightings(silent, expected_output(record.input.table)).written_us is None
    assert judged(silent).latency.gap.n == 0


@pytest.mark.parametrize(("is_log", "rows"), [({"output_is_log": False}, 0), ({"output_is_log": True}, 80), ({}, 80)])
def test_in_older_runs_only_log_rows_have_write_times(is_log: dict[str, bool], rows: int) -> None:
    record = watched()
    record = replace(record, ends={**record.ends, **is_log})
    sightings = first_sightings(record, expected_output(record.input.table)).written_us
    assert (0 if sightings is None else len(sightings), judged(record).latency.gap.n) == (rows, rows)


def test_without_an_observer_there_is_no_latency() -> None:
    latency = judged(make_record(WORLD)).latency
    assert (latency.visible.n, latency.visible.p50, latency.unseen) == (0, None, 80)


def test_in_a_sink_without_a_log_every_missing_seen_row_has_vanished() -> None:
    record = watched()
    partition = record.final.table["partition"].to_numpy()
    first = Stream(record.final.table.filter(pa.array(partition == 0)), complete=True)
    no_ends = {**record.ends, "output": {}}
    gone = int((partition != 0).sum())
    as_log, as_none = (
        judged(replace(record, final=first, ends={**no_ends, "output_is_log": log})).counts() for log in (True, False)
    )
    assert gone > 0
    assert (as_log.get("INCO", 0), as_none["INCO"]) == (0, gone)


def test_leftovers_of_dead_writers_are_counted_and_named() -> None:
    record = watched()
    findings = judged(replace(record, ends={**record.ends, "leftovers": ["b.tmp", "a.tmp"]}))
    assert findings.counts() == {"ORPH": 2}
    assert findings.anomalies["ORPH"].examples == ({"what": "a.tmp"}, {"what": "b.tmp"})


@pytest.mark.parametrize("read", ["input", "final", "observed"])
@pytest.mark.parametrize(
    ("column", "number"),
    [("partition", -1), ("partition", 2**19), ("offset", -1), ("offset", 2**44), ("offset", 2**60)],
)
def test_an_impossible_position_is_refused(read: str, column: str, number: int) -> None:
    record = make_record(WORLD)
    observed = Stream(observed_table(lay_out(WORLD.rows), [STARTED_US] * len(WORLD.rows)), complete=True)
    record = replace(record, observed=observed)
    table = getattr(record, read).table
    at = table.schema.get_field_index(column)
    numbers = [number, *table[column].to_pylist()[1:]]
    moved = table.set_column(at, table.schema.field(at), [pa.array(numbers, table.schema.field(at).type)])
    with pytest.raises(RecordError, match=f"{column} {number}, which must be 0 to"):
        audit(replace(record, **{read: Stream(moved, complete=True)}))


@pytest.mark.parametrize("of_workload", [watched, records_record, windows_record])
def test_the_pages_of_every_file_are_given_back_while_it_is_read(
    monkeypatch: pytest.MonkeyPatch, of_workload: Callable[[], Record]
) -> None:
    released: list[int] = []

    def note(stream: Stream) -> None:
        released.append(id(stream))

    monkeypatch.setattr(records, "MAPPED_BYTES", 1)
    monkeypatch.setattr(Stream, "release", note)
    stranger = {"key": b"k", "value": b"{", "reason": "not-json", "source_partition": 0, "source_offset": 9_000}
    record = replace(of_workload(), quarantine=Stream(quarantine_table([stranger]), complete=True))
    audit(record)
    streams = (record.input, record.final, record.observed, record.quarantine)
    assert {id(each) for each in streams} <= set(released)
