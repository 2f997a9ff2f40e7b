"""The timeout restarts whenever the run makes progress."""

from __future__ import annotations

from itertools import count

from oncebench.run.progress_timeout import ProgressTimeout


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
