"""Whether a figure comes again: within a series (the noise floor), and in a second series of the same cells.

Promise: pure functions of reports. The noise floor of a cell is what comparing it with itself shows: each round's
figure over that of the round before it, with the same bootstrap interval as any other ratio (so of three rounds at
least); a difference between guarantees that is not wider tells nothing. Two series agree on a ratio to at-least-once if
each median lies in the other's interval; of one round there is none, and the ratio is left out. What can go wrong: with
few rounds intervals are wide, and series agree easily; the noise floor says how wide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oncebench.reports.cost_table import COLUMNS, told
from oncebench.reports.metrics import Metric, Report, figure
from oncebench.reports.paired import (
    BASELINE,
    FEWEST_ROUNDS,
    Difference,
    Rounds,
    Setting,
    Way,
    bootstrap,
    ratio,
    settings,
)
from oncebench.reports.tables import aligned
from oncebench.scenario import order_of


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


def beside_itself(rounds: Rounds, metric: Metric, way: Way) -> Difference | None:
    """How many times the round before it each round is; None if there are no three rounds with a figure above 0."""
    values = [value for here in rounds.values() if way in here and (value := figure(here[way], metric))]
    steps = [after / before for before, after in pairwise(values)]
    return bootstrap(steps) if len(steps) >= FEWEST_ROUNDS else None


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
    """The noise floor of every cell as a Markdown table; empty if no cell has three rounds."""
    table: list[tuple[str, ...]] = []
    for setting, rounds in sorted(settings(reports).items(), key=lambda item: (item[0].sink, item[0].rest)):
        for way in _ways(rounds):
            floors = [beside_itself(rounds, metric, way) for metric in columns]
            if any(floors):
                cells = ("-" if floor is None else f"{floor.low:.2f} to {floor.high:.2f}" for floor in floors)
                table.append((setting.sink, *way, *cells))
    heading = ("sink", "guarantee", "variant", *(metric.heading for metric in columns))
    return aligned([heading, *table]) if table else ""


def again_markdown(found: Sequence[Again]) -> str:
    """By metric how many ratios agree, then those that do not; empty if there is nothing to compare."""
    if not found:
        return ""
    of = Counter(each.metric.heading for each in found)
    agreed = Counter(each.metric.heading for each in found if each.agrees)
    counts = aligned([("metric", "ratios", "agree"), *((name, str(n), str(agreed[name])) for name, n in of.items()),
                      ("all", str(len(found)), f"{agreed.total()} ({agreed.total() / len(found):.0%})")])  # fmt: skip
    apart = [
        (each.setting.sink, *each.way, each.metric.heading, told(each.first), told(each.second))
        for each in found
        if not each.agrees
    ]
    if not apart:
        return counts
    return counts + "\n" + aligned([("sink", "guarantee", "variant", "metric", "the one", "the other"), *apart])


def _ways(rounds: Rounds) -> list[Way]:
    return sorted({way for here in rounds.values() for way in here}, key=lambda way: order_of(*way))
