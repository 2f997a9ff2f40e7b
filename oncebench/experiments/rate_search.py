"""Searches for the highest rate that a pipeline keeps up with.

Promise: pure functions of the answers of `keeps_up`. The result lies between a sustained rate and an overloaded rate
that are at most `precision` apart. Limit: near the maximum a noisy machine answers at random, and the search trusts
each answer. So a no needs a confirmation (`of_three`). A rate without an answer ends the search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log, log2, sqrt


@dataclass(frozen=True)
class Found:
    """The result of a search, in events per second.

    Attributes:
        kept: the highest sustained rate; 0 if none was sustained.
        lost: the lowest overloaded rate; None if every rate was sustained.
        unanswered: why the search ended without the limit; empty if it was found.
    """

    kept: float
    lost: float | None
    unanswered: str = ""


class NoAnswer(Exception):
    """A rate could not be tried; the text says why."""


def of_three(keeps_up: Callable[[float], bool]) -> Callable[[float], bool]:
    """Returns a `keeps_up` that answers no only if two of three probes do.

    On a machine with other load, 6 of 100 probes well below the limit were called overloaded. A search that trusts one
    of these ends far too low. A wrong yes is rare.
    """
    return lambda rate: keeps_up(rate) or (keeps_up(rate) and keeps_up(rate))


def fewest_rates(precision: float) -> int:
    """Returns the smallest number of rates that a search tries.

    The limit must not be at an end of the range.
    A sustained rate and twice that rate enclose the limit, and each rate after them halves the interval.
    """
    return 2 + max(0, ceil(log2(log(2) / log(1 + precision))))


def search(keeps_up: Callable[[float], bool], start: float, lowest: float, highest: float, precision: float) -> Found:
    """Doubles or halves `start` until two rates enclose the limit, then halves the interval.

    It halves on a log scale.

    Args:
        keeps_up: whether the pipeline sustains a rate, in events per second.
            It may raise `NoAnswer`.
        lowest, highest: the rates between which the search stays.
        precision: the relative width at which the search ends; 0.1 means 10 %.
    """
    kept, lost, rate = 0.0, None, start
    while lost is None or lost > kept * (1 + precision):
        try:
            sustained = keeps_up(rate)
        except NoAnswer as reason:
            return Found(kept, lost, f"no answer at {rate:,.0f} events/s: {reason}")
        if sustained:
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
