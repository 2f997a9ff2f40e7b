"""The headline by sink: the cost of exactly-once, and the effect of kills by guarantee.

The effect of kills is the number of rows that a guarantee lost or duplicated.

Promise: a pure function of reports. Each guarantee of a sink is represented by its variant with the most runs. Costs
are ratios to at-least-once into the same sink. Latency comes from the full comparison. Prices (time and processor time
per event) come from the one setting that measures them for most sinks. A figure that no run has is None. Where another
machine contradicts the latency, `elsewhere` has its ratio.

Kills are the family `kills`: SIGKILLs of the whole pipeline at every failpoint. They hit where it hurts most, so their
counts are no frequencies. Some failpoints have more kills than others. So rows per kill are a mean over the failpoints,
and a configuration that lacks a failpoint has none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from loadgen.session import EVENTS_PER_SESSION
from oncebench.audit.verdict import Verdict
from oncebench.delivery.contract import EXACTLY_ONCE, GUARANTEES
from oncebench.report.comparisons.paired import BASELINE, MACHINE, SCHEMA, Difference, Rounds, Setting, variants_in
from oncebench.report.comparisons.sweep_selection import full_of
from oncebench.report.configuration import Configuration, Variant, configuration_of
from oncebench.report.measures.metrics import BY_NAME, figure
from oncebench.report.schema import Report
from oncebench.report.tables.batch_series import BatchSeries
from oncebench.scenario.matrix.cells import can_be_done
from oncebench.scenario.matrix.families import columns
from oncebench.site.answer.prices import load_of, prices_of
from oncebench.site.costs import absolute, compared_to_baseline, interval, label, machine_letters, settings_of
from oncebench.site.faults.matrix import Matrix
from oncebench.site.pack import short

LATENCIES = ("p50_ms", "p99_ms")
PRICES = ("s_per_million", "cpu_s")
_KILLS = "kills"  # the family of the fault matrix


@dataclass(frozen=True)
class Kills:
    """The kills of one configuration, and the rows lost and duplicated in their batches.

    `points`: the failpoints that they hit, of `all_points` that the configuration passes. `rows_per_kill`: rows lost or
    duplicated, each failpoint with the same weight; None if a failpoint is missing.
    """

    configuration: Configuration
    kills: int
    lost: int
    duplicated: int
    points: int
    all_points: int
    rows_per_kill: float | None


@dataclass(frozen=True)
class Cost:
    """One metric under exactly-once and under at-least-once, and the ratio of the two."""

    exact: Difference | None
    base: Difference | None
    ratio: Difference | None


@dataclass(frozen=True)
class Answer:
    """The headline of one sink.

    Attributes:
        exact: its exactly-once configuration.
        costs: by metric.
        kills: by guarantee.
        runs: the healthy runs behind the costs.
        elsewhere: the p99 ratio at the same load on other machines that contradict `costs`, by the machine's letter.
    """

    exact: Configuration
    costs: Mapping[str, Cost]
    kills: Mapping[str, Kills]
    runs: Sequence[Report]
    elsewhere: Mapping[str, Difference]

    @property
    def sink(self) -> str:
        """The sink's name."""
        return self.exact[0]


def answers_of(
    reports: Sequence[Report],
    matrix: Matrix,
    on_purpose: Mapping[Configuration, str],
    series: Sequence[BatchSeries] = (),
) -> list[Answer]:
    """The headline of each sink that has exactly-once, in the order of tables.

    `series`: their prices count instead of those of runs, for every sink: the two are never mixed.
    """
    measured = prices_of(series)
    found = dict(settings_of(reports))
    full, flat = full_of(found), {} if measured else price_settings(found)
    usual = _usual(reports, on_purpose)
    return [
        Answer(
            exact=(sink, guarantee, variant),
            costs=dict(_costs(found, full.get(sink), (guarantee, variant), LATENCIES))
            | dict(_costs(found, flat.get(sink), (guarantee, variant), PRICES))
            | {name: Cost(**vars(price)) for name, price in measured.get((sink, guarantee, variant), {}).items()},
            kills={each[1]: kills for each in usual if each[0] == sink and (kills := _kills(matrix, each))},
            runs=_runs(found, (full.get(sink), flat.get(sink)), ((guarantee, variant), BASELINE)),
            elsewhere=_elsewhere(found, full.get(sink), (guarantee, variant)),
        )
        for sink, guarantee, variant in usual
        if guarantee == EXACTLY_ONCE
    ]


