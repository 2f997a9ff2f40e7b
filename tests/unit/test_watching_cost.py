"""What watching costs is told of the work that a run still had before it when it began to count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oncebench.watch.resources import Use
from tests.proofs.watching_cost import PIPELINE, cpu_s_per_million
from tests.unit.test_timeline import START, S, record


def test_a_run_that_began_to_count_late_is_charged_for_what_it_still_had_to_do() -> None:
    """A batch of two events at 1 s, one at 2 s, each of half a second's work."""
    done = record([0.1, 0.2, 1.1, 1.2], [(1.0, 2), (2.0, 4)])

    def ran(counts_from_s: float, cpu_s: float) -> Any:
        uses = {name: Use(cpu_s / 3, 0) for name in PIPELINE} | {"observer": Use(9.0, 0)}
        return SimpleNamespace(uses=uses, measured_from_us=START + round(counts_from_s * S))

    assert round(cpu_s_per_million(ran(0.0, 1.0), done)) == round(cpu_s_per_million(ran(1.0, 0.5), done)) == 250_000
