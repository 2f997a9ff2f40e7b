"""What is judged batch by batch: which batch owes a row, and whether it was reported committed."""

from __future__ import annotations

from typing import Any

from oncebench.judge.agreement import compare, counts_of
from oncebench.judge.anomalies import Anomaly
from oncebench.judge.audit import audit
from oncebench.record.streams import Lines
from oncebench.second import count
from tests.proofs.test_second import files_of
from tests.unit.audit_world import make_record, make_world

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


def test_a_batch_that_was_reported_committed_and_lost_a_row_is_LOSTC_and_told_with_its_input() -> None:
    found = lost_commits(batch(0, 397), batch(1, 398), batch(2, 400), *map(sink, range(3)))
    assert found.count == 1
    (example,) = found.examples
    assert (example["batch"], example["lost"], example["first"]["id"]) == (1, 2, "b-00000001:5")
    assert example["first"]["last_event"] == [0, 397]
    assert len(example["first"]["input"]) == 5


def test_a_batch_begins_where_the_one_before_it_ended() -> None:
    assert lost_commits(batch(0, 397), batch(1, 398), sink(0)).count == 0
    assert lost_commits(batch(0, 398), sink(0)).count == 1


def test_one_report_is_enough_whatever_the_replay_says() -> None:
    assert lost_commits(batch(0, 400), sink(0), sink(0, drained=True)).count == 1


def test_what_was_drained_dropped_or_never_reported_is_lost_and_no_lost_commit() -> None:
    for line in (sink(0, drained=True), sink(0, dropped=[0]), sink(1), {"kind": "sink", "batch": 0}):
        assert lost_commits(batch(0, 400), line).count == 0


def test_a_batch_is_not_judged_if_it_is_not_known_what_it_has_read() -> None:
    assert lost_commits(batch(1, 400), sink(1)).count == 0  # nobody knows where it began
    rolled_back = (batch(0, 398), sink(0), batch(0, 390), batch(1, 400))
    assert lost_commits(*rolled_back).count == 0
    assert lost_commits(batch(0, 400), batch(0, 400), sink(0)).count == 1  # said again after a restart