def price_settings(found: Mapping[Setting, Rounds]) -> dict[str, Setting]:
    """Returns by sink the setting of its prices.

    It is the setting in which most sinks have a ratio, then the one with the most rounds.
    """
    groups: dict[str, dict[str, Setting]] = {}
    for setting, rounds in found.items():
        if _prices(rounds):
            rest = {name: value for name, value in setting.config.items() if name != "sink"}
            groups.setdefault(json.dumps(rest, sort_keys=True), {})[setting.sink] = setting

    def size(group: Mapping[str, Setting]) -> tuple[int, int, int]:
        each = [_prices(found[setting]) for setting in group.values()]
        return sum(names == set(PRICES) for names in each), len(group), sum(len(found[one]) for one in group.values())

    return max(groups.values(), key=size, default={})


def price_load(found: Mapping[Setting, Rounds]) -> str | None:
    """The load of prices: `cold` where its runs were measured as a whole, without a warm-up.

    Older versions always measured a flat-out load as a whole, the present one if less than half of it is left after the
    warm-up (`oncebench.run.measurement`).
    """
    if not found:
        return None
    setting = next(iter(found))
    warmup_s, events = setting.config.get("warmup_s", 0.0), setting.config.get("sessions", 0) * EVENTS_PER_SESSION
    runs = (figure(report, BY_NAME["s_per_million"]) for rounds in found.values() for here in rounds.values()
            for report in here.values())  # fmt: skip
    loads_s = [per_million * events / 1e6 for per_million in runs if per_million is not None]
    if not loads_s or not (SCHEMA in setting.config or median(loads_s) <= 2 * warmup_s):
        return label(setting)
    return f"{label(setting, without='warmup_s')}; cold: all of a load that takes some {median(loads_s):.0f} s"


def as_json(
    answers: Sequence[Answer],
    sentences: Sequence[str],
    reports: Sequence[Report],
    on: Sequence[Configuration],
    series: Sequence[BatchSeries] = (),
) -> dict[str, Any]:
    """The headline as the page reads it.

    `on`: all configurations, by their numbers. `series`: see `answers_of`.
    """
    found = dict(settings_of(reports))
    numbers = {id(report): number for number, report in enumerate(reports)}
    full, prices = next(iter(full_of(found).values()), None), price_settings(found).values()
    return {
        "sentences": list(sentences),
        "load": _full_load(found, full) if full else None,
        "price_load": load_of(series, full.config.get(MACHINE) if full else None)
        or price_load({setting: found[setting] for setting in prices}),
        "rows": [
            {
                "configuration": on.index(answer.exact),
                "costs": {name: _cost(answer.costs.get(name)) for name in (*LATENCIES, *PRICES)},
                "kills": {
                    guarantee: [each.kills, each.lost, each.duplicated, each.points, each.all_points,
                                short(each.rows_per_kill)] if each else None
                    for guarantee in GUARANTEES
                    for each in [answer.kills.get(guarantee)]
                },
                "runs": [numbers[id(report)] for report in answer.runs],
                "elsewhere": [[letter, interval(ratio, 1.0)] for letter, ratio in answer.elsewhere.items()],
            }
            for answer in answers
        ],
    }  # fmt: skip


def _usual(reports: Sequence[Report], on_purpose: Mapping[Configuration, str]) -> list[Configuration]:
    """Returns for each sink and guarantee the configuration with the most runs.

    A configuration that is broken on purpose is left out.
    """
    runs = Counter(configuration_of(report) for report in reports)
    best: dict[tuple[str, str], Configuration] = {}
    for each in (each for each in on_purpose if not on_purpose[each]):
        other = best.get(each[:2])
        if other is None or runs[each] > runs[other]:
            best[each[:2]] = each
    return list(best.values())


