"""Anomalies of whole batches: which batch expects a row, and whether it was reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncebench.audit.agreement import compare, counts_of
from oncebench.audit.anomalies import Anomaly
from oncebench.audit.python.audit import audit
from oncebench.audit.sql import count
from oncebench.record import OBSERVED
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream
from tests.proofs.both_auditors import files_of
from tests.unit.audit.audit_world import (
    STARTED_US,
    VisibleRow,
    key_of,
    lay_out,
    make_record,
    make_world,
    observed_table,
)

WORLD = make_world(4, 1)  # one partition; the last events of the sessions stand at 396, 397, 398 and 399
MISSING = [row for at, row in enumerate(WORLD.rows) if at not in (25, 26)]  # of session 1, whose end stands at 397


def batch(number: int, end: int) -> dict[str, Any]:
    return {"kind": "batch", "batch": number, "end_offsets": {"0": end}}


def sink(number: int, **more: Any) -> dict[str, Any]:
    return {"kind": "sink", "batch": number, "drained": False, "dropped": [], **more}


def lost_commits(*lines: dict[str, Any]) -> Anomaly:
    """LOSTC by the first auditor, where the second one agrees on all counts."""
    record = make_record(WORLD, MISSING, progress=Lines(lines))
    findings = audit(record)
    assert findings.anomalies["LOSS"].count == 2
    with count.connection() as con:
        assert compare(counts_of(findings), count.count(con, files_of(record))).reasons == ()
    return findings.anomalies["LOSTC"]


def test_a_batch_reported_committed_with_a_lost_row_is_LOSTC() -> None:
    found = lost_commits(batch(0, 397), batch(1, 398), batch(2, 400), *map(sink, range(3)))
    assert found.count == 1
    (example,) = found.examples
    assert (example["batch"], example["lost"], example["first"]["id"]) == (1, 2, "b-00000001:5")
    assert example["first"]["last_event"] == [0, 397]
    assert len(example["first"]["input"]) == 5


def test_a_batch_begins_where_the_one_before_it_ended() -> None:
    assert lost_commits(batch(0, 397), batch(1, 398), sink(0)).count == 0
    assert lost_commits(batch(0, 398), sink(0)).count == 1


def test_one_report_of_a_commit_is_enough() -> None:
    assert lost_commits(batch(0, 400), sink(0), sink(0, drained=True)).count == 1


def test_a_reported_batch_after_one_without_a_report_is_LOSTC() -> None:
    found = lost_commits(batch(0, 397), batch(1, 398), batch(2, 400), sink(1))
    assert (found.count, found.examples[0]["batch"]) == (1, 1)


def test_a_batch_drained_dropped_or_not_reported_is_no_lost_commit() -> None:
    for line in (sink(0, drained=True), sink(0, dropped=[0]), sink(1), {"kind": "sink", "batch": 0}):
        assert lost_commits(batch(0, 400), line).count == 0


def test_a_batch_with_an_unknown_input_range_is_not_judged() -> None:
    assert lost_commits(batch(1, 400), sink(1)).count == 0  # its beginning is not known
    rolled_back = (batch(0, 398), sink(0), batch(0, 390), batch(1, 400))
    assert lost_commits(*rolled_back).count == 0
    assert lost_commits(batch(0, 400), batch(0, 400), sink(0)).count == 1  # said again after a restart


def torn_batches(looks: list[int], *, at_once: bool = True, rows: tuple[VisibleRow, ...] = WORLD.rows) -> Anomaly:
    """TORNB of a run with the first look at each row (0: never); both auditors must agree.

    Sessions 0 and 1 are of batch 0, the others of batch 1.
    """
    seen = [(place, look) for place, look in zip(lay_out(rows), looks, strict=True) if look]
    table = observed_table([place for place, _ in seen], [STARTED_US + 1000 * look for _, look in seen])
    record = make_record(
        WORLD,
        rows,
        observed=Stream(table.cast(OBSERVED), complete=True),
        progress=Lines((batch(0, 398), batch(1, 400))),
    )
    record = replace(record, ends={**record.ends, "batches_at_once": at_once})
    findings = audit(record)
    with count.connection() as con:
        assert compare(counts_of(findings), count.count(con, files_of(record))).reasons == ()
    return findings.anomalies["TORNB"]


def test_a_batch_that_the_observer_saw_in_parts_is_TORNB() -> None:
    found = torn_batches([1] * 40 + [2] * 20 + [3] * 10 + [4] * 10)
    assert found.count == 1
    (example,) = found.examples
    assert (example["batch"], example["looks"], example["span_ms"]) == (1, 3, 2.0)
    assert (example["first"]["id"], example["last"]["id"]) == ("b-00000002:0", "b-00000003:10")
    assert len(example["first"]["input"]) == 5


@pytest.mark.parametrize("apart", [0, 39, 40, 79])
def test_one_row_seen_at_another_look_tears_its_batch(apart: int) -> None:
    (example,) = torn_batches([1 + (at == apart) for at in range(80)]).examples
    assert (example["batch"], example["last"]["id"]) == (apart // 40, f"{key_of(apart // 20)}:{apart % 20}")


def test_batches_seen_whole_are_not_TORNB() -> None:
    assert torn_batches([1] * 40 + [2] * 40).count == 0
    assert torn_batches([3] * 80).count == 0


def test_a_sink_that_is_not_batch_atomic_has_no_TORNB() -> None:
    assert torn_batches([1] * 40 + [2] * 30 + [4] * 10, at_once=False).count == 0


def test_rows_that_the_observer_never_saw_tear_nothing() -> None:
    assert torn_batches([1] * 40 + [2] * 30 + [0] * 10).count == 0


def test_a_replay_that_writes_the_batch_again_tears_nothing() -> None:
    assert torn_batches([1] * 40 + [2] * 40 + [5] * 40, rows=(*WORLD.rows, *WORLD.rows[40:])).count == 0
