"""A failure excuses lost or duplicated rows only where it touched them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oncebench.audit.exits import AFTERMATH_US, EXIT_EVENTS
from oncebench.audit.failures import (
    OF_CHECKPOINTS,
    OF_PROCESSES,
    UNCONFIRMED_US,
    failures_of,
)
from oncebench.audit.python.attribution import Excuses, excuses
from oncebench.audit.python.history.writing_times import writing_times
from oncebench.audit.python.model import expected_of
from oncebench.audit.verdict import Judgement, Verdict
from oncebench.faults.catalogue import FAULTS
from oncebench.record import Record
from oncebench.record.json_lines import Lines
from tests.unit.audit.failures_world import (
    LAST,
    SESSIONS,
    WORLD,
    at,
    batch,
    batches,
    event,
    hit,
    judged,
    positions,
    run,
    twice,
    without,
)
from tests.unit.audit.test_verdict import ALO, AMO, EO

RANDOM, KILLED, FAILED = "random-kill", "pipeline-killed", "pipeline-failed"
WRONG = {AMO: without, ALO: twice}
BOTH = pytest.mark.parametrize("guarantee", WRONG)


@BOTH
@pytest.mark.parametrize("session", range(SESSIONS))
def test_a_kill_excuses_only_the_batch_that_was_open(guarantee: str, session: int) -> None:
    lines = [*batches()[:3], *(batch(number, number + 9) for number in range(3, SESSIONS))]  # batch 3 is killed
    record = run(WRONG[guarantee](session), lines, event(RANDOM, 3.5))
    found = judged(record, guarantee, random_kills=1)
    assert found.verdict == (Verdict.KEPT if session == 3 else Verdict.BROKEN)
    code = "LOSS" if guarantee == AMO else "DUP"
    reason = f"{code}: 20, and no failure touched 20 of these rows"
    assert found.reasons[:1] == (() if session == 3 else (reason,))


@pytest.mark.parametrize("every", [3, 5])
def test_a_sink_that_loses_every_kth_batch_after_a_restart_is_broken(every: int) -> None:
    lines = [*batches()[:3], *(batch(number, number + 9) for number in range(3, SESSIONS))]
    lost = [session for session in range(3, SESSIONS) if (session - 3) % every == 0]
    rows = [row for session in range(SESSIONS) if session not in lost for row in WORLD.of(session)]
    hits = [hit("mid-write:kill", 3, 3.4)]
    record = run(rows, lines, event(KILLED, 3.5), hits=hits)
    found = judged(record, AMO, "mid-write:kill")
    assert found.verdict == Verdict.BROKEN
    assert found.reasons[0] == f"LOSS: {20 * len(lost)}, and no failure touched {20 * (len(lost) - 1)} of these rows"
    only_killed = run(without(3), lines, event(KILLED, 3.5), hits=hits)
    assert judged(only_killed, AMO, "mid-write:kill").verdict == Verdict.KEPT


@BOTH
@pytest.mark.parametrize("began", [True, False])
def test_a_batch_whose_line_a_kill_prevented_may_have_begun_with_the_batch_before(guarantee: str, began: bool) -> None:
    """Batch 3 was done and batch 4 open, and both lines are missing.

    The next start reports batch 3 again.
    """
    recovered = {**batch(3, 11), "recovered": True}
    lines = [*batches()[:3], recovered, *(batch(number, number + 8) for number in range(4, SESSIONS))]
    lines = lines if began else [{name: each[name] for name in each if name != "began_us"} for each in lines]
    for session, verdict in ((1, Verdict.BROKEN), (3, Verdict.KEPT), (4, Verdict.KEPT), (9, Verdict.BROKEN)):
        record = run(WRONG[guarantee](session), lines, event(RANDOM, 4.1))
        assert judged(record, guarantee, random_kills=1).verdict == verdict, session


@BOTH
def test_a_batch_that_ran_again_later_is_touched_by_what_made_it_run_again(guarantee: str) -> None:
    again = [batch(number, number + 20) for number in range(3, SESSIONS)]
    lines = [*batches()[:6], *again]
    for session, verdict in ((2, Verdict.BROKEN), (3, Verdict.KEPT), (5, Verdict.KEPT), (8, Verdict.BROKEN)):
        record = run(WRONG[guarantee](session), lines, event(RANDOM, 6.0))
        assert judged(record, guarantee, random_kills=1).verdict == verdict, session


@BOTH
def test_a_checkpoint_fault_may_touch_every_later_batch(guarantee: str) -> None:
    lines = [*batches()[:6], *(batch(number, number + 20) for number in range(5, SESSIONS))]
    fault = hit("after-commit:lose-offsets", 5, 5.9)
    over = event("nemesis-over", 30.0, hit_us=fault["t_us"])
    for session, verdict in ((4, Verdict.BROKEN), (5, Verdict.KEPT), (11, Verdict.KEPT)):
        record = run(WRONG[guarantee](session), lines, event(KILLED, 6.0), over, hits=[fault])
        assert judged(record, guarantee, "after-commit:lose-offsets").verdict == verdict, session


def server_fault(session: int, guarantee: str, scale: float, **more: Any) -> Verdict:
    """The verdict on a run whose broker was away from second 5.2 to 5.8 of `scale` seconds."""
    lines = [batch(number, (number + 1) * scale, number * scale) for number in range(SESSIONS)]
    fault = hit("mid-write:kill-broker", 5, 5.2 * scale)
    over = event("nemesis-over", 5.8 * scale, hit_us=fault["t_us"])
    record = run(WRONG[guarantee](session), lines, *([] if more else [over]), hits=[fault])
    return judged(record, guarantee, "mid-write:kill-broker").verdict


def test_a_server_fault_touches_at_least_once_until_its_clients_have_asked_again() -> None:
    scale = AFTERMATH_US / 1e6
    found = [server_fault(session, ALO, scale) for session in range(SESSIONS)]
    assert found == [Verdict.BROKEN] * 5 + [Verdict.KEPT] * 3 + [Verdict.BROKEN] * 4


def test_a_server_fault_touches_what_at_most_once_wrote_just_before_and_all_that_follows() -> None:
    scale = UNCONFIRMED_US / 1e6
    found = [server_fault(session, AMO, scale) for session in range(SESSIONS)]
    assert found == [Verdict.BROKEN] * 4 + [Verdict.KEPT] * 8


@BOTH
def test_a_fault_without_a_recorded_end_may_touch_everything_after_it(guarantee: str) -> None:
    lines = [batch(number, (number + 1) * 100, number * 100) for number in range(SESSIONS)]
    fault = hit("mid-write:stop:5", 5, 550)
    ended = event("nemesis-over", 555, hit_us=fault["t_us"])
    older = (event("pipeline-started", -9, pid=7), event("drained", 2000))  # that version did not record the ends
    for session, of_older, of_newer in ((3, "broken", "broken"), (5, "kept", "kept"), (9, "kept", "broken")):
        rows = WRONG[guarantee](session)
        assert judged(run(rows, lines, ended, hits=[fault]), guarantee, "mid-write:stop:5").verdict == of_newer
        record = replace(run(rows, lines, hits=[fault]), timeline=Lines(older))
        assert judged(record, guarantee, "mid-write:stop:5").verdict == of_older


def test_an_unintended_exit_may_come_from_a_server() -> None:
    lines = [batch(number, (number + 1) * 20, number * 20) for number in range(SESSIONS)]

    def verdict(session: int, name: str, guarantee: str) -> str:
        record = run(WRONG[guarantee](session), lines, event(name, 110, exit_code=1))
        return judged(record, guarantee, random_kills=int(name == RANDOM)).verdict

    assert [verdict(session, FAILED, AMO) for session in (2, 4, 5, 9)] == ["broken", "kept", "kept", "kept"]
    assert [verdict(session, RANDOM, AMO) for session in (2, 3, 5, 9)] == ["broken", "broken", "kept", "broken"]
    assert [verdict(session, FAILED, ALO) for session in (2, 3, 5, 9)] == ["broken", "broken", "kept", "broken"]


@BOTH
def test_a_fault_that_was_not_hit_touches_nothing(guarantee: str) -> None:
    for session in (0, 11):
        assert judged(run(WRONG[guarantee](session), batches()), guarantee, "after-commit:kill").verdict == "broken"


@BOTH
def test_rows_without_a_line_may_be_touched_and_a_note_says_so(guarantee: str) -> None:
    code = "LOSS" if guarantee == AMO else "DUP"
    covered = {**batch(11, 30), "recovered": True}  # the next start found it committed
    record = run(WRONG[guarantee](11), [*batches()[:-1], covered], event(RANDOM, 3.5))
    found = judged(record, guarantee, random_kills=1)
    assert found.verdict == Verdict.KEPT
    assert found.reasons == (
        f"{code}: 20 rows are of no batch or position in progress.jsonl, so a failure may have touched them",
    )


def test_pending_rows_are_not_lost_rows() -> None:
    ends = {"0": LAST + 5}
    record = run(without(11), [*batches()[:5], {**batch(5, 6), "end_offsets": ends}], event(RANDOM, 3.5))
    found = judged(record, AMO, random_kills=1)
    assert (found.verdict, found.reasons) == (Verdict.UNKNOWN, ("PEND: 20, does not show whether the guarantee holds: "
                                                               "the run is unknown",))  # fmt: skip
    assert excuses(record, expected_of(record), AMO) == Excuses()


@BOTH
def test_each_of_several_failures_excuses_the_rows_that_it_touched(guarantee: str) -> None:
    for session, verdict in ((3, Verdict.KEPT), (5, Verdict.BROKEN), (8, Verdict.KEPT)):
        record = run(WRONG[guarantee](session), batches(), event(RANDOM, 3.5), event(RANDOM, 8.5))
        assert judged(record, guarantee, random_kills=2).verdict == verdict, session


@BOTH
def test_a_failure_touches_rows_whose_work_begins_or_ends_with_it(guarantee: str) -> None:
    """The work on session n may take from second n - 1 to n + 1."""
    for session, verdict in ((2, Verdict.BROKEN), (3, Verdict.KEPT), (5, Verdict.KEPT), (6, Verdict.BROKEN)):
        record = run(WRONG[guarantee](session), batches(), event(RANDOM, 4.0))
        assert judged(record, guarantee, random_kills=1).verdict == verdict, session


REPORTED = ((1, 2), (2, 4), (6, 5), (7, 8), (8, 10), (9, 12))  # killed after second 4, with sessions read ahead


@pytest.mark.parametrize(("session", "verdict"), [(0, "broken"), (3, "broken"), (4, "kept"), (7, "kept")])
def test_a_position_reported_before_a_kill_leaves_no_excuse_for_the_rows_below_it(session: int, verdict: str) -> None:
    record = run(twice(session), positions(*REPORTED), event(RANDOM, 4.0))
    assert judged(record, ALO, random_kills=1).verdict == verdict


def test_a_session_that_ended_after_the_kill_was_not_read_before_it() -> None:
    """The end of session n is due 0.99 + n / 10 s after the start of the load."""
    found = {}
    for session in range(SESSIONS):
        record = run(twice(session), positions((0.3, 0), (9, 12)), event(RANDOM, 0.5))
        found[session] = judged(record, ALO, random_kills=1).verdict
    assert [session for session, verdict in found.items() if verdict == Verdict.KEPT] == list(range(6))


def test_a_position_below_an_earlier_one_makes_the_rows_between_them_open_again() -> None:
    started = {"kind": "started", "t_us": at(4)}
    record = run(WORLD.rows, [*positions((1, 8)), started, *positions((5, 3), (7, 6), (9, 12))])
    _, until_us = writing_times(expected_of(record), record.progress.items)
    assert until_us.tolist() == [at(1)] * 3 + [at(7)] * 3 + [at(9)] * 6


def test_a_task_that_repeats_an_old_position_does_not_take_it_back() -> None:
    """After a restart each of Flink's tasks reports all partitions.

    It reports the partitions of other tasks as they were then.
    """
    started = {"kind": "started", "t_us": at(4)}
    lines = [*positions((1, 2)), started, *positions((5, 3), (6, 6), (7, 3), (8, 12), (9, 3))]
    _, until_us = writing_times(expected_of(run(WORLD.rows, lines)), lines)
    assert until_us.tolist() == [at(1)] * 2 + [at(5)] + [at(6)] * 3 + [at(8)] * 6


def test_at_most_once_without_batches_may_lose_what_it_has_not_sent() -> None:
    record = run(without(1), positions((1, 2), (20, 4), (60, 12)), event(RANDOM, 30.0))
    assert judged(record, AMO, random_kills=1).verdict == Verdict.KEPT
    record = run(without(1), positions((1, 2), (20, 4), (90, 12)), event(RANDOM, 60.0))
    assert judged(record, AMO, random_kills=1).verdict == Verdict.BROKEN


def test_work_on_a_batch_begins_after_the_batch_before_it_had_begun() -> None:
    record = run(WORLD.rows, batches())
    from_us, until_us = writing_times(expected_of(record), record.progress.items)
    assert from_us.tolist() == [-math.inf, *(at(number - 1) for number in range(1, SESSIONS))]
    assert until_us.tolist() == [at(number + 1) for number in range(SESSIONS)]
    older = [{name: line[name] for name in line if name != "began_us"} for line in record.progress.items]
    from_us, _ = writing_times(expected_of(record), older)
    assert from_us.tolist() == [-math.inf] * 3 + [at(number - 2) for number in range(3, SESSIONS)]
    nothing = writing_times(expected_of(record), [])
    assert [np.isinf(times).all() for times in nothing] == [True, True]


def test_a_partition_that_no_line_names_has_no_time() -> None:
    record = run(WORLD.rows, [{**batch(0, 1), "start_offsets": {}, "end_offsets": {"7": 10}}])
    _, until_us = writing_times(expected_of(record), record.progress.items)
    assert until_us.tolist() == [math.inf] * SESSIONS


@pytest.mark.parametrize("name", sorted(EXIT_EVENTS))
def test_an_intended_exit_is_one_moment(name: str) -> None:
    record = run(WORLD.rows, batches(), event(name, 3.5), hits=[hit("mid-write:end", 3, 3.0)])
    assert failures_of(record, ALO)[0] == (at(3.5), at(3.5))


def test_a_kill_without_an_exit_lasts_until_the_end() -> None:
    fault = hit("mid-write:kill", 3, 3.0)
    assert failures_of(run(WORLD.rows, batches(), hits=[fault]), ALO) == [(at(3.0), math.inf)]
    record = run(WORLD.rows, batches(), event(KILLED, 2.5), event(KILLED, 3.5), event(KILLED, 4.5), hits=[fault])
    assert failures_of(record, AMO)[-1] == (at(3.0), at(3.5))


def test_a_kill_is_over_with_an_exit_of_the_same_microsecond() -> None:
    record = run(WORLD.rows, batches(), event(KILLED, 3.0), event(KILLED, 9.0), hits=[hit("mid-write:kill", 3, 3.0)])
    assert failures_of(record, ALO)[-1] == (at(3.0), at(3.0))


def test_a_stopped_process_may_touch_rows_until_its_clients_have_asked_again() -> None:
    fault = hit("mid-write:stop:5", 3, 3.0)
    ended = event("nemesis-over", 8.0, hit_us=fault["t_us"])
    assert failures_of(run(WORLD.rows, batches(), ended, hits=[fault]), ALO) == [(at(3.0), at(8.0) + AFTERMATH_US)]


def test_every_fault_of_the_catalogue_is_of_its_class() -> None:
    assert {each.name for each in FAULTS.values() if each.replaces_checkpoint} == OF_CHECKPOINTS
    inside = {
        each.name
        for each in FAULTS.values()
        if each.breaks is None and each.fills is None and not each.replaces_checkpoint
    }
    assert inside == OF_PROCESSES


def moved(record: Record, moved_us: int | None) -> Record:
    """The run with the movement of its clock; None: an older run."""
    return record if moved_us is None else replace(record, facts={"clock_moved_us": moved_us})


@BOTH
@pytest.mark.parametrize(("moved_us", "times"), [(None, True), (0, True), (-5_000, True), (5_001, False)])
def test_a_moved_clock_leaves_open_which_rows_a_failure_touched(
    guarantee: str, moved_us: int | None, times: bool
) -> None:
    for session, verdict in ((2, Verdict.BROKEN), (5, Verdict.KEPT)):
        record = moved(run(WRONG[guarantee](session), batches(), event(RANDOM, 5.5)), moved_us)
        assert judged(record, guarantee, random_kills=1).verdict == (verdict if times else Verdict.UNKNOWN)


@pytest.mark.parametrize(("moved_us", "how"), [(200_000, "forward by 0.200 s"), (-1_600_000, "back by 1.600 s")])
def test_the_reasons_name_the_movement_of_the_clock_with_every_verdict(moved_us: int, how: str) -> None:
    sentence = (
        f"the clock of the run's machine was set {how} during the run, or the machine slept. So the times of the run "
        "are not known. Run it again while the machine is awake and nothing sets its clock"
    )
    assert judged(moved(run(WORLD.rows, batches()), moved_us), EO) == Judgement(Verdict.UNKNOWN, {}, (sentence,))
    broken = judged(moved(run(twice(2), batches()), moved_us), EO)
    assert (broken.verdict, broken.reasons) == (Verdict.BROKEN, ("DUP: 20", sentence))
    healthy = judged(moved(run(twice(2), batches()), moved_us), ALO)
    assert (healthy.verdict, healthy.reasons) == (Verdict.BROKEN, ("DUP: 20", sentence))
