"""The price of a sink: paired rounds, and only of runs whose figures mean something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.certify.price import TRIGGER_MS, cells, prices
from oncebench.certify.runs import run_prices
from oncebench.scenario.cell import Cell


def report(call_ms: float, verdict: str = "kept", cpu_s: float = 50.0) -> Any:
    return {
        "verdict": verdict, "sink_ms": {"total": call_ms}, "cpu_s_per_million_events": cpu_s,
        "deaths": {"unasked": 0}, "generator": {"lateness_ms": {"p99": 1.0}}, "batches": {"trigger_ms": call_ms},
        "config": {"rate": 1000, "trigger_ms": TRIGGER_MS},
        "cell": {"sink": "black-box", "guarantee": "exactly-once", "variant": "function"},
    }  # fmt: skip


def test_both_functions_get_the_same_load_in_each_round() -> None:
    for own, beside in cells("{1}", "{2}", 1):
        assert (own.seed, own.rate, own.sessions) == (beside.seed, beside.rate, beside.sessions)
        assert (own.black_box, beside.black_box) == ("{1}", "{2}")


def test_a_price_is_the_median_of_the_rounds_with_its_interval() -> None:
    call, cpu = prices([(report(200 + round), report(100 + round)) for round in range(6)])
    assert (call.own, call.beside) == (202.5, 102.5)
    assert 1.9 < call.ratio.low <= call.ratio.median <= call.ratio.high <= 2.0
    assert call.text.startswith("time of the call per batch, in ms: 202.5 against 102.5, ratio 1.98 (1.9")
    assert cpu.ratio.median == 1


def test_batches_longer_than_their_interval_have_no_price_in_cpu() -> None:
    (call,) = prices([(report(TRIGGER_MS + 1.0), report(100.0))])
    assert call.figure == "time of the call per batch, in ms"


def test_every_round_starts_batches_at_an_interval() -> None:
    assert {cell.trigger_ms for pair in cells("{1}", "{2}", 1) for cell in pair} == {TRIGGER_MS}


def test_a_round_with_a_broken_run_has_no_price() -> None:
    assert prices([(report(1, "broken"), report(1))]) == []


@pytest.mark.parametrize("beside", ["mine:other", "mine:write"])  # a function has a price beside itself too
def test_a_machine_that_becomes_slower_favours_no_function(beside: str) -> None:
    number = count()

    @contextmanager
    def opened(_cells: list[Cell]) -> Iterator[Any]:
        yield lambda *_: report(100 * 1.01 ** next(number)), Event()

    request = SimpleNamespace(beside=beside, seed=1, given={"write": "mine:write"})
    settings: Any = SimpleNamespace(request=request, black_box=lambda write="mine:write": write, open=opened)
    call, _ = run_prices(settings)
    assert call.ratio.median == pytest.approx(1.0, abs=0.001)
    assert call.ratio.low < 1 < call.ratio.high
