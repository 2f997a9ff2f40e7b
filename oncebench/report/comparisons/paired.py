"""What one guarantee costs beside another: differences of runs that took turns, pure functions of their reports.

Promise: runs are compared with those of their own round only (same sink, load and settings, same seed), so that a
machine that gets slower or faster meanwhile moves both; the interval is the bootstrap's (percentile, 95 %) over the
rounds' differences. With few rounds it is wide, and "no difference shown" is the right reading of an interval that
crosses zero; fewer than FEWEST_ROUNDS have no interval, and show nothing. Rounds of several series are never mixed.
What can go wrong: a run that tells nothing (`metrics.why_no_speed`) is left out, and its round with it; so is a pair
that had not the same load.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from oncebench.report.measures.metrics import BY_NAME, Metric, field, figure

# Enough for two digits of a percentile; drawn from a fixed seed so that the same reports give the same text.
RESAMPLES = 10_000
# A percentile bootstrap of a median reaches from the smallest to the largest value, or little less. Of things that do
# not differ it leaves out zero by chance in 50 % of two rounds, 25 % of three, 12 % of four and 6 % of five.
FEWEST_ROUNDS = 5
# By how much of the larger one the events of a pair may differ (the rule of Spark's own latency benchmark): the plan is
# one and the same, so that more than this would be another load.
SAME_LOAD = 0.02
BASELINE = ("at-least-once", "acknowledged")
# Of a run's configuration: what tells the two runs of a pair apart.
_OWN = ("guarantee", "variant", "seed")
_SAME_RULES_SINCE = 3  # the schema of reports since which batches, checkpoint and prices are counted as they are now
MACHINE = "machine"
# Follows from the rate and from what is swept.
_FOLLOWING = frozenset({"sessions"})
_EVENTS = field("events", "in_topic")
# Those that a field's name ends with.
UNITS = frozenset({"ms", "s", "bytes"})
Report = Mapping[str, Any]
Way = tuple[str, str]


@dataclass(frozen=True)
class Difference:
    """Median over the rounds, its 95 % interval, and each round's value."""

    median: float
    low: float
    high: float
    rounds: tuple[float, ...]

    @property
    def has_interval(self) -> bool:
        """Whether there are rounds enough for `low` and `high` to mean something."""
        return len(self.rounds) >= FEWEST_ROUNDS

    def shows(self, none: float = 0.0) -> bool:
        """Whether there is an interval, and it leaves out `none`, the value of no difference."""
        return self.has_interval and not self.low <= none <= self.high

    def interval(self, form: str) -> str:
        """As it stands in a text, in brackets: `(1.08 to 1.15)`, or `(3 rounds)` where these are too few for one."""
        return f"({self.low:{form}} to {self.high:{form}})" if self.has_interval else f"({in_words(self)})"


@dataclass(frozen=True)
class Setting:
    """What the runs of a comparison have in common: the sink, the machine, and all of the configuration but the way and
    the seed."""

    sink: str
    rest: str

    @staticmethod
    def of(report: Report) -> Setting:
        """That of a report; older ones without a configuration are told apart by their sink alone. Figures that were
        measured by another rule are none of the same setting."""
        config = {name: value for name, value in report.get("config", {}).items() if name not in _OWN}
        if report.get("schema", 1) < _SAME_RULES_SINCE:
            config["schema"] = report.get("schema", 1)
        if (machine := machine_of(report)) is not None:
            config[MACHINE] = machine
        return Setting(report["cell"]["sink"], json.dumps(config, sort_keys=True))

    @property
    def config(self) -> dict[str, Any]:
        """What they have in common, field by field."""
        found: dict[str, Any] = json.loads(self.rest)
        return found


def machine_of(report: Report) -> str | None:
    """Processor and cores: machines of one kind differ by a factor; None of reports that do not tell."""
    told = report.get("environment", {})
    return f"{told['cpu']}, {told['cores']} cores" if told.get("cpu") and told.get("cores") else None


# By (series, how many runs of this way in it had the seed before, seed). Reports that do not tell their series are told
# apart by the second: it counts the times that a way came with the same seed.
Round = tuple[str, int, int]
Rounds = Mapping[Round, Mapping[Way, Report]]


