"""The cost of each guarantee as data: medians, and ratios to at-least-once into one sink.

Promise: the figures come from healthy runs. They are those of `report.comparisons.paired`: rounds of runs that took
turns, medians with 95 % intervals. Too few rounds give no interval, and then no difference is reported. A
single round has neither ratio nor difference. Two sinks, or two settings of one sink, are never compared. Each sink's
full comparison comes first, then its sweeps in the order of their values.
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
    difference,
    differing,
    fields_text,
    measured,
    median_interval,
    ratio,
    settings,
    variants_in,
    with_unit,
)
from oncebench.report.comparisons.sweep_selection import ORDER, OTHER, groups_of, in_order
from oncebench.report.configuration import Configuration, Variant
from oncebench.report.measures.metrics import COSTS, Metric, figure
from oncebench.report.schema import Report
from oncebench.report.tables.cost_table import falls_behind
from oncebench.scenario.cell import Cell
from oncebench.site.pack import DIGITS, RATIO_DIGITS, short

# Fields that a label leaves out, or formats itself.
_UNLABELLED = ("sink", "guarantee", "variant", "faults", "random_kills", "seed", "rate", "sessions", MACHINE)
_DEFAULTS = Cell("", "", "").as_json()


def settings_of(reports: Sequence[Report]) -> list[tuple[Setting, Rounds]]:
    """The settings of healthy runs: by sink the full comparison, then each sweep by its values.

    Interrupted runs are left out.
    """
    found = settings(report for report in reports if not report.get("interrupted"))
    return [(setting, found[setting]) for setting in in_order(found)]


def label(setting: Setting, without: str = "") -> str:
    """A setting's load, and every option but `without` that differs from its default."""
    return ", ".join(text for name, text in _labelled(setting).items() if name != without) or "settings not recorded"


def labels(found: Iterable[Setting]) -> dict[Setting, str]:
    """The label of each setting, with the machine where one sink ran on several."""
    settings = list(found)
    machines = _machines(settings)
    return {each: ", ".join(filter(None, (label(each), fields_text(each, machines)))) for each in settings}


def titles(found: Iterable[Setting], groups: Mapping[Setting, str]) -> tuple[str, dict[Setting, str]]:
    """The part of the label that all full comparisons share, and the rest of each label.

    A title names a common option again where the setting has another value of it.
    """
    settings = list(found)
    machines = _machines(settings)
    labelled = {each: _labelled(each) | {name: fields_text(each, [name]) for name in machines} for each in settings}
    full = [labelled[each] for each in settings if not groups[each]] or [{}]
    common = {name: text for name, text in full[0].items() if all(each.get(name) == text for each in full)}
    usual = {name: with_unit(name, _DEFAULTS[name]) for name in common if name in _DEFAULTS}
    rest = {
        each: [text for name, text in {**usual, **parts}.items() if common.get(name) != text]
        if parts
        else [label(each)]
        for each, parts in labelled.items()
    }
    return ", ".join(common.values()), {each: ", ".join(filter(None, parts)) for each, parts in rest.items()}


def machine_letters(found: Iterable[Setting]) -> dict[str, str]:
    """A letter for each machine, in the order of settings; empty if all ran on one machine."""
    settings = list(found)
    machines = dict.fromkeys(each.config[MACHINE] for each in settings if MACHINE in each.config)
    return {machine: chr(ord("A") + at) for at, machine in enumerate(machines)} if _machines(settings) else {}


def lettered(text: str, letters: Mapping[str, str]) -> str:
    """A label with the letter of its machine instead of the machine's name."""
    for machine, letter in letters.items():
        text = text.replace(f"{MACHINE} {machine}", f"{MACHINE} {letter}")
    return text


def _machines(settings: Sequence[Setting]) -> list[str]:
    return [MACHINE] if MACHINE in differing(settings) else []


