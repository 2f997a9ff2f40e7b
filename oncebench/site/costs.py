"""What each guarantee costs, as data: medians of healthy runs, and ratios to at-least-once of the same sink.

Promise: the figures are those of `reports.paired`: rounds of runs that took turns, medians with 95 % bootstrap
intervals. Where rounds are too few there is none, and no difference is shown. Sinks, and settings of one sink, are
never compared with one another. Of each sink the full comparison comes first, then sweeps by their values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from oncebench.report.comparisons.paired import (
    BASELINE,
    MACHINE,
    Difference,
    Rounds,
    Setting,
    bootstrap,
    difference,
    differing,
    fields_text,
    ratio,
    settings,
    with_unit,
)
from oncebench.report.comparisons.sweep_selection import ORDER, OTHER, groups_of, in_order
from oncebench.report.configuration import Configuration
from oncebench.report.measures.metrics import Metric, figure
from oncebench.report.schema import Report
from oncebench.report.tables.cost_table import COLUMNS, falls_behind
from oncebench.scenario.cell import Cell
from oncebench.scenario.order import order_of
from oncebench.site.pack import short

_UNSAID = ("sink", "guarantee", "variant", "faults", "random_kills", "seed", "rate", "sessions", MACHINE)


def settings_of(reports: Sequence[Report]) -> list[tuple[Setting, Rounds]]:
    """The settings of healthy runs, by sink, the full comparison first, then each sweep by its values; runs that were
    interrupted are left out."""
    found = settings(report for report in reports if not report.get("interrupted"))
    return [(setting, found[setting]) for setting in in_order(found)]


def ways_in(rounds: Rounds) -> list[tuple[str, str]]:
    """The guarantees and variants of a setting, in the order of tables."""
    return sorted({way for here in rounds.values() for way in here}, key=lambda way: order_of(*way))


def label(setting: Setting) -> str:
    """A setting in words: its load, and every option that does not stand at its default."""
    config = json.loads(setting.rest)
    if not config:
        return "settings not recorded"
    rate = config.get("rate")
    load = f"{rate:,g} events/s" if isinstance(rate, int | float) else "as fast as it can" if rate == "max" else "?"
    usual = Cell("", "", "").as_json()
    other = [
        with_unit(name, value) for name, value in config.items()
        if name not in _UNSAID and value != usual.get(name)
    ]  # fmt: skip
    return ", ".join([load, f"{config.get('sessions', '?')} sessions", *other])


def labels(found: Iterable[Setting]) -> dict[Setting, str]:
    """The label of each setting; with the machine where settings of one sink were run on several."""
    settings = list(found)
    machines = [MACHINE] if MACHINE in differing(settings) else []
    return {each: ", ".join(filter(None, (label(each), fields_text(each, machines)))) for each in settings}


def as_json(reports: Sequence[Report], ways: Sequence[Configuration]) -> dict[str, Any]:
    """The metrics of which a run has a figure, and for each setting each way's runs, medians, ratios and differences,
    one for each metric."""
    numbers = {id(report): number for number, report in enumerate(reports)}
    found = settings_of(reports)
    groups = groups_of(dict(found))
    columns = [metric for metric in COLUMNS if any(_measured(rounds, metric) for _, rounds in found)]
    called = labels(setting for setting, _ in found)
    return {
        "baseline": list(BASELINE),
        "metrics": [
            {"name": each.name, "heading": each.heading, "about": each.about, "digits": each.digits} for each in columns
        ],
        "groups": [name.replace("_", " ") for name in ORDER if name in groups.values()],
        "other": OTHER,
        "settings": [
            {
                "sink": setting.sink,
                "label": called[setting],
                "group": groups[setting].replace("_", " "),
                "rows": [_row(setting.sink, way, rounds, columns, ways, numbers) for way in ways_in(rounds)],
            }
            for setting, rounds in found
        ],
    }


def _measured(rounds: Rounds, metric: Metric) -> bool:
    return any(figure(report, metric) is not None for here in rounds.values() for report in here.values())


def absolute(rounds: Rounds, metric: Metric, way: tuple[str, str]) -> Difference | None:
    """Median over the rounds and its interval; None if no run of this way has the figure."""
    values = [value for here in rounds.values() if way in here and (value := figure(here[way], metric)) is not None]
    return bootstrap(values) if values else None


def beside(rounds: Rounds, metric: Metric, way: tuple[str, str]) -> tuple[Difference | None, Difference | None]:
    """Ratio and difference to the baseline; None for the baseline itself, and where nothing can be compared."""
    if way == BASELINE:
        return None, None
    return ratio(rounds, metric, way), difference(rounds, metric, way)


def _row(
    sink: str,
    way: tuple[str, str],
    rounds: Rounds,
    columns: Sequence[Metric],
    ways: Sequence[Configuration],
    numbers: Mapping[int, int],
) -> dict[str, Any]:
    compared = [beside(rounds, metric, way) for metric in columns]
    return {
        "way": ways.index((sink, *way)),
        "behind": int(falls_behind(rounds, way)),
        "runs": [numbers[id(here[way])] for here in rounds.values() if way in here],
        "absolute": [_interval(absolute(rounds, metric, way)) for metric in columns],
        "ratio": [_interval(times, 1.0) for times, _ in compared],
        "difference": [_interval(more, 0.0) for _, more in compared],
    }


def _interval(found: Difference | None, none: float | None = None) -> list[Any] | None:
    """Median, low, high (None where rounds are too few), rounds; then, of a comparison, whether it shows one."""
    if found is None:
        return None
    return list(_parts(found, none))


def _parts(found: Difference, none: float | None) -> Iterator[Any]:
    yield short(found.median)
    yield from (short(found.low), short(found.high)) if found.has_interval else (None, None)
    yield len(found.rounds)
    if none is not None:
        yield int(found.shows(none))
