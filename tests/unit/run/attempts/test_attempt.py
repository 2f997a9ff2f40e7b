"""An attempt has the lines that were written since its start.

It has none of an earlier attempt.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import pytest

from oncebench.processes.child import Child
from oncebench.run.attempts.attempt import Attempt, AttemptFiles
from tests.unit.run.attempts.fake_attempts import FakeChild, World


class Started:
    """Attempts of one run, one after another."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.files = AttemptFiles(folder)

    def start(self) -> Attempt:
        time.sleep(0.001)  # the clock of the timeline counts microseconds
        before = self.files.mark()
        child = self.world.start("", None, self.files.log)
        return Attempt(cast("Child", child), self.files, before)

    def writes_everything(self, child: FakeChild) -> None:
        self.world.runs()
        self.world.hit("kill")
        self.world.passes("mid-write", 7)
        self.world.commits(7)
        with child.log.open("a") as log:
            log.write("stopped: first reason\nnoise\n")


@pytest.fixture
def run(tmp_path: Path) -> Started:
    return Started(tmp_path)


def facts(attempt: Attempt) -> tuple[object, ...]:
    committed = [line["batch"] for line in attempt.batches()]
    return attempt.running, len(attempt.hits()), attempt.killed(), committed, attempt.last_failpoint()


def test_an_attempt_has_what_was_written_since_its_start(run: Started) -> None:
    attempt = run.start()
    assert (facts(attempt), attempt.starting) == ((False, 0, False, [], None), True)
    run.writes_everything(run.world.attempts[0])
    assert facts(attempt) == (True, 1, True, [7], {"point": "mid-write", "batch": 7})
    assert (attempt.starting, attempt.last_words()) == (False, "stopped: first reason")


def test_an_attempt_has_nothing_of_an_earlier_one(run: Started) -> None:
    run.start().exit_recorded = True
    run.writes_everything(run.world.attempts[0])
    successor = run.start()
    assert (facts(successor), successor.starting) == ((False, 0, False, [], None), True)
    assert (successor.last_words(), successor.exit_recorded) == ("it left no log", False)


def test_an_attempt_that_died_before_its_query_ran_is_not_starting(run: Started) -> None:
    attempt = run.start()
    run.world.attempts[0].dies(1)
    assert not attempt.starting


def test_a_batch_that_an_earlier_attempt_committed_is_not_counted(run: Started) -> None:
    attempt = run.start()
    run.world._append("progress.jsonl", {"kind": "batch", "batch": 7, "t_us": time.time_ns(), "recovered": True})
    assert attempt.batches() == []


def test_only_a_kill_that_stops_the_attempt_kills_it(run: Started) -> None:
    attempt = run.start()
    run.world.hit("stop")
    assert not attempt.killed()
    run.world.hit("kill", session=501)  # a Spark worker
    assert (attempt.killed(), attempt.killed(or_worker=True)) == (False, True)
