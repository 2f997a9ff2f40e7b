"""Whether a figure is repeatable: within a series (the noise floor) and between series.

Promise: pure functions of reports. The noise floor of a cell compares the cell with itself: the figure of each round
divided by the figure of the round before, with the same interval of the median as any other ratio. A difference between
guarantees that is not wider than the noise floor shows nothing.

Two series are compared ratio by ratio (to at-least-once), where both have FEWEST_ROUNDS rounds. Each ratio has three
tests. The last column is how often two series of the same thing pass, with five rounds each, drawn from a normal
distribution:

| test   | question                                                                      | by chance       |
|--------|-------------------------------------------------------------------------------|-----------------|
| agree  | Is each median in the other's interval?                                       | 71 % pass       |
| repeat | Is the first median in the second's interval, widened for a second median?    | 92 % pass       |
| differ | Are the rounds further apart than chance explains (exact Mann-Whitney test)?  | at most 5 % are |

`agree` is no better than 71 % because a 95 % interval is about the true value, and the other median is off it too.
What can go wrong: with few rounds intervals are wide, and series agree easily. The noise floor shows how wide.
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
    Difference,
    Rounds,
    Setting,
    differing,
    measured,
    median_interval,
    ratio,
    settings,
    variants_in,
)
from oncebench.report.comparisons.sweep_selection import in_order, setting_text
from oncebench.report.configuration import Variant
from oncebench.report.grid import grid
from oncebench.report.measures.metrics import COSTS, Metric, figure
from oncebench.report.schema import Report

# The usual level of significance; the intervals have the same.
SIGNIFICANCE = 0.05
# The published series have five rounds. Their intervals reach from the smallest value to the largest (93.75 %). That is
# too little to show a difference between guarantees, but these tests allow for it.
FEWEST_ROUNDS = 5
# Steps from round to round in such a series.
FEWEST_STEPS = FEWEST_ROUNDS - 1


@dataclass(frozen=True)
class RepeatedRatio:
    """A ratio to at-least-once of the same sink, in a first and in a second series."""

    setting: Setting
    variant: Variant
    metric: Metric
    first: Difference
    second: Difference

    @property
    def agrees(self) -> bool:
        """Whether each median is in the other's interval."""
        return (
            self.first.low <= self.second.median <= self.first.high
            and self.second.low <= self.first.median <= self.second.high
        )

    @property
    def repeats(self) -> bool:
        """Whether the first median is in the interval for a repetition of the second."""
        low, high = repetition_interval(self.second)
        return low <= self.first.median <= high

    @property
    def differs(self) -> bool:
        """Whether the rounds are further apart than chance explains."""
        return mann_whitney_p(self.first.rounds, self.second.rounds) < SIGNIFICANCE


def repetition_interval(found: Difference) -> tuple[float, float]:
    """Returns the interval for the expected median of a second series with as many rounds.

    Two medians with the same error differ by the square root of 2 times that error. The interval is that much wider, as
    a factor and not as a sum, because ratios scatter by factors.
    """
    low, high = (found.median * (end / found.median) ** sqrt(2) for end in (found.low, found.high))
    return low, high


def mann_whitney_p(one: Sequence[float], other: Sequence[float]) -> float:
    """The exact two-sided p of Mann and Whitney.

    This is the probability that chance puts two samples as far apart as these.

    The function counts all divisions of the values into two samples: 252 for five and five values, and 2.7 million for
    twelve and twelve. It groups them by the sums of their ranks and does not visit them one by one. Equal values share
    their ranks. `scipy.stats.mannwhitneyu` is not used, because it is exact only if no two values are equal.
    """
    values = sorted([*one, *other])

    def rank(value: float) -> int:
        return bisect_left(values, value) + bisect_right(values, value)  # twice the mean rank minus 1, a whole number

    # The number of divisions, by the number of values in the first sample and by the sum of their ranks.
    ways: Counter[tuple[int, int]] = Counter({(0, 0): 1})
    for value in values:
        ways.update({(n + 1, total + rank(value)): count for (n, total), count in ways.items() if n < len(one)})
    dealt = {total: count for (n, total), count in ways.items() if n == len(one)}
    mean = len(one) * len(values)
    distance = abs(sum(map(rank, one)) - mean)
    return sum(count for total, count in dealt.items() if abs(total - mean) >= distance) / sum(dealt.values())


