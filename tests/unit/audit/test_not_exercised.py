"""Each reason why a fault was not exercised stays with its own fault."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oncebench.audit.not_exercised import by_fault, notes_of, of_random_kills, without_a_hit
from oncebench.report.faults import faults_of

LOSE, LATE = "before-decision:lose-answer", "after-decision:late-commit:5"


def hit(fault: str, t_us: int, batch: int) -> dict[str, Any]:
    point, action = fault.split(":")[:2]
    return {"fault": fault, "point": point, "action": action, "batch": batch, "t_us": t_us}


HITS = [hit(LOSE, 100, 6), hit(LATE, 120, 8)]
IDLE = {"event": "nemesis-idle", "fault": LOSE, "why": "nothing came", "t_us": 300}
DONE = [{"kind": "batch", "batch": batch} for batch in (6, 8)]
NO_TARGET = f"the fault {LOSE} had no target: nothing came"


def test_a_note_belongs_to_the_hit_that_it_names_however_late_it_comes() -> None:
    later = [*HITS, hit(LOSE, 200, 9)]
    note = {**IDLE, "hit_us": 100}
    assert [notes_of(each, later, [note]) for each in later] == [[note], [], []]
    assert by_fault(HITS, [LOSE, LATE], [note], DONE) == [[NO_TARGET], []]
    assert without_a_hit(HITS, [note]) == []
    assert without_a_hit(HITS[1:], [note]) == [NO_TARGET]


def test_a_note_of_an_older_run_belongs_to_the_newest_earlier_hit_of_its_fault() -> None:
    twice = [hit(LOSE, 100, 6), hit(LOSE, 200, 8), hit(LOSE, 400, 9)]
    assert [bool(notes_of(each, twice, [IDLE])) for each in twice] == [False, True, False]


def test_a_note_of_an_older_run_belongs_to_a_hit_in_the_same_microsecond() -> None:
    assert notes_of(HITS[0], HITS, [{**IDLE, "t_us": 100}]) == [{**IDLE, "t_us": 100}]
    assert notes_of(HITS[0], HITS, [{**IDLE, "t_us": 99}]) == []


def test_each_reason_stands_with_its_own_fault() -> None:
    three = [*HITS, hit("after-commit:kill", 500, 9)]
    reasons = by_fault(three, [LOSE, "mid-write:kill", "after-commit:kill"], [], DONE)
    assert reasons[0] == []
    assert "acted in its place" in reasons[1][0]
    assert reasons[2] == ["batch 9 was not run again after the kill at after-commit"]
    missed = by_fault(HITS, [LOSE, LATE, "mid-write:kill"], [], DONE)
    assert missed[2:] == [["the fault mid-write:kill was not hit"]]
    assert by_fault(HITS, [LOSE], [], DONE)[1] == [f"the fault {LATE} acted without being requested"]


def test_a_fault_that_ends_an_attempt_needs_a_replay_and_a_pause_does_not() -> None:
    ended = [hit(fault, 100, 9) for fault in ("mid-write:kill", "mid-write:outage:8", "mid-write:stop:3")]
    assert [bool(by_fault([each], [each["fault"]], [], DONE)[0]) for each in ended] == [True, True, False]


def test_a_batch_not_done_after_a_fault_without_a_kill_is_a_reason() -> None:
    stopped = hit("mid-write:stop-broker:5", 100, 7)
    reason = ["batch 7 was not done after the fault mid-write:stop-broker:5"]
    assert by_fault([stopped], [stopped["fault"]], [], DONE) == [reason]


STARTED = {"event": "pipeline-started", "t_us": 1, "pid": 7, "tells_over": True}
OVER = [{"event": "nemesis-over", "hit_us": each["t_us"], "t_us": 900} for each in HITS]


def test_a_fault_that_did_not_run_to_its_end_was_not_exercised() -> None:
    reason = f"the fault {LATE} did not run to its end"
    assert by_fault(HITS, [LOSE, LATE], [STARTED, *OVER], DONE) == [[], []]
    assert by_fault(HITS, [LOSE, LATE], [STARTED, OVER[0]], DONE) == [[], [reason]]
    cut_short = [{"event": event, "hit_us": 120, "t_us": 300} for event in ("zombie-left", "zombie-never-continued")]
    assert by_fault(HITS, [LOSE, LATE], [STARTED, OVER[0], *cut_short], DONE) == [[], [reason]]


def test_a_fault_without_a_target_has_one_reason() -> None:
    idle = {**IDLE, "hit_us": 100}
    for notes in ([idle], [idle, OVER[0]]):
        assert by_fault(HITS, [LOSE, LATE], [STARTED, *notes, OVER[1]], DONE) == [[NO_TARGET], []]


def test_a_kill_and_an_older_run_need_no_note_of_the_end() -> None:
    kill = [hit("mid-write:kill", 100, 6)]
    assert by_fault(kill, ["mid-write:kill"], [STARTED], DONE) == [[]]
    assert by_fault(HITS, [LOSE, LATE], [{**STARTED, "tells_over": False}], DONE) == [[], []]


def test_a_report_has_each_fault_with_its_own_notes_and_without_paths(tmp_path: Path) -> None:
    notes = [
        {"event": "pipeline-continued", "hit_us": 100, "t_us": 101},
        {"event": "commit-arrived", "hit_us": 120, "t_us": 180, "error_code": 0},
        {**IDLE, "hit_us": 100},
        {**IDLE, "hit_us": 100, "why": f"nothing came to {tmp_path}/checkpoint"},
        {"event": "refused", "hit_us": 120, "t_us": 400, "why": f"no {tmp_path}/checkpoint"},
        OVER[1],
    ]
    record: Any = SimpleNamespace(
        hits=SimpleNamespace(items=HITS), timeline=SimpleNamespace(items=notes),
        progress=SimpleNamespace(items=DONE), cell={"cell": {"faults": [LOSE, LATE]}}, path=tmp_path,
    )  # fmt: skip
    lose, late = faults_of(record)
    assert lose["noted"] == ["nemesis-idle: nothing came", "nemesis-idle: nothing came to checkpoint"]
    assert lose["untested"] == [NO_TARGET, f"{NO_TARGET} to checkpoint"]
    assert (late["noted"], late["untested"]) == (["commit-arrived: error_code 0", "refused: no checkpoint"], [])


def random_kill(**fields: bool) -> dict[str, Any]:
    return {"event": "random-kill", "t_us": 500, "landed": None, **fields}


def test_an_outage_without_a_held_commit_tested_nothing() -> None:
    held, missed = random_kill(commit_held=True), random_kill(commit_held=False)
    assert of_random_kills(2, [held, random_kill()]) == []
    (why,) = of_random_kills(2, [held, missed])
    assert why.startswith("1 of 2 random kills: the pipeline committed no transaction in time")
    assert of_random_kills(3, [missed, missed])[0] == "2 of 3 random kills happened"
    record: Any = SimpleNamespace(
        hits=SimpleNamespace(items=[]), timeline=SimpleNamespace(items=[held, missed]),
        progress=SimpleNamespace(items=[]), cell={"cell": {"faults": []}}, path=Path("run"),
    )  # fmt: skip
    assert [bool(kill["untested"]) for kill in faults_of(record)] == [False, True]


def test_a_random_kill_without_work_tested_nothing() -> None:
    busy, idle = random_kill(), random_kill(idle=True)
    why = "random kills: the pipeline had read and committed everything. Make the load longer"
    assert of_random_kills(2, [busy, busy]) == []
    assert of_random_kills(3, [busy, idle, idle]) == [f"2 of 3 {why}"]
