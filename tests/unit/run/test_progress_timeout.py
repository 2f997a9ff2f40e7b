"""A run is waited for as long as it gets on, and a fixed time after it last did."""

from __future__ import annotations

from itertools import count

from oncebench.run.progress_timeout import Patience


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_run_that_gets_on_slowly_is_waited_for() -> None:
    clock, batches = Clock(), count()
    patience = Patience(10.0, lambda: next(batches), clock)
    for _ in range(5):
        clock.now += 9.0
        assert not patience.over()


def test_a_run_that_stands_still_is_not_waited_for_longer_than_the_limit() -> None:
    clock, done = Clock(), [0]
    patience = Patience(10.0, lambda: done[0], clock)
    clock.now = 9.0
    done[0] = 1
    assert not patience.over()
    clock.now = 18.9
    assert not patience.over()
    clock.now = 19.1
    assert patience.over()


def test_what_is_left_after_an_interruption_is_not_lengthened_by_work_nor_by_another_call() -> None:
    clock, batches = Clock(), count()
    patience = Patience(100.0, lambda: next(batches), clock)
    patience.shorten(8.0)
    clock.now = 5.0
    assert not patience.over()
    patience.shorten(8.0)
    clock.now = 8.5
    assert patience.over()