def _prices(rounds: Rounds) -> set[str]:
    """The prices for which some variant of exactly-once has a ratio."""
    exact = [variant for variant in variants_in(rounds) if variant[0] == EXACTLY_ONCE]
    return {name for name in PRICES for variant in exact if compared_to_baseline(rounds, BY_NAME[name], variant)[0]}


def _costs(
    found: Mapping[Setting, Rounds], setting: Setting | None, variant: Variant, names: Sequence[str]
) -> Iterator[tuple[str, Cost]]:
    if setting is None:
        return
    rounds = found[setting]
    for name in names:
        metric = BY_NAME[name]
        ratio = compared_to_baseline(rounds, metric, variant)[0]
        yield name, Cost(absolute(rounds, metric, variant), absolute(rounds, metric, BASELINE), ratio)


def _full_load(found: Mapping[Setting, Rounds], full: Setting) -> str:
    """The load of the full comparison, and its machine."""
    letter = machine_letters(found).get(full.config.get(MACHINE, ""))
    return ", ".join(filter(None, (label(full), f"machine {letter}" if letter else full.config.get(MACHINE))))


def _elsewhere(found: Mapping[Setting, Rounds], full: Setting | None, variant: Variant) -> dict[str, Difference]:
    """Returns the p99 ratios of other machines that contradict the full comparison.

    They have the load of the full comparison. Two ratios contradict each other if only one is clear, or if they are
    clear in opposite directions. The number of sessions may differ: it only sets how long a run takes.
    """
    if full is None or (here := compared_to_baseline(found[full], BY_NAME["p99_ms"], variant)[0]) is None:
        return {}
    letters, contradicting = machine_letters(found), {}
    for setting, rounds in found.items():
        if _load(setting) == _load(full) and setting != full and MACHINE in setting.config:
            there = compared_to_baseline(rounds, BY_NAME["p99_ms"], variant)[0]
            if there and here.has_interval and there.has_interval and _direction(there) != _direction(here):
                contradicting[letters.get(setting.config[MACHINE], "?")] = there
    return contradicting


def _load(setting: Setting) -> Mapping[str, Any]:
    """The sink and every field of a setting but the machine and the number of sessions."""
    fields = {name: value for name, value in setting.config.items() if name not in (MACHINE, "sessions")}
    return fields | {"sink": setting.sink}


def _direction(ratio: Difference) -> int:
    """1 if clearly more, -1 if clearly less, 0 if unclear."""
    return 0 if not ratio.shows(1.0) else 1 if ratio.median > 1 else -1


def _kills(matrix: Matrix, configuration: Configuration) -> Kills | None:
    """The kills that acted; None without any."""
    by_point = {
        place.fault: [each.cell for each in entries if each.cell.outcome not in (Verdict.VACUOUS, Verdict.UNKNOWN)]
        for place, entries in matrix.items()
        if place.configuration == configuration and place.family == _KILLS
    }
    by_point = {fault: cells for fault, cells in by_point.items() if cells}
    cells = [cell for each in by_point.values() for cell in each]
    if not cells:
        return None
    lost, duplicated = sum(cell.lost for cell in cells), sum(cell.duplicated for cell in cells)
    possible = {fault for fault in columns(_KILLS) if can_be_done(fault, *configuration)} | by_point.keys()
    per_kill = None
    if len(by_point) == len(possible):
        per_kill = mean(mean(cell.lost + cell.duplicated for cell in each) for each in by_point.values())
    return Kills(configuration, len(cells), lost, duplicated, len(by_point), len(possible), per_kill)


def _runs(
    found: Mapping[Setting, Rounds], settings: Sequence[Setting | None], variants: Sequence[Variant]
) -> list[Report]:
    rounds = [here for setting in settings if setting for here in found[setting].values()]
    return [here[variant] for here in rounds for variant in variants if variant in here]


def _cost(cost: Cost | None) -> list[Any]:
    """The medians under exactly-once and at-least-once, and the ratio with its interval."""
    if cost is None:
        return [None, None, None]
    exact, base = (short(each.median) if each else None for each in (cost.exact, cost.base))
    return [exact, base, interval(cost.ratio, 1.0)]
