"""The sentences of a verdict, in full."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oncebench.audit.python.attribution import Excuses
from oncebench.audit.python.audit import committed_ends
from oncebench.audit.python.records import position_of
from oncebench.audit.verdict import Facts, Judgement, Verdict, decide
from oncebench.record.json_lines import Lines
from oncebench.record.validation import RecordError
from tests.unit.audit.test_verdict import AMO, EO, WORLD, JudgedCell, make_record, verdict_of


def test_notes_follow_the_reasons_of_every_verdict() -> None:
    notes = ("a note",)
    assert decide({}, Facts(EO, notes=notes)) == Judgement(Verdict.KEPT, {}, notes)
    assert decide({"DUP": 1}, Facts(EO, notes=notes)) == Judgement(Verdict.BROKEN, {"DUP": 1}, ("DUP: 1", "a note"))
    assert decide({}, Facts(EO, untrusted=("u",), notes=notes)) == Judgement(Verdict.UNKNOWN, {}, ("u", "a note"))
    assert decide({}, Facts(EO, not_exercised=("t",), notes=notes)) == Judgement(Verdict.VACUOUS, {}, ("t", "a note"))
    pending = "PEND: 7, does not show whether the guarantee holds: the run is unknown"
    assert decide({"PEND": 7}, Facts(EO, weak=("w",), notes=notes)) == Judgement(
        Verdict.UNKNOWN, {}, ("w", pending, "a note")
    )


def test_rows_that_no_failure_touched_are_named_only_where_a_failure_decides() -> None:
    untouched = Excuses(missing={"LOSS": 1})
    healthy, failed = (Facts(AMO, failed=failed, excuses=untouched) for failed in (False, True))
    assert decide({"LOSS": 1}, healthy).reasons == ("LOSS: 1",)
    assert decide({"LOSS": 1}, failed).reasons == ("LOSS: 1, and no failure touched 1 of these rows",)
    assert decide({"LOSS": 1}, replace(failed, guarantee=EO)).reasons == ("LOSS: 1",)


def test_an_unknown_guarantee_or_code_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError) as refused:
        decide({}, Facts("twice"))
    assert str(refused.value) == "unknown guarantee 'twice'; they are: at-most-once, at-least-once, exactly-once"
    with pytest.raises(ValueError) as refused:
        decide({"NEW": 1, "ALSO": 0, "DUP": 1}, Facts(EO))
    assert str(refused.value) == "no rule for the anomaly codes ['ALSO', 'NEW']; add them to RULES"


def test_a_weak_run_says_what_is_missing() -> None:
    unwatched = "the run was not watched to its end: its timeline has neither drained nor stalled"
    assert verdict_of(make_record(WORLD, timeline=Lines(()))) == (Verdict.UNKNOWN, unwatched)
    no_batch = "no sign that the pipeline committed anything: progress.jsonl has no batch or position line"
    found, reasons = verdict_of(make_record(WORLD, progress=Lines(())))
    assert (found, reasons.split(" | ")[0]) == (Verdict.UNKNOWN, no_batch)


@pytest.mark.parametrize(
    ("unsent", "said"), [(15, ""), (16, "only 94.7% of the planned events were sent, less than 95%")]
)
def test_exactly_95_percent_of_the_plan_are_enough(unsent: int, said: str) -> None:
    record = make_record(WORLD)
    gone = np.arange(len(record.ledger.seq)) >= 300 - unsent
    ledger = record.ledger
    cut = replace(ledger, sent_us=np.where(gone, 0, ledger.sent_us), acked_us=np.where(gone, 0, ledger.acked_us))
    assert verdict_of(replace(record, ledger=cut)) == (Verdict.UNKNOWN if said else Verdict.KEPT, said)


def test_faults_without_effect_are_reported() -> None:
    idle = {"event": "nemesis-idle", "fault": "mid-write:cut-link", "why": "there is no link"}
    timeline = Lines(({"event": "random-kill"}, idle, {"event": "drained"}))
    reason = "the fault mid-write:cut-link had no target: there is no link"
    assert verdict_of(make_record(WORLD, timeline=timeline), JudgedCell(random_kills=1)) == (Verdict.VACUOUS, reason)
    reason = f"1 of 3 random kills happened | {reason}"
    assert verdict_of(make_record(WORLD, timeline=timeline), JudgedCell(random_kills=3)) == (Verdict.VACUOUS, reason)


def test_a_run_whose_outage_held_no_commit_is_vacuous() -> None:
    kill = {"event": "random-kill", "t_us": 1, "landed": None}
    for held, verdict in ((True, Verdict.KEPT), (False, Verdict.VACUOUS)):
        timeline = Lines(({**kill, "commit_held": held}, {"event": "drained"}))
        found, reasons = verdict_of(make_record(WORLD, timeline=timeline), JudgedCell(random_kills=1))
        assert (found, "no transaction" in reasons) == (verdict, not held)


def test_a_run_whose_random_kill_found_no_work_is_vacuous() -> None:
    kill = {"event": "random-kill", "t_us": 1, "landed": None}
    for idle, verdict in ((False, Verdict.KEPT), (True, Verdict.VACUOUS)):
        timeline = Lines(({**kill, "idle": idle}, {"event": "drained"}))
        found, reasons = verdict_of(make_record(WORLD, timeline=timeline), JudgedCell(random_kills=1))
        assert (found, "read and committed everything" in reasons) == (verdict, idle)


def test_a_batch_line_without_ends_is_refused_with_the_line_and_what_to_do() -> None:
    with pytest.raises(RecordError) as refused:
        committed_ends([{"kind": "batch", "batch": 3}])
    assert str(refused.value) == (
        "progress.jsonl has a batch line without usable end_offsets ({'kind': 'batch', 'batch': 3}). A pipeline of "
        "another version wrote it: judge the run with that version"
    )


def test_an_impossible_position_is_refused_with_what_to_do() -> None:
    with pytest.raises(RecordError) as refused:
        position_of(np.array([0, 2**19]), np.array([0, 0]))
    assert str(refused.value) == (
        "the record has a row at partition 524288, which must be 0 to 2**19 - 1. The record is damaged: take "
        "the folder from a sound copy, or run the cell again"
    )
