"""Which records make a run kept, broken, vacuous or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oncebench.audit.python.attribution import Excuses
from oncebench.audit.python.audit import audit
from oncebench.audit.verdict import GUARANTEES, Facts, Verdict, decide, judge
from oncebench.record import OBSERVED, Record
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream
from oncebench.record.traits import EARLIER
from tests.unit.audit import audit_world
from tests.unit.audit.audit_world import STARTED_US, VisibleRow, World, make_world, quarantine_table

AMO, ALO, EO = GUARANTEES


@dataclass(frozen=True)
class JudgedCell:
    """As much of a cell as the verdict needs."""

    guarantee: str = EO
    sink: str = "kafka"
    faults: tuple[str, ...] = ()
    random_kills: int = 0


WORLD = make_world(3, 2)
SEEN_US = STARTED_US + 6_000_000


def make_record(world: World, rows: Iterable[VisibleRow] | None = None, **parts: Any) -> Record:
    """A record whose observer saw every final row, and whose pipeline exited at every kill."""
    record = audit_world.make_record(world, rows)
    kills = [hit for hit in parts.get("hits", Lines(())).items if hit["action"] == "kill"]
    if kills and "timeline" not in parts:
        parts["timeline"] = after(*["pipeline-killed"] * len(kills))
    return replace(record, observed=Stream(seen_by_observer(record.final.table), complete=True), **parts)


def seen_by_observer(final: pa.Table) -> pa.Table:
    columns = {**final.to_pydict(), "append_ms": final["timestamp_ms"], "seen_us": [SEEN_US] * final.num_rows}
    return pa.table({name: columns[name] for name in OBSERVED.names}, OBSERVED)


def verdict_of(record: Record, asked: JudgedCell | None = None) -> tuple[str, str]:
    verdict = judge(audit(record), record, asked or JudgedCell())
    return verdict.verdict, " | ".join(verdict.reasons)


def batches(*numbers: int) -> Lines:
    ends = {"0": 1000, "1": 1000}
    return Lines(tuple({"kind": "batch", "batch": number, "end_offsets": ends} for number in numbers))


def hit(point: str = "after-commit", batch: int = 3, action: str = "kill") -> dict[str, Any]:
    fault = f"{point}:{action}" if action == "kill" else f"{point}:stop:5"
    return {"fault": fault, "point": point, "batch": batch, "action": action, "t_us": 1}


def killed(record: Record) -> Record:
    return replace(record, hits=Lines((hit(),)), progress=batches(3), timeline=after("pipeline-killed"))


def after(*events: str, **fields: Any) -> Lines:
    """A drained timeline in which these events follow a start."""
    lines = [{"t_us": 1_000_000, "event": "pipeline-started", "pid": 7}]
    lines += [{"t_us": 1_900_000, "event": event, **fields} for event in events]
    return Lines((*lines, {"t_us": 9_000_000, "event": "drained"}))


def test_a_healthy_run_is_kept() -> None:
    assert verdict_of(make_record(WORLD)) == (Verdict.KEPT, "")


def test_a_run_that_lost_a_row_is_broken_or_kept_by_its_guarantee() -> None:
    record = make_record(WORLD, WORLD.rows[1:])
    assert verdict_of(record)[0] == Verdict.BROKEN
    assert verdict_of(record, JudgedCell(ALO))[0] == Verdict.BROKEN
    assert verdict_of(record, JudgedCell(AMO)) == (Verdict.BROKEN, "LOSS: 1 | TORN: 1")
    assert verdict_of(killed(record), JudgedCell(AMO, faults=("after-commit:kill",))) == (Verdict.KEPT, "")


@pytest.mark.parametrize("event", ["pipeline-killed", "pipeline-failed", "random-kill"])
def test_an_unintended_exit_allows_lost_and_duplicated_rows(event: str) -> None:
    timeline = Lines(({"event": event}, {"event": "drained"}))
    assert verdict_of(make_record(WORLD, WORLD.rows[1:], timeline=timeline), JudgedCell(AMO))[0] == Verdict.KEPT
    assert (
        verdict_of(make_record(WORLD, [*WORLD.rows, WORLD.rows[0]], timeline=timeline), JudgedCell(ALO))[0]
        == Verdict.KEPT
    )


def test_a_healthy_run_with_a_duplicate_is_broken_under_at_least_once_too() -> None:
    record = make_record(WORLD, [*WORLD.rows, WORLD.rows[0]])
    assert verdict_of(record, JudgedCell(ALO)) == (Verdict.BROKEN, "DUP: 1")
    assert verdict_of(killed(record), JudgedCell(ALO, faults=("after-commit:kill",))) == (Verdict.KEPT, "")


@pytest.mark.parametrize(("guarantee", "code"), [(AMO, "LOSS"), (ALO, "DUP")])
def test_rows_that_no_failure_touched_break_a_run_with_failures(guarantee: str, code: str) -> None:
    record = killed(make_record(WORLD, WORLD.rows[1:] if code == "LOSS" else [*WORLD.rows, WORLD.rows[0]]))
    asked = JudgedCell(guarantee, faults=("after-commit:kill",))

    def judged(excuses: Excuses) -> tuple[str, str]:
        verdict = judge(audit(record), record, asked, excuses=excuses)
        return verdict.verdict, " | ".join(verdict.reasons)

    assert judged(Excuses()) == (Verdict.KEPT, "")
    assert judged(Excuses(missing={code: 1}))[1].startswith(f"{code}: 1, and no failure touched 1 of these rows")
    assert judged(Excuses(missing={"LOSS" if code == "DUP" else "DUP": 1})) == (Verdict.KEPT, "")
    note = f"{code}: 1 rows are of no batch or position in progress.jsonl, so a failure may have touched them"
    assert judged(Excuses(unknown={code: 1})) == (Verdict.KEPT, note)
    assert judged(Excuses(unknown={"LOSS" if code == "DUP" else "DUP": 1})) == (Verdict.KEPT, "")


def test_a_run_whose_log_was_not_read_to_its_end_is_unknown() -> None:
    reason = "the output's log was not read to its end: the writers of some rows are not known"
    record = make_record(WORLD)
    assert verdict_of(replace(record, ends={**record.ends, "log_complete": False})) == (Verdict.UNKNOWN, reason)


def test_a_run_without_visible_rows_is_vacuous() -> None:
    asked = JudgedCell(AMO, faults=("after-commit:kill",))
    assert verdict_of(killed(make_record(WORLD, [])), asked) == (
        Verdict.VACUOUS,
        "no row is visible, of 60 expected rows",
    )
    assert verdict_of(make_record(WORLD, []), JudgedCell(AMO)) == (Verdict.BROKEN, "LOSS: 60")


def test_a_sink_that_declares_no_order_may_reorder() -> None:
    record = make_record(WORLD, reversed(WORLD.rows))
    assert verdict_of(record)[0] == Verdict.BROKEN
    unordered = asdict(replace(EARLIER["kafka"], ordered=False))
    assert verdict_of(replace(record, cell={**record.cell, "sink_traits": unordered}))[0] == Verdict.KEPT


@pytest.mark.parametrize("read", ["input", "final"])
def test_an_incomplete_read_makes_the_run_unknown_even_with_duplicates(read: str) -> None:
    record = make_record(WORLD, [*WORLD.rows, WORLD.rows[0]])
    cut = replace(getattr(record, read), complete=False, note="cut off here")
    assert verdict_of(replace(record, **{read: cut})) == (
        Verdict.UNKNOWN,
        f"the {read} read is incomplete: cut off here",
    )


def test_an_unfinished_final_read_makes_the_run_unknown() -> None:
    record = make_record(WORLD)
    assert verdict_of(replace(record, ends={**record.ends, "final_complete": False}))[0] == Verdict.UNKNOWN


def test_a_run_whose_observer_did_not_watch_to_the_end_is_unknown() -> None:
    record = make_record(WORLD)
    missing = Stream(OBSERVED.empty_table(), complete=False, note="observed.arrow is missing")
    cut = replace(record.observed, complete=False)
    assert verdict_of(replace(record, observed=missing)) == (
        Verdict.UNKNOWN, "the observer did not watch to the end: observed.arrow is missing"
    )  # fmt: skip
    assert verdict_of(replace(record, observed=cut)) == (Verdict.UNKNOWN, "the observer did not watch to the end")
    assert verdict_of(replace(record, observed=missing, final=replace(record.final, table=record.final.table[1:])))[
        0
    ] == (Verdict.BROKEN)


def test_a_run_whose_observer_saw_too_few_of_the_rows_is_unknown() -> None:
    record = make_record(make_world(10, 2))
    table = record.observed.table
    blind = table.set_column(3, table.schema.field(3), [[0] * table.num_rows])
    for seen, says in ((table[:0], "200 of 200"), (blind, "200 of 200"), (table[3:], "3 of 200")):
        expected = (Verdict.UNKNOWN, f"the observer never saw {says} visible rows. They count as the latest ones")
        assert verdict_of(replace(record, observed=Stream(seen, complete=True))) == expected
    note = "the observer never saw 2 of 200 visible rows. They count as the latest ones"
    assert verdict_of(replace(record, observed=Stream(table[2:], complete=True))) == (Verdict.KEPT, note)


def test_a_position_is_a_sign_of_a_commit_as_a_batch_is() -> None:
    record = make_record(WORLD)
    (batch,) = record.progress.items
    position = {"kind": "position", "t_us": 2, "read_us": 1, "end_offsets": batch["end_offsets"]}
    assert verdict_of(replace(record, progress=Lines((position,)))) == verdict_of(record)


def test_a_run_whose_pipeline_shows_no_committed_batch_is_unknown() -> None:
    without = Lines(({"kind": "running"}, {"kind": "sink", "batch": 0}))
    found, reasons = verdict_of(make_record(WORLD, progress=without))
    assert (found, "no sign that the pipeline committed anything" in reasons) == (Verdict.UNKNOWN, True)


def test_the_quarantine_must_be_read_only_if_something_belongs_there() -> None:
    record = make_record(WORLD, quarantine=Stream(quarantine_table([]), complete=False))
    assert verdict_of(record)[0] == Verdict.KEPT
    table = record.input.table
    broken = table.slice(0, 1).set_column(1, table.schema.field(1), [[5000]]).set_column(
        4, table.schema.field(4), [np.array([b"{"], object)]
    )  # fmt: skip
    poisoned = Stream(type(table).from_batches([*table.to_batches(), *broken.cast(table.schema).to_batches()]), True)
    assert verdict_of(replace(record, input=poisoned)) == (Verdict.UNKNOWN, "the quarantine read is incomplete")


def test_a_wrong_load_makes_the_run_unknown() -> None:
    record = make_record(WORLD)
    short = Stream(record.input.table.slice(1), complete=True)
    assert verdict_of(replace(record, input=short)) == (Verdict.UNKNOWN, "the load is wrong: SRC 1")


@pytest.mark.parametrize(("share", "expected"), [(0.94, Verdict.UNKNOWN), (0.96, Verdict.KEPT)])
def test_a_load_below_95_percent_of_its_plan_makes_the_run_unknown(share: float, expected: str) -> None:
    record = make_record(WORLD)
    planned = len(record.ledger.seq)
    unsent = np.arange(planned) >= share * planned
    sent_us = np.where(unsent, 0, record.ledger.sent_us)
    acked_us = np.where(unsent, 0, record.ledger.acked_us)
    record = replace(record, ledger=replace(record.ledger, sent_us=sent_us, acked_us=acked_us))
    assert verdict_of(record)[0] == expected


def test_events_that_failed_count_as_not_sent() -> None:
    record = make_record(WORLD)
    failed = replace(record.ledger, acked_us=np.where(record.ledger.session == 0, -7, record.ledger.acked_us))
    assert verdict_of(replace(record, ledger=failed))[0] == Verdict.UNKNOWN


def test_a_run_that_was_not_watched_to_its_end_is_unknown() -> None:
    assert verdict_of(make_record(WORLD, timeline=Lines(())))[0] == Verdict.UNKNOWN


def test_a_run_that_stalled_is_broken() -> None:
    assert verdict_of(make_record(WORLD, timeline=Lines(({"event": "stalled"},))))[0] == Verdict.BROKEN


def test_a_run_that_finished_no_session_is_vacuous() -> None:
    empty = make_world(2, 2, unfinished=2)
    assert verdict_of(make_record(empty)) == (Verdict.VACUOUS, "no session was finished")


def test_a_fault_that_was_not_hit_makes_the_run_vacuous() -> None:
    asked = JudgedCell(faults=("after-commit:kill", "mid-write:kill"))
    record = make_record(WORLD, hits=Lines((hit(),)), timeline=after("pipeline-killed"), progress=batches(2, 3))
    assert verdict_of(record, asked) == (Verdict.VACUOUS, "the fault mid-write:kill was not hit")


def test_a_kill_without_a_replay_of_its_batch_makes_the_run_vacuous() -> None:
    asked = JudgedCell(faults=("after-commit:kill",))
    record = make_record(WORLD, hits=Lines((hit(),)), timeline=after("pipeline-killed"), progress=batches(1, 2, 4))
    assert verdict_of(record, asked) == (Verdict.VACUOUS, "batch 3 was not run again after the kill at after-commit")
    assert verdict_of(replace(record, progress=batches(1, 2, 3)), asked)[0] == Verdict.KEPT


@pytest.mark.parametrize("hit_line", [hit("after-commit-log"), hit("mid-write", action="stop")])
def test_faults_that_need_no_replay_are_exercised_without_one(hit_line: dict[str, Any]) -> None:
    asked = JudgedCell(faults=(hit_line["fault"],))
    timeline = after(*(["pipeline-killed"] if hit_line["action"] == "kill" else []))
    record = make_record(WORLD, hits=Lines((hit_line,)), timeline=timeline, progress=batches(4))
    assert verdict_of(record, asked) == (Verdict.KEPT, "")


@pytest.mark.parametrize(
    ("hit_line", "says"),
    [
        ({**hit(), "action": "stop"}, "was requested, after-commit:kill (stop at after-commit) acted"),
        ({**hit(), "point": "batch-start"}, "was requested, after-commit:kill (kill at batch-start) acted"),
        (hit("mid-write"), "was requested, mid-write:kill (kill at mid-write) acted"),
        ({**hit(), "fault": "after-commit:kill@batch=3"}, "was requested, after-commit:kill@batch=3 (kill"),
        ({**hit(), "rows": 0}, "acted in batch 3, which had no rows"),
    ],
)
def test_a_fault_other_than_the_requested_one_makes_the_run_vacuous(hit_line: dict[str, Any], says: str) -> None:
    record = make_record(WORLD, hits=Lines((hit_line,)), progress=batches(3))
    found, reasons = verdict_of(record, JudgedCell(faults=("after-commit:kill",)))
    assert (found, f"the fault after-commit:kill {says}" in reasons) == (Verdict.VACUOUS, True), reasons


def test_a_fault_of_another_batch_or_one_too_many_makes_the_run_vacuous() -> None:
    elsewhere = {**hit(batch=4), "fault": "after-commit:kill@batch=3"}
    record = make_record(WORLD, hits=Lines((elsewhere,)), progress=batches(3, 4))
    asked = JudgedCell(faults=("after-commit:kill@batch=3",))
    assert verdict_of(record, asked) == (Verdict.VACUOUS, "the fault after-commit:kill@batch=3 acted in batch 4")
    assert verdict_of(record) == (Verdict.VACUOUS, "the fault after-commit:kill@batch=3 acted without being requested")


def test_a_fault_given_in_its_short_form_is_the_one_that_acted() -> None:
    record = make_record(WORLD, hits=Lines(({**hit(), "rows": 5},)), progress=batches(3))
    assert verdict_of(record, JudgedCell(faults=("after-commit",))) == (Verdict.KEPT, "")


def test_random_kills_that_did_not_happen_make_the_run_vacuous() -> None:
    timeline = Lines(({"event": "random-kill"}, {"event": "drained"}))
    assert verdict_of(make_record(WORLD, timeline=timeline), JudgedCell(random_kills=1))[0] == Verdict.KEPT
    assert verdict_of(make_record(WORLD, timeline=timeline), JudgedCell(random_kills=2))[0] == Verdict.VACUOUS


def test_an_unintended_exit_is_noted_and_changes_no_verdict() -> None:
    record = make_record(WORLD, timeline=after("pipeline-failed", exit_code=-11, why="some line of the log"))
    reason = "the pipeline exited without a fault (signal 11, 0.9 s after its start)"
    assert verdict_of(record) == (Verdict.KEPT, reason)
    twice = make_record(WORLD, [*WORLD.rows, WORLD.rows[0]], timeline=record.timeline)
    assert verdict_of(twice) == (Verdict.BROKEN, f"DUP: 1 | {reason}")


def test_a_kill_without_an_exit_makes_the_run_unknown() -> None:
    asked = JudgedCell(faults=("after-commit:kill",), random_kills=1)
    record = make_record(
        WORLD, hits=Lines(({**hit(), "life": 3},)), progress=batches(1, 2, 3), timeline=after("random-kill")
    )
    contradiction = "contradiction: failpoints recorded 1 kills, but the pipeline exited 0 times"
    assert verdict_of(record, asked) == (Verdict.UNKNOWN, contradiction)
    assert verdict_of(replace(record, timeline=after("pipeline-killed", "random-kill")), asked)[0] == Verdict.KEPT


def test_a_random_kill_that_comes_while_a_failpoint_kills_is_no_contradiction() -> None:
    asked = JudgedCell(faults=("after-commit:kill",), random_kills=1)
    hits = Lines(({**hit(), "life": 7},))
    record = make_record(WORLD, hits=hits, progress=batches(1, 2, 3), timeline=after("random-kill"))
    assert verdict_of(record, asked) == (Verdict.KEPT, "")


def interrupted(*events: tuple[str, float], sent: float = 0.25, leftovers: Sequence[str] = ()) -> tuple[str, str]:
    """Judges a run with a partly sent load and these events, in seconds after the load's start."""
    timeline = Lines(tuple({"event": event, "t_us": STARTED_US + int(s * 1e6)} for event, s in events))
    record = make_record(WORLD, timeline=timeline)
    unsent = np.arange(len(record.ledger.seq)) >= sent * len(record.ledger.seq)
    ledger = replace(
        record.ledger,
        sent_us=np.where(unsent, 0, record.ledger.sent_us),
        acked_us=np.where(unsent, 0, record.ledger.acked_us),
    )
    return verdict_of(replace(record, ledger=ledger, ends={**record.ends, "leftovers": list(leftovers)}))


