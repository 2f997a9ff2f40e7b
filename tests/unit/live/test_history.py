"""The live view's figures: rates, latency, time left, backlog, and recovery after a fault."""

from __future__ import annotations

from typing import Any

import pytest

from oncebench.live.history import BEHIND_S, RATE_S, SPARK_S, SPARKS, History, sparkline
from oncebench.live.status import DRAINING, LOADING, WARMING_UP, Phase, RunStatus
from oncebench.live.view import describe_backlog, fields


class Run:
    """A run that is looked at twice a second."""

    def __init__(self) -> None:
        self.now = 100.0
        self.history = History(lambda: self.now)

    def look(
        self,
        sent: int = 0,
        visible: int = 0,
        p99: float | None = None,
        phase: Phase = LOADING,
        load_s: float | None = 10.0,
        due: int = 0,
        **others: Any,
    ) -> dict[str, str]:
        observer = {"visible": visible, "p99_ms": p99}
        load = {"sent": sent, "acknowledged": sent, "planned_by_now": max(sent, due)}
        status = RunStatus(phase, load, observer, load_s=load_s, **others)
        self.history.add(status)
        self.now += SPARK_S
        return dict(fields(status, self.history))


def test_rates_cover_the_last_seconds() -> None:
    run = Run()
    for second in range(10):
        displayed = run.look(sent=1000 * second, visible=200 * second)
    assert (displayed["events/s"], displayed["rows/s"]) == ("2,000", "400")
    for _ in range(int(RATE_S / SPARK_S) + 2):
        displayed = run.look(sent=9000, visible=1800)
    assert (displayed["events/s"], displayed["rows/s"]) == ("0", "0")


def test_the_first_look_has_no_rate() -> None:
    assert Run().look(sent=500)["events/s"] == "0"


def test_time_left_belongs_to_the_load_only() -> None:
    run = Run()
    assert "left" not in run.look(phase=WARMING_UP)["phase"]
    for _ in range(12):
        assert run.look()["phase"] == "loading"  # the generator plans its events
    assert run.look(due=1)["phase"] == "loading, 10 s left"
    for _ in range(8):
        displayed = run.look(due=100)
    assert displayed["phase"] == "loading, 6 s left"
    assert "left" not in run.look(phase=DRAINING)["phase"]
    assert Run().look(load_s=None)["phase"] == "loading"


def test_a_fault_has_the_time_until_visible_rose() -> None:
    run = Run()
    run.look(visible=100)
    assert "later" not in run.look(visible=100, fault="mid-write:kill in batch 6, restarting")["fault"]
    run.look(visible=120, fault="mid-write:kill in batch 6, restarting")  # visible before the kill, reported after it
    assert "later" not in run.look(visible=120, fault="mid-write:kill in batch 6")["fault"]
    displayed = run.look(visible=140, fault="mid-write:kill in batch 6")
    assert displayed["fault"] == "mid-write:kill in batch 6, visible rose 1.5 s later"
    assert "later" not in run.look(visible=140, fault="mid-commit:kill in batch 9, restarting")["fault"]


def test_a_sparkline_has_a_bar_per_value_and_a_space_for_none() -> None:
    assert sparkline([0.0, 50.0, None, 100.0]) == "▁▅ █"
    assert sparkline([]) == ""
    assert sparkline([0.0, 0.0]) == "▁▁"
    run = Run()
    for number in range(2 * SPARKS):
        run.look(p99=float(number))
    assert len(run.history.sparkline) == SPARKS
    assert run.history.sparkline[-1] == "█"


def loaded(run: Run, lag: int, **others: Any) -> None:
    """Ten seconds of a load of 1,000 events per second; `lag` events wait at the end."""
    for number in range(21):
        run.look(sent=1 + 500 * number, lag=lag if number == 20 else 100, **others)


def test_a_pipeline_behind_its_load_is_reported_with_seconds() -> None:
    run = Run()
    loaded(run, lag=12_000)
    assert describe_backlog(run.history) == "the pipeline is behind its load by 12 s; latencies include the backlog"
    run.look(sent=10_001, lag=11_000, phase=DRAINING)
    assert "by 11 s" in describe_backlog(run.history)
    run.look(sent=10_001, lag=1_000, phase=DRAINING)
    assert describe_backlog(run.history) == ""


@pytest.mark.parametrize(
    ("lag", "others"),
    [
        (round(900 * BEHIND_S), {}),  # one or two batches
        (12_000, {"trigger_s": 5.0}),  # a batch every 5 s
        (12_000, {"load_s": None}),  # without a rate the whole load waits by plan
    ],
)
def test_a_pipeline_that_keeps_up_is_not_reported(lag: int, others: dict[str, Any]) -> None:
    run = Run()
    loaded(run, lag=lag, **others)
    assert describe_backlog(run.history) == ""
