"""The timeouts restart whenever the run makes progress.

A slow start is progress while a run drains.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from oncebench.run.progress_timeout import LONGEST_START, DrainTimeout, ProgressTimeout


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_slow_progress_restarts_the_timeout() -> None:
    clock, batches = Clock(), count()
    timeout = ProgressTimeout(10.0, lambda: next(batches), clock)
    for _ in range(5):
        clock.now += 9.0
        assert not timeout.expired()


def test_without_progress_the_timeout_expires() -> None:
    clock, done = Clock(), [0]
    timeout = ProgressTimeout(10.0, lambda: done[0], clock)
    clock.now = 9.0
    done[0] = 1
    assert not timeout.expired()
    clock.now = 18.9
    assert not timeout.expired()
    clock.now = 19.1
    assert timeout.expired()


def test_neither_progress_nor_another_call_extends_a_shortened_timeout() -> None:
    clock, batches = Clock(), count()
    timeout = ProgressTimeout(100.0, lambda: next(batches), clock)
    timeout.shorten(8.0)
    clock.now = 5.0
    assert not timeout.expired()
    timeout.shorten(8.0)
    clock.now = 8.5
    assert timeout.expired()


class Draining:
    """A run after its load, with a limit of 180 s.

    It stands for its own supervisor and progress.
    """

    def __init__(self, start_s: float = 120.0) -> None:
        self.clock = Clock()
        self.events_read, self.hits_handled, self.random_kills_left, self.restarts = 900, 0, 0, 0
        self.starting = False
        self.log_size = 0
        run: Any = self
        self.timeout = DrainTimeout(180.0, start_s, run, run, self.clock)

    def signs_of_life(self) -> tuple[int, int]:
        return self.log_size, 0

    def killed(self) -> None:
        """A fault kills the attempt, and the next one starts."""
        self.hits_handled += 1
        self.starts()

    def starts(self) -> None:
        self.restarts += 1
        self.starting = True

    def expires_after(self, seconds: float, writes_each: float | None = None) -> bool:
        """Whether the timeout expires within these seconds.

        The attempt may write to its log during this time.
        """
        for passed in range(1, round(seconds) + 1):
            self.clock.now += 1
            if writes_each and passed % writes_each == 0:
                self.log_size += 1
            if self.timeout.expired():
                return True
        return False


def test_a_start_that_gives_signs_of_life_is_waited_for() -> None:
    run = Draining()
    run.killed()
    assert not run.expires_after(500, writes_each=100)
    assert run.timeout.starting
    run.starting = False
    assert not run.expires_after(179)
    run.events_read += 100
    assert not run.expires_after(179)
    assert not run.timeout.starting


def test_the_first_batch_of_a_slow_start_may_take_as_long_as_the_start() -> None:
    run = Draining()
    run.killed()
    assert not run.expires_after(501, writes_each=100)
    run.starting = False
    assert not run.expires_after(500, writes_each=100)
    assert run.expires_after(2)
    assert not run.timeout.starting
    run.events_read += 100
    assert not run.expires_after(180)
    assert run.expires_after(2)


@pytest.mark.parametrize(("start_s", "limit_s"), [(120.0, 180), (600.0, 600)])
def test_a_start_that_writes_nothing_ends_and_is_no_stall(start_s: float, limit_s: int) -> None:
    run = Draining(start_s)
    run.killed()
    assert not run.expires_after(limit_s)
    assert run.expires_after(2)
    assert run.timeout.starting


def test_a_start_that_writes_without_end_ends() -> None:
    run = Draining()
    run.killed()
    assert not run.expires_after(LONGEST_START * 120, writes_each=10)
    assert run.expires_after(182, writes_each=10)
    assert run.timeout.starting


@pytest.mark.parametrize("start_s", [120.0, 600.0])
def test_a_pipeline_that_runs_and_reads_nothing_stalls_whatever_it_writes(start_s: float) -> None:
    run = Draining(start_s)
    run.killed()
    assert not run.expires_after(100, writes_each=10)
    run.starting = False
    assert not run.expires_after(180, writes_each=10)
    assert run.expires_after(2, writes_each=10)
    assert not run.timeout.starting


def test_a_crash_loop_stalls_as_soon_as_a_pipeline_that_reads_nothing() -> None:
    run = Draining()
    run.killed()
    assert not run.expires_after(20, writes_each=5)
    for _ in range(5):  # 35 s each: a start, and the query that dies in its first batch
        run.starting = False
        assert not run.expires_after(15, writes_each=5)
        run.starts()
        assert not run.expires_after(20, writes_each=5)
        assert not run.timeout.starting
    assert run.expires_after(7, writes_each=5)
    assert not run.timeout.starting


def test_what_a_start_reports_again_is_no_progress_of_a_crash_loop() -> None:
    run = Draining()
    run.killed()
    for _ in range(6):
        run.events_read = 0  # `started` clears the position, and the line of the recovered batch sets it again
        run.expires_after(1)
        run.events_read = 900
        run.expires_after(29, writes_each=5)
        run.starting = False
        run.expires_after(1)
        run.starts()
    assert run.expires_after(30, writes_each=5)
    assert not run.timeout.starting


def test_each_batch_and_each_fault_makes_the_next_start_count() -> None:
    run = Draining()
    for _ in range(3):
        run.killed()
        assert not run.expires_after(200, writes_each=100)
    run.starting = False
    assert not run.expires_after(10)
    run.events_read += 100
    assert not run.expires_after(10)
    run.starts()  # it died by itself
    assert not run.expires_after(200, writes_each=100)