def _labelled(setting: Setting) -> dict[str, str]:
    """The parts of a setting's label by field; empty if the report has no setting."""
    config = json.loads(setting.rest)
    if not config:
        return {}
    rate = config.get("rate")
    load = f"{rate:,g} events/s" if isinstance(rate, int | float) else "saturated" if rate == "max" else "?"
    other = {
        name: with_unit(name, value)
        for name, value in config.items()
        if name not in _UNLABELLED and value != _DEFAULTS.get(name)
    }
    return {"rate": load, "sessions": f"{config.get('sessions', '?')} sessions", **other}


def as_json(reports: Sequence[Report], configurations: Sequence[Configuration]) -> dict[str, Any]:
    """The metrics, and for each setting the medians, ratios and differences of its rows."""
    numbers = {id(report): number for number, report in enumerate(reports)}
    found = settings_of(reports)
    groups = groups_of(dict(found))
    columns = measured(dict(found), COSTS)
    full_labels = labels(setting for setting, _ in found)
    common, rest = titles(full_labels, groups) if found else ("", {})
    letters = machine_letters(setting for setting, _ in found)
    return {
        "baseline": list(BASELINE),
        "metrics": [
            {
                "name": each.name,
                "heading": each.heading,
                "about": each.about,
                "means": each.means,
                "digits": each.digits,
            }
            for each in columns
        ],
        "groups": [name.replace("_", " ") for name in ORDER if name in groups.values()],
        "other": OTHER,
        "common": lettered(common, letters),
        "machines": [[letter, machine] for machine, letter in letters.items()],
        "settings": [
            {
                "sink": setting.sink,
                "label": lettered(full_labels[setting], letters),
                "title": lettered(rest[setting], letters),
                "group": groups[setting].replace("_", " "),
                "rows": [
                    _row(setting.sink, variant, rounds, columns, configurations, numbers)
                    for variant in variants_in(rounds)
                ],
            }
            for setting, rounds in found
        ],
    }


def absolute(rounds: Rounds, metric: Metric, variant: Variant) -> Difference | None:
    """Median over the rounds and its interval; None if no run has the figure."""
    values = [
        value for here in rounds.values() if variant in here and (value := figure(here[variant], metric)) is not None
    ]
    return median_interval(values) if values else None


def compared_to_baseline(
    rounds: Rounds, metric: Metric, variant: Variant
) -> tuple[Difference | None, Difference | None]:
    """Returns ratio and difference to the baseline.

    None for the baseline, or with fewer than two common rounds.
    """
    if variant == BASELINE:
        return None, None
    return ratio(rounds, metric, variant), difference(rounds, metric, variant)


def _row(
    sink: str,
    variant: Variant,
    rounds: Rounds,
    columns: Sequence[Metric],
    configurations: Sequence[Configuration],
    numbers: Mapping[int, int],
) -> dict[str, Any]:
    compared = [compared_to_baseline(rounds, metric, variant) for metric in columns]
    return {
        "configuration": configurations.index((sink, *variant)),
        "falls_behind": int(falls_behind(rounds, variant)),
        "runs": [numbers[id(here[variant])] for here in rounds.values() if variant in here],
        "absolute": [interval(absolute(rounds, metric, variant)) for metric in columns],
        "ratio": [interval(times, 1.0) for times, _ in compared],
        "difference": [interval(more, 0.0) for _, more in compared],
    }


def interval(found: Difference | None, none: float | None = None) -> list[Any] | None:
    """Median, low, high, rounds; for a comparison also whether its difference is clear.

    Low and high are None where rounds are too few. `none`: the value that means no difference.
    """
    if found is None:
        return None
    return list(_parts(found, none))


def _parts(found: Difference, none: float | None) -> Iterator[Any]:
    digits = RATIO_DIGITS if none == 1.0 else DIGITS  # 1 means no difference of a ratio only
    yield short(found.median, digits)
    yield from (short(found.low, digits), short(found.high, digits)) if found.has_interval else (None, None)
    yield len(found.rounds)
    if none is not None:
        yield int(found.shows(none))