def bootstrap(values: Sequence[float]) -> Difference:
    """Median and percentile interval of a sample.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no rounds to compare")
    return _bootstrap(tuple(values))


@cache  # tables, lists and the page ask for the same ones
def _bootstrap(values: tuple[float, ...]) -> Difference:
    sample = np.sort(values)  # in whatever order they came
    draws = np.random.default_rng(0).choice(sample, size=(RESAMPLES, len(sample)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return Difference(float(np.median(sample)), float(low), float(high), values)


def settings(reports: Iterable[Report], faulted: bool = False) -> dict[Setting, Rounds]:
    """Healthy runs (or those with faults) by setting, round (each has a seed of its own in its series) and (guarantee,
    variant); without probes, whose rate may be one that is too high."""
    found: dict[Setting, dict[Round, dict[Way, Report]]] = {}
    for report in reports:
        cell = report["cell"]
        if bool(cell["faults"] or cell["random_kills"]) == faulted and not report.get("probe"):
            way, rounds = (cell["guarantee"], cell["variant"]), found.setdefault(Setting.of(report), {})
            series, seed = report.get("series") or "", report["seed"]
            before = sum((of, its) == (series, seed) and way in here for (of, _, its), here in rounds.items())
            rounds.setdefault((series, before, seed), {})[way] = report
    return {setting: dict(sorted(rounds.items())) for setting, rounds in found.items()}


def differing(found: Iterable[Setting]) -> list[str]:
    """The fields of their configurations in which settings of one sink differ."""
    configs: dict[str, list[Mapping[str, Any]]] = {}
    for setting in found:
        configs.setdefault(setting.sink, []).append(setting.config)
    names = {
        name for of_sink in configs.values() for config in of_sink for name in config
        if any(other.get(name) != config[name] for other in of_sink)
    }  # fmt: skip
    return sorted(names - _FOLLOWING or names)  # where nothing else differs, it follows from nothing


def in_fields(setting: Setting, names: Iterable[str]) -> str:
    """What a setting has in these fields: `trigger 100 ms, rate 500`; empty without any."""
    return ", ".join(with_unit(name, setting.config[name]) for name in names if name in setting.config)


def with_unit(name: str, value: Any) -> str:
    """A field and its value, the unit behind it: `trigger_ms`, 2000 are `trigger 2,000 ms`."""
    stem, _, unit = name.rpartition("_")
    said, unit = (stem, f" {unit}") if unit in UNITS else (name, "")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{said.replace('_', ' ')} {f'{value:,}' if number else value}{unit}"


def pairs(rounds: Rounds, metric: Metric, of: Way, beside: Way = BASELINE) -> Iterator[tuple[float, float]]:
    """(figure of `of`, figure of `beside`) of each round that has both, under the same load."""
    for here in rounds.values():
        if of in here and beside in here and _same_load(here[of], here[beside]):
            mine, theirs = figure(here[of], metric), figure(here[beside], metric)
            if mine is not None and theirs is not None:
                yield mine, theirs


def _same_load(one: Report, other: Report) -> bool:
    counts = sorted(count for count in map(_EVENTS, (one, other)) if count is not None)
    return len(counts) < 2 or counts[1] - counts[0] <= SAME_LOAD * counts[1]  # older reports do not tell


def difference(rounds: Rounds, metric: Metric, of: Way, beside: Way = BASELINE) -> Difference | None:
    """By how much `of` is above `beside`, in the metric's unit; None if no round has both."""
    values = [mine - theirs for mine, theirs in pairs(rounds, metric, of, beside)]
    return bootstrap(values) if values else None


def ratio(rounds: Rounds, metric: Metric, of: Way, beside: Way = BASELINE) -> Difference | None:
    """How many times `beside` is `of`; None if no round has both, or a figure is not above 0: a gap that is shorter
    than clocks tell has no ratio."""
    found = list(pairs(rounds, metric, of, beside))
    able = found and all(mine > 0 and theirs > 0 for mine, theirs in found)
    return bootstrap([mine / theirs for mine, theirs in found]) if able else None


def lines(reports: Sequence[Report]) -> list[str]:
    """A line per guarantee and variant that ran beside at-least-once; empty when nothing can be compared."""
    told = []
    found = settings(reports)
    several = differing(found)
    for setting, rounds in found.items():
        where = ", ".join(filter(None, (setting.sink, in_fields(setting, several))))
        for of in sorted({way for here in rounds.values() if BASELINE in here for way in here} - {BASELINE}):
            extra = difference(rounds, BY_NAME["batch_ms"], of)
            time, price = (ratio(rounds, BY_NAME[name], of) for name in ("s_per_million", "cpu_s"))
            slower, what = (price, "processor time of an event") if time is None else (time, "time per event")
            if extra is None:
                continue
            more = "" if slower is None else f", {what} x {slower.median:.3f} {slower.interval('.3f')}"
            told.append(
                f"{where}: {' '.join(of)} beside {' '.join(BASELINE)}, {in_words(extra)}: "
                f"{extra.median:+.1f} ms a batch {extra.interval('+.1f')}{more}"
            )
    return told


def recoveries(reports: Sequence[Report]) -> list[str]:
    """A line per guarantee and variant that was killed in rounds beside at-least-once, with the same faults."""
    told = []
    found = settings(reports, faulted=True)
    several = [name for name in differing(found) if name != "faults"]
    for setting, rounds in found.items():
        for of in sorted({way for here in rounds.values() if BASELINE in here for way in here} - {BASELINE}):
            later = difference(rounds, BY_NAME["recovery_s"], of)
            if later is not None:
                faults = ", ".join([*setting.config.get("faults", ()), in_fields(setting, several)]).removesuffix(", ")
                told.append(
                    f"{setting.sink}, {faults}: {' '.join(of)} beside {' '.join(BASELINE)}, {in_words(later)}: "
                    f"{later.median:+.1f} s until new rows are seen {later.interval('+.1f')}"
                )
    return told


def in_words(found: Difference) -> str:
    """Of how many rounds it is."""
    return f"{len(found.rounds)} round{'' if len(found.rounds) == 1 else 's'}"