def noise_floor(rounds: Rounds, metric: Metric, variant: Variant) -> Difference | None:
    """Each round divided by the round before it in its series.

    None with fewer than FEWEST_STEPS steps between figures above 0.
    """
    series: dict[tuple[str, int], list[float]] = {}
    for (name, before, _), runs in rounds.items():
        if variant in runs and (value := figure(runs[variant], metric)):
            series.setdefault((name, before), []).append(value)
    steps = [later / earlier for values in series.values() for earlier, later in pairwise(values)]
    return median_interval(steps) if len(steps) >= FEWEST_STEPS else None


def repeated_ratios(
    first: Iterable[Report], second: Iterable[Report], columns: Sequence[Metric] = COSTS
) -> Iterator[RepeatedRatio]:
    """Every ratio that has FEWEST_ROUNDS rounds in both series."""
    of_second = settings(second)
    for setting, rounds in settings(first).items():
        for variant in variants_in(rounds):
            for metric in columns:
                mine, other = ratio(rounds, metric, variant), ratio(of_second.get(setting, {}), metric, variant)
                if variant == BASELINE or mine is None or other is None:
                    continue
                if min(len(mine.rounds), len(other.rounds)) >= FEWEST_ROUNDS:
                    yield RepeatedRatio(setting, variant, metric, mine, other)


def noise_markdown(reports: Iterable[Report], columns: Sequence[Metric] = COSTS) -> str:
    """The noise floor of every cell as a Markdown table; empty if no cell has enough rounds."""
    table: list[tuple[str, ...]] = []
    found = settings(reports)
    fields = differing(found)
    columns = measured(found, columns)
    for setting in in_order(found):
        rounds = found[setting]
        for variant in variants_in(rounds):
            floors = [noise_floor(rounds, metric, variant) for metric in columns]
            if any(floors):
                cells = ("-" if floor is None else f"{floor.low:.2f} to {floor.high:.2f}" for floor in floors)
                table.append((setting.sink, *variant, *_setting_column(setting, fields), *cells))
    heading = (*_headings(fields), *(metric.heading for metric in columns))
    return grid([heading, *table]) if table else ""


def repeated_markdown(found: Sequence[RepeatedRatio]) -> str:
    """Counts the ratios that agree, repeat or differ, per metric; lists those that disagree.

    Empty without ratios.
    """
    if not found:
        return ""
    fields = differing({each.setting for each in found})
    ratios = Counter(each.metric.heading for each in found)
    passed = (
        Counter(each.metric.heading for each in found if each.agrees),
        Counter(each.metric.heading for each in found if each.repeats),
        Counter(each.metric.heading for each in found if each.differs),
    )
    rows = [(name, str(n), *(str(each[name]) for each in passed)) for name, n in ratios.items()]
    rows.append(("all", str(len(found)), *(f"{each.total()} ({each.total() / len(found):.0%})" for each in passed)))
    counts = grid([("metric", "ratios", "agree", "repeat", "differ"), *rows])
    disagreeing = [
        (
            each.setting.sink,
            *each.variant,
            *_setting_column(each.setting, fields),
            each.metric.heading,
            _text(each.first),
            _text(each.second),
            "yes" if each.repeats else "",
            "yes" if each.differs else "",
        )
        for each in found
        if not each.agrees
    ]
    if not disagreeing:
        return counts
    heading = (*_headings(fields), "metric", "first", "second", "repeats", "differs")
    return f"{counts}\n{grid([heading, *disagreeing])}"


def _text(found: Difference) -> str:
    """A ratio with its interval, also that of five rounds."""
    return f"{found.median:.2f}x ({found.low:.2f} to {found.high:.2f})"


def _setting_column(setting: Setting, fields: Sequence[str]) -> list[str]:
    """The fields in which settings of a sink differ, as one column or none."""
    return [setting_text(setting, fields) or "-"] if fields else []


def _headings(fields: Sequence[str]) -> tuple[str, ...]:
    return "sink", "guarantee", "variant", *(["setting"] if fields else [])
