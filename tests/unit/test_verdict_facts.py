"""What a verdict takes from the record, the cell and the sink, beside the counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncebench.judge.audit import audit
from oncebench.judge.verdict import BROKEN, KEPT, UNKNOWN, VACUOUS, Verdict, judge
from oncebench.record.streams import Lines
from pipeline.sinks.registry import SINKS
from tests.unit.test_verdict import ALO, AMO, EO, WORLD, Asked, hit, make_record, word


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


def test_what_a_second_auditor_counts_otherwise_makes_the_run_unknown() -> None:
    record = make_record(WORLD, WORLD.rows[1:])
    assert judge(audit(record), record, Asked()).word == BROKEN
    assert judge(audit(record), record, Asked(), ["they differ"]) == Verdict(UNKNOWN, {}, ("they differ",))


def test_leftovers_are_judged_by_what_the_sink_says_of_its_housekeeping() -> None:
    record = make_record(WORLD)
    record = replace(record, ends={**record.ends, "leftovers": ["a"]})
    swept = next(kind.name for kind in SINKS.values() if kind.swept)
    assert word(record, Asked(EO, sink=swept))[0] == KEPT
    assert word(record, Asked(EO, sink="kafka")) == (BROKEN, "ORPH: 1")
    assert word(record, Asked(ALO, sink="kafka")) == (KEPT, "")
