"""The facts that a verdict takes from record, cell and sink, besides the counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncebench.audit.python.audit import audit
from oncebench.audit.verdict import NOT_FINISHED, Judgement, Verdict, judge
from oncebench.record.json_lines import Lines
from oncebench.record.traits import EARLIER
from tests.unit.audit.test_verdict import ALO, AMO, EO, WORLD, JudgedCell, hit, interrupted, make_record, verdict_of


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (JudgedCell(AMO, faults=("mid-write:stop:5",)), {}),
        (JudgedCell(AMO, random_kills=1), {}),
        (JudgedCell(AMO), {"hits": Lines((hit("mid-write", action="stop"),))}),
    ],
)
def test_a_requested_or_acting_fault_counts_as_a_failure(asked: JudgedCell, parts: dict[str, Any]) -> None:
    assert verdict_of(make_record(WORLD, WORLD.rows[1:], **parts), asked)[0] == Verdict.VACUOUS
    assert verdict_of(make_record(WORLD, WORLD.rows[1:]), JudgedCell(AMO))[0] == Verdict.BROKEN


def test_a_disagreement_of_the_auditors_makes_the_run_unknown() -> None:
    record = make_record(WORLD, WORLD.rows[1:])
    assert judge(audit(record), record, JudgedCell()).verdict == Verdict.BROKEN
    assert judge(audit(record), record, JudgedCell(), ["they differ"]) == Judgement(
        Verdict.UNKNOWN, {}, ("they differ",)
    )


def test_leftovers_are_judged_by_the_sinks_traits() -> None:
    record = make_record(WORLD)
    record = replace(record, ends={**record.ends, "leftovers": ["a"]})
    assert EARLIER["delta"].self_cleaning
    assert verdict_of(record, JudgedCell(EO, sink="delta"))[0] == Verdict.KEPT
    assert verdict_of(record, JudgedCell(EO, sink="kafka")) == (Verdict.BROKEN, "ORPH: 1")
    assert verdict_of(record, JudgedCell(ALO, sink="kafka")) == (Verdict.KEPT, "")


def test_an_interruption_before_the_load_is_reported_by_the_sent_share() -> None:
    verdict, reasons = interrupted(("interrupted", 1.0), sent=0)
    assert (verdict, reasons.split(" | ")[0]) == (
        Verdict.UNKNOWN,
        "only 0.0% of the planned events were sent, less than 95%",
    )


def test_a_load_without_all_its_answers_is_unknown_at_best() -> None:
    def judged(rows: Any, acked_us: int) -> tuple[str, str]:
        record = make_record(WORLD, rows)
        acked = record.ledger.acked_us.copy()
        acked[:3] = acked_us
        return verdict_of(replace(record, ledger=replace(record.ledger, acked_us=acked)))

    reason = "3 events of the load have no answer from Kafka: the generator did not wait for it"
    assert judged(None, 0) == (Verdict.UNKNOWN, reason)
    assert judged(WORLD.rows[1:], 0)[0] == Verdict.BROKEN


def test_events_of_the_load_that_failed_are_noted() -> None:
    record = make_record(WORLD)
    acked = record.ledger.acked_us.copy()
    acked[:3] = -7
    note = "3 events of the load failed, so the load was smaller than planned"
    assert verdict_of(replace(record, ledger=replace(record.ledger, acked_us=acked))) == (Verdict.KEPT, note)


def test_a_run_that_lost_a_generator_is_unknown_at_best_and_names_it() -> None:
    died = {"t_us": 1, "event": "process-died", "name": "generator 2 of 3", "why": "killed by signal 9"}
    timeline = Lines((died, {"t_us": 2, "event": "drained"}))
    said = "generator 2 of 3 died during the run: killed by signal 9"
    assert verdict_of(make_record(WORLD, timeline=timeline)) == (Verdict.UNKNOWN, said)
    assert verdict_of(make_record(WORLD, WORLD.rows[1:], timeline=timeline))[0] == Verdict.BROKEN


def test_an_interruption_is_reported_in_seconds_of_the_load() -> None:
    _, reasons = interrupted(("load-started", -50.0), ("interrupted", 100_000.0), ("drained", 100_001.0))
    assert reasons.startswith("interrupted after 100000.0 s of the load, ")
    _, reasons = interrupted(("load-started", 40.0), ("interrupted", 30.0), ("drained", 100_001.0))
    assert reasons.startswith("interrupted after 0.0 s of the load, ")
    _, reasons = interrupted(("load-started", 0.0), ("load-done", 1.0), ("interrupted", 100_001.0))
    assert reasons.startswith("interrupted 100000.0 s after the load, ")


def test_an_interruption_without_a_time_is_passed_over() -> None:
    timeline = Lines(({"event": "load-started", "t_us": 1}, {"event": "interrupted"}, {"event": "drained"}))
    assert verdict_of(make_record(WORLD, timeline=timeline)) == (Verdict.KEPT, "")


def test_a_run_that_ended_during_a_slow_start_is_not_finished_and_shows_nothing() -> None:
    timeline = Lines(({"event": "start-timed-out", "t_us": 1},))
    verdict, reasons = verdict_of(make_record(WORLD, timeline=timeline))
    assert verdict == Verdict.UNKNOWN
    assert reasons == (
        "not finished: the machine was too slow. The pipeline was alive and still starting when the time of the run "
        "was over. Run it again on a less busy machine, or with a longer --start-timeout where the command has "
        "it. If a start hangs, see the end of logs/pipeline.log"
    )


def test_a_row_that_was_duplicated_before_a_slow_start_breaks_the_guarantee_and_the_reason_stays() -> None:
    timeline = Lines(({"event": "start-timed-out", "t_us": 1},))
    verdict, reasons = verdict_of(make_record(WORLD, [*WORLD.rows, WORLD.rows[0]], timeline=timeline))
    assert verdict == Verdict.BROKEN
    assert reasons.startswith(f"DUP: 1 | {NOT_FINISHED}")


def test_a_slow_start_excuses_leftovers_that_it_would_have_removed() -> None:
    before = ("load-started", -0.2), ("load-done", 20.0)
    assert interrupted(*before, ("start-timed-out", 300.0), sent=1, leftovers=["hidden"])[0] == Verdict.UNKNOWN
    assert interrupted(*before, ("stalled", 300.0), sent=1, leftovers=["hidden"])[1] == "STALL: 1 | ORPH: 1"
