"""A load sends each event at its scheduled time and sleeps in between.

Only the client's polls move the clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from confluent_kafka import Message, Producer

from loadgen.config import LoadConfig, Replayed
from loadgen.plan import plan_load
from loadgen.producer import STATUS_EVERY_US, TICK_S, _Load
from loadgen.status import Status
from loadgen.workloads import MOST_AHEAD_US


class Client:
    """Takes events and answers them in its next poll. Each poll lasts as long as it may."""

    def __init__(self) -> None:
        self.now_us, self.polls = 1_700_000_000_000_000, 0
        self._open: list[Callable[[Any, Message], None]] = []

    def produce(self, _topic: str, _value: Any, _key: Any, _partition: int, answered: Any) -> None:
        self._open.append(answered)

    def poll(self, timeout_s: float) -> None:
        self.polls += 1
        self.now_us += round(timeout_s * 1e6)
        for answered in self._open:
            answered(None, Message(topic="t", partition=0, offset=7))
        self._open.clear()


def sent(folder: Path, rate: float, sessions: int) -> tuple[Client, np.ndarray, list[Status]]:
    """The client, each event's lateness in µs, and the statuses of a load."""
    client, statuses = Client(), list[Status]()
    load = LoadConfig("nowhere:1", "t", rate, sessions, folder / "ledger")
    ledger = plan_load(load, lambda: client.now_us)
    running = _Load(load, cast(Producer, client), ledger, lambda: client.now_us, statuses.append)
    running.send(lambda: False)
    running.drain(1.0, lambda: False)
    assert running.summary().acknowledged == load.events
    return client, ledger.sent_us - ledger.scheduled_us, statuses


def test_events_go_out_at_their_scheduled_times(tmp_path: Path) -> None:
    _, late_us, statuses = sent(tmp_path, 2_000.0, 80)
    assert 0 <= late_us.min() <= late_us.max() <= TICK_S * 1e6
    assert all(after.t_us - before.t_us <= STATUS_EVERY_US + TICK_S * 1e6 for before, after in pairwise(statuses))
    assert [status.rate_1s for status in statuses[5:-2]] == pytest.approx([2_000] * len(statuses[5:-2]), rel=0.01)


def test_a_low_rate_wakes_up_for_events_and_statuses_only(tmp_path: Path) -> None:
    client, late_us, statuses = sent(tmp_path, 100.0, 3)
    assert client.polls <= 2 * len(late_us) + len(statuses), (
        "a sleep before each event, and a look for answers after it"
    )


class Broker(Client):
    """Answers one event later than the others."""

    def __init__(self, event: int, after_us: int) -> None:
        super().__init__()
        self.taken, self.event, self.after_us = 0, event, after_us
        self.withheld: Callable[[Any, Message], None] | None = None
        self.answered_us = 0

    def produce(self, *event: Any) -> None:
        if self.taken == self.event:
            self.withheld, self.answered_us = event[-1], self.now_us + self.after_us
        else:
            super().produce(*event)
        self.taken += 1

    def poll(self, timeout_s: float) -> None:
        super().poll(timeout_s)
        if self.withheld is not None and self.now_us >= self.answered_us:
            self.withheld(None, Message(topic="t", partition=0, offset=7))
            self.withheld = None


@pytest.mark.parametrize("workload", ["windows", "sessions"])
def test_windows_hold_events_back_during_an_outage(tmp_path: Path, workload: str) -> None:
    broker = Broker(event=100, after_us=5_000_000)
    load = LoadConfig("nowhere:1", "t", 100.0, 12, tmp_path / "ledger", workload=workload)
    ledger = plan_load(load, lambda: broker.now_us)
    running = _Load(load, cast(Producer, broker), ledger, lambda: broker.now_us, lambda _status: None)
    running.send(lambda: False)
    running.drain(1.0, lambda: False)
    assert running.summary().acknowledged == load.events
    due_us = np.maximum.accumulate(ledger.scheduled_us)  # a late event is due with the event before it
    waiting = ledger.sent_us < broker.answered_us
    newest_us = due_us[waiting].max() - due_us[100]
    if workload == "windows":
        assert MOST_AHEAD_US - 50_000 < newest_us <= MOST_AHEAD_US
    else:
        assert newest_us > 4_900_000


class Touching(Broker):
    """Touches a file when it takes a certain event, and answers that event last."""

    def __init__(self, file: Path, event: int) -> None:
        super().__init__(event, after_us=500_000)
        self._file = file

    def produce(self, *event: Any) -> None:
        if self.taken == self.event:
            os.utime(self._file, (1, 1))
        super().produce(*event)


def test_a_file_that_changes_during_the_load_ends_it_with_a_summary(tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text('{"a":1}\n' * 5_000)
    broker = Touching(file, event=100)
    load = LoadConfig("x:1", "t", 1_000.0, 50, tmp_path / "ledger", workload="records", replayed=Replayed(file))
    ledger = plan_load(load, lambda: broker.now_us)
    running = _Load(load, cast(Producer, broker), ledger, lambda: broker.now_us, lambda _status: None)
    running.send(lambda: False)
    running.drain(1.0, lambda: False)
    summary = running.summary()
    assert 100 < summary.sent == summary.acknowledged < load.events
    assert summary.error == f"{file} has changed since it was counted. Do not change the file during a run"
