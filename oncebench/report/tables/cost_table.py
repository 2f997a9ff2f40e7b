"""The cost of each guarantee as ratios to at-least-once of the same sink.

Promise: pure functions of reports. The baseline's row has its own medians. A ratio is the median over rounds of runs
that took turns, with its 95 % interval. A single round has figures and no ratio. `~` marks an interval that
crosses 1: no difference shown. The number of rounds stands behind a ratio that has too few rounds for an interval, or
fewer rounds than the variant ran. "fell behind" marks a variant that did not keep up with its load in most rounds: its
latencies include the backlog. There is no overall winner: sinks are not compared with one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from oncebench.lab.engine import SPARK
from oncebench.report.comparisons.paired import (
    BASELINE,
    ENGINE,
    Difference,
    Rounds,
    Setting,
    differing,
    measured,
    ratio,
    rounds_text,
    runs_in,
    settings,
    variants_in,
)
from oncebench.report.comparisons.sweep_selection import in_order
from oncebench.report.configuration import Variant
from oncebench.report.grid import grid
from oncebench.report.measures.metrics import COSTS, Metric, figure
from oncebench.report.schema import Report
from oncebench.report.tables.notes import FELL_BEHIND, fell_behind, notes


def markdown(reports: Iterable[Report], columns: Sequence[Metric] = COSTS) -> str:
    """A Markdown table of all healthy runs, a row per configuration and setting.

    Empty without healthy runs.
    """
    found = settings(reports)
    if not found:
        return ""
    fields = differing(found)
    headings = [metric.heading for metric in columns]
    columns = measured(found, columns)
    table: list[tuple[str, ...]] = [
        ("sink", "guarantee", "variant", *fields, "rounds", *(metric.heading for metric in columns))
    ]
    for setting in in_order(found):
        rounds = found[setting]
        for variant in variants_in(rounds):
            run = sum(variant in runs for runs in rounds.values())
            figures = (_cell(rounds, metric, variant, run) for metric in columns)
            late = f", {FELL_BEHIND}" if falls_behind(rounds, variant) else ""
            table.append((setting.sink, *variant, *map(str, _values(setting, fields)), f"{run}{late}", *figures))
    behind = any(falls_behind(rounds, variant) for rounds in found.values() for variant in variants_in(rounds))
    return grid(table) + notes(list(runs_in(found)), headings, behind)


def falls_behind(rounds: Rounds, variant: Variant) -> bool:
    """Whether a variant fell behind its load in most of its rounds."""
    return fell_behind(runs[variant] for runs in rounds.values() if variant in runs)


def _values(setting: Setting, names: Sequence[str]) -> list[Any]:
    return [setting.config.get(name, SPARK.name if name == ENGINE else "-") for name in names]


def ratio_text(found: Difference) -> str:
    """A ratio with its interval: `1.12x (1.08 to 1.15)`.

    `~` stands before it where the interval crosses 1. Without an interval: `1.12x (3 rounds)`.
    """
    unclear = found.has_interval and not found.shows(1.0)
    return f"{'~ ' if unclear else ''}{found.median:.2f}x {found.interval('.2f')}"


def _cell(rounds: Rounds, metric: Metric, variant: Variant, run: int) -> str:
    if variant != BASELINE and BASELINE in variants_in(rounds):
        found = ratio(rounds, metric, variant)
        if found is not None:
            fewer = f", {rounds_text(found)}" if found.has_interval and len(found.rounds) < run else ""
            return ratio_text(found) + fewer
    values = [
        value for runs in rounds.values() if variant in runs and (value := figure(runs[variant], metric)) is not None
    ]
    return f"{median(values):,.{metric.digits}f}" if values else "-"
