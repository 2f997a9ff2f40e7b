"""SIGTERM ends the observer.

It comes while the observer opens its reader, and after the last rows have arrived.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from oncebench.observe import observer
from oncebench.observe.observer import follow
from oncebench.sinks.reader import Rows
from tests import ROOT

OPENS_ITS_READER_AS_A_C_LIBRARY_DOES = """
import dataclasses, signal, sys
from oncebench.observe import observer

def read(target):
    try:
        signal.raise_signal(signal.SIGTERM)
    except BaseException:
        raise TypeError("expected configuration property name as type unicode string")

kafka = dataclasses.replace(observer.suite_sinks()["kafka"], read=read)
observer.suite_sinks = lambda: {"kafka": kafka}
sys.exit(observer.main(sys.argv[1:]))
"""


def test_the_observer_stops_although_a_constructor_swallows_exceptions(tmp_path: Path) -> None:
    config = {"sink": "kafka", "target": {}, "observed_path": "o.arrow", "status_path": "o.jsonl"}
    (tmp_path / "observer.json").write_text(json.dumps(config))
    command = [sys.executable, "-c", OPENS_ITS_READER_AS_A_C_LIBRARY_DOES, str(tmp_path / "observer.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


class Clock:
    """Stands for `time`: only a sleep takes time."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Late:
    """A reader whose rows come at given times after its first poll.

    Some polls return early without a row.
    """

    def __init__(self, clock: Clock, *due_s: float) -> None:
        self.clock, self.due_s, self.taken, self.began_s = clock, [*due_s], 0, clock.now_s

    def poll(self, timeout_s: float) -> Rows:
        until_s = self.clock.now_s + min(timeout_s, 0.05)
        while self.clock.now_s < until_s:
            if self.due_s and self.clock.now_s >= self.began_s + self.due_s[0]:
                self.due_s.pop(0)
                self.taken += 1
                return Rows([0], [self.taken], [1], [b"k"], [b"{}"], [()], seen_us=1)
            self.clock.sleep(0.001)
        return Rows()


class Nowhere:
    def append(self, _: Any) -> None: ...


@pytest.mark.parametrize(
    ("due_s", "taken"),
    [((0.0, 0.12), 2), ((0.12, 0.24, 0.36), 3), ((0.0, 5.0), 1), (tuple(0.05 + at / 10 for at in range(100)), 10)],
)
def test_rows_on_their_way_at_sigterm_are_taken(
    monkeypatch: pytest.MonkeyPatch, due_s: tuple[float, ...], taken: int
) -> None:
    clock = Clock()
    monkeypatch.setattr(observer, "time", clock)
    reader = Late(clock, *due_s)
    follow(cast("Any", reader), cast("Any", Nowhere()), cast("Any", Nowhere()), lambda: True)
    assert reader.taken == taken
    assert clock.now_s - reader.began_s < observer.LAST_S + observer.QUIET_S


class Seldom:
    """A reader that is not due for long, and whose call is slow.

    Only a poll that waits for nothing reads at once.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock, self.taken = clock, False

    def poll(self, timeout_s: float) -> Rows:
        if timeout_s > 0 or self.taken:
            self.clock.now_s += timeout_s
            return Rows()
        self.clock.now_s += observer.LAST_S + 0.1
        self.taken = True
        return Rows([0], [0], [1], [b"k"], [b"{}"], [()], seen_us=1)


def test_a_reader_that_is_not_due_for_long_reads_once_more_at_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(observer, "time", clock)
    taken: list[Any] = []

    class Kept:
        def append(self, columns: Any) -> None:
            taken.extend(columns["offset"])

    follow(cast("Any", Seldom(clock)), cast("Any", Kept()), cast("Any", Nowhere()), lambda: True)
    assert taken == [0]
