"""Whether a figure comes again: within a series (the noise floor), and in a second series of the same cells.

Promise: pure functions of reports. The noise floor of a cell is what comparing it with itself shows: each round's
figure over that of the round before it in its series, with the same bootstrap interval as any other ratio; a difference
between guarantees that is not wider tells nothing. Of two series, where rounds are enough for intervals, each ratio to
at-least-once is asked three things, and of two series of one and the same thing, five rounds each, so many pass (drawn
from a normal distribution): whether each median lies in the other's interval (71 %: a 95 % interval is about the true
value, and the other median is off it too); whether the one repeats the other, that is its median lies in the other's
interval once that allows for both being off (92 %); whether they are told apart at all, by an exact Mann-Whitney test,
which chance alone does to one in twenty at most. What can go wrong: with few rounds intervals are wide, series agree
easily; the noise floor says how wide.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

from oncebench.report.comparisons.paired import (
    BASELINE,
    FEWEST_ROUNDS,
    Difference,
    Rounds,
    Setting,
    Way,
    bootstrap,
    differing,
    ratio,
    settings,
)
from oncebench.report.comparisons.sweep_selection import in_order, setting_in_words
from oncebench.report.measures.metrics import Metric, Report, figure
from oncebench.report.tables.cost_table import COLUMNS, measured, told
from oncebench.report.tables.table import aligned
from oncebench.scenario.order import order_of

# The usual level, and the one at which the intervals are drawn.
CHANCE = 0.05
# From round to round, in a series of as many rounds as an interval takes.
FEWEST_STEPS = FEWEST_ROUNDS - 1


@dataclass(frozen=True)
class Again:
    """A ratio to at-least-once of the same sink, in one series and in another."""

    setting: Setting
    way: Way
    metric: Metric
    first: Difference
    second: Difference

    @property
    def agrees(self) -> bool:
        """Whether each median lies in the other's interval."""
        return (
            self.first.low <= self.second.median <= self.first.high
            and self.second.low <= self.first.median <= self.second.high
        )

    @property
    def repeats(self) -> bool:
        """Whether the first one's median lies where a repeat of the second is to be expected."""
        low, high = expected_of_a_repeat(self.second)
        return low <= self.first.median <= high

    @property
    def told_apart(self) -> bool:
        """Whether the rounds of the one lie so far from those of the other as chance alone seldom puts them."""
        return by_chance(self.first.rounds, self.second.rounds) < CHANCE


def expected_of_a_repeat(found: Difference) -> tuple[float, float]:
    """Where the median of a second series of as many rounds is to be expected: two medians that are off alike differ by
    the square root of 2 of what one is off, so the interval is that much wider, by factors, as ratios scatter."""
    low, high = (found.median * (end / found.median) ** sqrt(2) for end in (found.low, found.high))
    return low, high


def by_chance(one: Sequence[float], other: Sequence[float]) -> float:
    """How often two samples of one distribution lie as far apart as these: the exact two-sided p of Mann and Whitney.

    Of all ways to deal the values out it counts those that lie as far apart, by their sums of ranks and not one by one,
    of which there were 252 for five and five and 2.7 million for twelve and twelve. Equal values share their ranks.
    """
    values = sorted([*one, *other])

    def rank(value: float) -> int:
        return bisect_left(values, value) + bisect_right(values, value)  # twice the mean rank less 1: a whole number

    # By how many were dealt to the one and the sum of their ranks: in how many ways.
    ways: Counter[tuple[int, int]] = Counter({(0, 0): 1})
    for value in values:
        ways.update({(n + 1, total + rank(value)): count for (n, total), count in ways.items() if n < len(one)})
    dealt = {total: count for (n, total), count in ways.items() if n == len(one)}
    middle = len(one) * len(values)  # the mean over all ways
    off = abs(sum(map(rank, one)) - middle)
    return sum(count for total, count in dealt.items() if abs(total - middle) >= off) / sum(dealt.values())


def beside_itself(rounds: Rounds, metric: Metric, way: Way) -> Difference | None:
    """How many times the round before it in its series each round is; None with fewer than FEWEST_STEPS steps between
    figures above 0."""
    series: dict[tuple[str, int], list[float]] = {}
    for (name, before, _), here in rounds.items():
        if way in here and (value := figure(here[way], metric)):
            series.setdefault((name, before), []).append(value)
    steps = [later / earlier for values in series.values() for earlier, later in pairwise(values)]
    return bootstrap(steps) if len(steps) >= FEWEST_STEPS else None


def again(first: Iterable[Report], second: Iterable[Report], columns: Sequence[Metric] = COLUMNS) -> Iterator[Again]:
    """Every ratio that both series have, each with an interval."""
    theirs = settings(second)
    for setting, rounds in settings(first).items():
        for way in _ways(rounds):
            for metric in columns:
                mine, other = ratio(rounds, metric, way), ratio(theirs.get(setting, {}), metric, way)
                if way == BASELINE or mine is None or other is None:
                    continue
                if mine.has_interval and other.has_interval:
                    yield Again(setting, way, metric, mine, other)


def noise_markdown(reports: Iterable[Report], columns: Sequence[Metric] = COLUMNS) -> str:
    """The noise floor of every cell as a Markdown table; empty if no cell has rounds enough."""
    table: list[tuple[str, ...]] = []
    found = settings(reports)
    swept = differing(found)
    columns = measured(found, columns)
    for setting in in_order(found):
        rounds = found[setting]
        for way in _ways(rounds):
            floors = [beside_itself(rounds, metric, way) for metric in columns]
            if any(floors):
                cells = ("-" if floor is None else f"{floor.low:.2f} to {floor.high:.2f}" for floor in floors)
                table.append((setting.sink, *way, *_in(setting, swept), *cells))
    heading = ("sink", "guarantee", "variant", *(["setting"] if swept else []), *(metric.heading for metric in columns))
    return aligned([heading, *table]) if table else ""


def again_markdown(found: Sequence[Again]) -> str:
    """By metric how many ratios agree, repeat or are told apart, then those that don't agree; empty without any."""
    if not found:
        return ""
    of = Counter(each.metric.heading for each in found)
    swept = differing({each.setting for each in found})
    agreed = Counter(each.metric.heading for each in found if each.agrees)
    repeated = Counter(each.metric.heading for each in found if each.repeats)
    told_apart = Counter(each.metric.heading for each in found if each.told_apart)
    counted = (agreed, repeated, told_apart)
    rows = [(name, str(n), *(str(each[name]) for each in counted)) for name, n in of.items()]
    rows.append(("all", str(len(found)), *(f"{each.total()} ({each.total() / len(found):.0%})" for each in counted)))
    counts = aligned([("metric", "ratios", "agree", "repeat", "told apart"), *rows])
    apart = [
        (
            each.setting.sink,
            *each.way,
            *_in(each.setting, swept),
            each.metric.heading,
            told(each.first),
            told(each.second),
            "yes" if each.repeats else "",
            "yes" if each.told_apart else "",
        )
        for each in found
        if not each.agrees
    ]
    if not apart:
        return counts
    heading = ("sink", "guarantee", "variant", *(["setting"] if swept else []), "metric", "the one", "the other",
               "repeats", "told apart")  # fmt: skip
    return f"{counts}\n{aligned([heading, *apart])}"


def _in(setting: Setting, swept: Sequence[str]) -> list[str]:
    """A column for what tells settings of one sink apart; none where nothing does."""
    return [setting_in_words(setting, swept) or "-"] if swept else []


def _ways(rounds: Rounds) -> list[Way]:
    return sorted({way for here in rounds.values() for way in here}, key=lambda way: order_of(*way))
