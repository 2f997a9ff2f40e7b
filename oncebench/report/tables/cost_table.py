"""What each guarantee costs, as ratios to at-least-once of the same sink with their intervals: Markdown.

Promise: pure functions of reports; the row that others are compared with shows its own medians. A ratio is the median
over rounds of runs that took turns, with its 95 % bootstrap interval; one that crosses 1 is marked `~`: no difference
shown. Where rounds are too few for an interval, or a run of them tells nothing, their number stands beside it. What
fell behind its load in most rounds is told by that: its latencies are those of a queue. There is no overall winner:
sinks are not compared with one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from oncebench.report.comparisons.paired import (
    BASELINE,
    Difference,
    Rounds,
    Setting,
    Way,
    differing,
    in_words,
    ratio,
    settings,
)
from oncebench.report.comparisons.sustained import fell_behind
from oncebench.report.comparisons.sweep_selection import in_order
from oncebench.report.measures.metrics import METRICS, Metric, Report, figure, flat_out
from oncebench.report.tables.table import aligned
from oncebench.scenario.order import order_of

COLUMNS = tuple(metric for metric in METRICS if not metric.promised and metric.name != "recovery_s")


def markdown(reports: Iterable[Report], columns: Sequence[Metric] = COLUMNS) -> str:
    """A Markdown table of all healthy runs: a row for each sink, guarantee and variant (and setting, if they have
    several); empty if there are none."""
    found = settings(reports)
    if not found:
        return ""
    swept = differing(found)
    columns = measured(found, columns)
    table: list[tuple[str, ...]] = [
        ("sink", "guarantee", "variant", *swept, "rounds", *(metric.heading for metric in columns))
    ]
    for setting in in_order(found):
        rounds = found[setting]
        for way in sorted({way for here in rounds.values() for way in here}, key=lambda way: order_of(*way)):
            run = sum(way in here for here in rounds.values())
            figures = (_cell(rounds, metric, way, run) for metric in columns)
            late = ", falls behind" if falls_behind(rounds, way) else ""
            table.append((setting.sink, *way, *map(str, _values(setting, swept)), f"{run}{late}", *figures))
    return aligned(table)


def falls_behind(rounds: Rounds, way: Way) -> bool:
    """Whether a way did not keep up with its load in most of its rounds; of single ones chance makes some."""
    late = [fell_behind(here[way]) for here in rounds.values() if way in here and not flat_out(here[way])]
    return 2 * sum(late) > len(late)


def measured(found: Mapping[Setting, Rounds], columns: Sequence[Metric]) -> list[Metric]:
    """Those of the metrics that any run has a figure of."""
    return [metric for metric in columns if any(figure(each, metric) is not None for each in _runs(found))]


def _runs(found: Mapping[Setting, Rounds]) -> Iterator[Report]:
    for rounds in found.values():
        for here in rounds.values():
            yield from here.values()


def _values(setting: Setting, names: Sequence[str]) -> list[Any]:
    return [setting.config.get(name, "-") for name in names]


def told(found: Difference) -> str:
    """A ratio with its interval: `1.12x (1.08 to 1.15)`, with `~` before it where the interval crosses 1; without one
    `1.12x (3 rounds)`."""
    unclear = found.has_interval and not found.shows(1.0)
    return f"{'~ ' if unclear else ''}{found.median:.2f}x {found.interval('.2f')}"


def _cell(rounds: Rounds, metric: Metric, way: Way, run: int) -> str:
    if way != BASELINE and any(BASELINE in here for here in rounds.values()):
        found = ratio(rounds, metric, way)
        if found is not None:
            fewer = f", {in_words(found)}" if found.has_interval and len(found.rounds) < run else ""
            return told(found) + fewer
    values = [value for here in rounds.values() if way in here and (value := figure(here[way], metric)) is not None]
    return f"{median(values):,.{metric.digits}f}" if values else "-"
