"""What each guarantee costs, as ratios to at-least-once of the same sink with their intervals: Markdown.

Promise: pure functions of reports; the row that others are compared with shows its own medians. A ratio is the median
over rounds of runs that took turns, with its 95 % bootstrap interval; one that crosses 1 is marked `~`: no difference
shown. There is no overall winner: sinks are not compared with one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from oncebench.reports.metrics import METRICS, Metric, Report, figure
from oncebench.reports.paired import BASELINE, Difference, Rounds, Way, ratio, settings
from oncebench.reports.tables import aligned
from oncebench.scenario import order_of

COLUMNS = tuple(metric for metric in METRICS if not metric.promised and metric.name != "recovery_s")


def markdown(reports: Iterable[Report], columns: Sequence[Metric] = COLUMNS) -> str:
    """A Markdown table of all healthy runs: a row for each sink, guarantee and variant (and setting, if they have
    several); empty if there are none."""
    found = settings(reports)
    if not found:
        return ""
    table: list[tuple[str, ...]] = [("sink", "guarantee", "variant", "rounds", *(metric.heading for metric in columns))]
    for setting, rounds in sorted(found.items(), key=lambda item: (item[0].sink, item[0].rest)):
        ways = sorted({way for here in rounds.values() for way in here}, key=lambda way: order_of(*way))
        table += [
            (setting.sink, *way, str(sum(way in here for here in rounds.values())),
             *(_cell(rounds, metric, way) for metric in columns))
            for way in ways
        ]  # fmt: skip
    return aligned(table)


def told(found: Difference) -> str:
    """A ratio with its interval: `1.12x (1.08 to 1.15)`, with `~` before it where the interval crosses 1."""
    return f"{'' if found.shows(1.0) else '~ '}{found.median:.2f}x ({found.low:.2f} to {found.high:.2f})"


def _cell(rounds: Rounds, metric: Metric, way: Way) -> str:
    if way != BASELINE and any(BASELINE in here for here in rounds.values()):
        found = ratio(rounds, metric, way)
        if found is not None:
            return told(found)
    values = [value for here in rounds.values() if way in here and (value := figure(here[way], metric)) is not None]
    return f"{median(values):,.{metric.digits}f}" if values else "-"
