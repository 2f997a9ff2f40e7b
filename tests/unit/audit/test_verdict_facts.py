"""What a verdict takes from the record, the cell and the sink, beside the counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncebench.audit.python.audit import audit
from oncebench.audit.verdict import BROKEN, DEATHS, KEPT, UNKNOWN, VACUOUS, Verdict, judge
from oncebench.record.json_lines import Lines
from oncebench.record.traits import EARLIER
from tests.unit.audit.test_verdict import ALO, AMO, EO, WORLD, Asked, hit, interrupted, make_record, word


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (Asked(AMO, faults=("mid-write:stop:5",)), {}),
        (Asked(AMO, random_kills=1), {}),
        (Asked(AMO), {"hits": Lines((hit("mid-write", action="stop"),))}),
    ],
)
def test_a_fault_that_was_asked_for_or_that_acted_makes_a_run_one_in_which_something_failed(
    asked: Asked, parts: dict[str, Any]
) -> None:
    assert word(make_record(WORLD, WORLD.rows[1:], **parts), asked)[0] == VACUOUS
    assert word(make_record(WORLD, WORLD.rows[1:]), Asked(AMO))[0] == BROKEN


def of_batch(done_us: int, asked: Asked, **parts: Any) -> str:
    """The verdict on a run whose one batch was done at `done_us` and has lost a row."""
    line = {"kind": "batch", "batch": 3, "end_offsets": {"0": 1000, "1": 1000}, "t_us": done_us}
    record = make_record(WORLD, WORLD.rows[1:], progress=Lines((line,)), **parts)
    return judge(audit(record), record, asked, rows_of_batches={3: (1, 0)}).word


@pytest.mark.parametrize("event", sorted(DEATHS))
def test_a_death_that_nobody_asked_for_explains_nothing_of_a_batch_that_was_done_before_it(event: str) -> None:
    for done_us, expected in ((4_999, BROKEN), (5_000, KEPT)):
        timeline = Lines(({"t_us": 5_000, "event": event}, {"t_us": 9_000, "event": "drained"}))
        assert of_batch(done_us, Asked(AMO), timeline=timeline) == expected


@pytest.mark.parametrize("done_us", [0, 9_000])
@pytest.mark.parametrize("asked", [Asked(AMO, faults=("after-commit:kill",)), Asked(AMO, random_kills=1)])
def test_a_fault_that_was_not_hit_explains_nothing_of_a_batch_that_was_done(asked: Asked, done_us: int) -> None:
    assert of_batch(done_us, asked) == BROKEN


def test_a_fault_that_was_not_hit_makes_no_run_broken_of_which_no_done_batch_lost_a_row() -> None:
    progress = Lines(({"kind": "batch", "batch": 3, "end_offsets": {"0": 1000, "1": 1000}, "t_us": 9_000},))
    record = make_record(WORLD, WORLD.rows[1:], progress=progress)
    asked = Asked(AMO, faults=("after-commit:kill",))
    for batch, rows, expected in ((3, (1, 0), BROKEN), (3, (0, 1), VACUOUS), (4, (1, 0), VACUOUS)):
        assert judge(audit(record), record, asked, rows_of_batches={batch: rows}).word == expected


def test_what_a_second_auditor_counts_otherwise_makes_the_run_unknown() -> None:
    record = make_record(WORLD, WORLD.rows[1:])
    assert judge(audit(record), record, Asked()).word == BROKEN
    assert judge(audit(record), record, Asked(), ["they differ"]) == Verdict(UNKNOWN, {}, ("they differ",))


def test_leftovers_are_judged_by_what_the_sink_says_of_its_housekeeping() -> None:
    record = make_record(WORLD)
    record = replace(record, ends={**record.ends, "leftovers": ["a"]})
    assert EARLIER["delta"].self_cleaning
    assert word(record, Asked(EO, sink="delta"))[0] == KEPT
    assert word(record, Asked(EO, sink="kafka")) == (BROKEN, "ORPH: 1")
    assert word(record, Asked(ALO, sink="kafka")) == (KEPT, "")


def test_an_interruption_before_the_load_began_is_told_by_what_was_not_sent() -> None:
    verdict, reasons = interrupted(("interrupted", 1.0), sent=0)
    assert (verdict, reasons.split(" | ")[0]) == (UNKNOWN, "only 0.0% of the planned events were sent, less than 95%")


def test_a_long_load_that_was_interrupted_is_told_in_seconds() -> None:
    _, reasons = interrupted(("load-started", -50.0), ("interrupted", 100_000.0), ("drained", 100_001.0))
    assert reasons.startswith("interrupted after 100000.0 s of the load, ")
    _, reasons = interrupted(("load-started", 40.0), ("interrupted", 30.0), ("drained", 100_001.0))
    assert reasons.startswith("interrupted after 0.0 s of the load, ")
    _, reasons = interrupted(("load-started", 0.0), ("load-done", 1.0), ("interrupted", 100_001.0))
    assert reasons.startswith("interrupted 100000.0 s after the load, ")
