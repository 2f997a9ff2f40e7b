"""The search for the highest rate that a pipeline keeps up with.

Promise: pure; it only asks. The answer lies between a rate that was kept up with and one that was not, not more than
`precision` apart. What can go wrong: near the limit a noisy machine answers now so and now so, and the search believes
each answer; so a no is to be asked for again (`of_three`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt


@dataclass(frozen=True)
class Found:
    """`kept`: the highest rate that was kept up with, 0 if none was. `lost`: the lowest that was not, None if all."""

    kept: float
    lost: float | None


def of_three(keeps_up: Callable[[float], bool]) -> Callable[[float], bool]:
    """Believes a no only if two of three say so. Of probes well below the limit 6 in 100 were called overloaded on a
    machine that others slowed, and a search that believes one of them ends far too low; a wrong yes is rare."""
    return lambda rate: keeps_up(rate) or (keeps_up(rate) and keeps_up(rate))


def search(keeps_up: Callable[[float], bool], start: float, lowest: float, highest: float, precision: float) -> Found:
    """Doubles or halves `start` until the limit lies between two rates, then halves what is between (on a log scale).

    Args:
        keeps_up: asked for each rate, in events per second.
        lowest, highest: no rate beyond these is asked for.
        precision: 0.1: until the rates are 10 % apart.
    """
    kept, lost, rate = 0.0, None, start
    while lost is None or lost > kept * (1 + precision):
        if keeps_up(rate):
            kept = rate
            if rate >= highest:
                return Found(kept, lost)
        else:
            lost = rate
            if rate <= lowest:
                return Found(kept, lost)
        rate = _next(kept, lost, lowest, highest)
    return Found(kept, lost)


def _next(kept: float, lost: float | None, lowest: float, highest: float) -> float:
    if lost is None:
        return min(kept * 2, highest)
    return sqrt(kept * lost) if kept else max(lost / 2, lowest)