def test_an_interruption_excuses_leftovers_that_the_next_start_removes() -> None:
    before = ("load-started", -0.2), ("load-done", 20.0), ("interrupted", 21.5)
    assert interrupted(*before, sent=1, leftovers=["hidden"])[0] == Verdict.UNKNOWN
    assert interrupted(*before, ("drained", 23.0), sent=1, leftovers=["hidden"]) == (Verdict.BROKEN, "ORPH: 1")
    assert interrupted(*before[:2], sent=1, leftovers=["hidden"])[0] == Verdict.BROKEN  # without an interruption
    early = ("load-started", -0.2), ("interrupted", 4.6), ("load-done", 4.7), ("drained", 9.0)
    assert interrupted(*early, leftovers=["hidden"])[0] == Verdict.BROKEN  # all that was sent was done


@pytest.mark.parametrize("end", ["drained", "interrupted"])
def test_an_interrupted_load_is_the_first_reason(end: str) -> None:
    verdict, reasons = interrupted(("load-started", -0.2), ("interrupted", 4.6), ("load-done", 4.7), (end, 9))
    assert verdict == Verdict.UNKNOWN
    assert reasons.split(" | ")[0] == "interrupted after 4.6 s of the load, with 25.0% of the planned events sent"
    assert "only 25.0%" not in reasons and "not watched" not in reasons


def test_an_interruption_after_the_load_matters_only_if_it_left_something_undone() -> None:
    before = ("load-started", -0.2), ("load-done", 20.0), ("interrupted", 21.5)
    reason = "interrupted 1.5 s after the load, with 100.0% of the planned events sent"
    assert interrupted(*before, sent=1) == (Verdict.UNKNOWN, reason)
    assert interrupted(*before, ("drained", 23.0), sent=1) == (Verdict.KEPT, "")


def test_an_interruption_is_named_before_the_rows_that_it_left_pending() -> None:
    verdict = decide({"PEND": 7}, Facts(EO, weak=("interrupted",)))
    assert (verdict.reasons[0], len(verdict.reasons)) == ("interrupted", 2)
