"""The cost of one guarantee compared with another: differences between runs that took turns.

Promise: pure functions of reports. A run is compared only with runs of its own round: same sink, load, settings and
seed. A machine that becomes slower or faster meanwhile therefore changes both runs. Rounds of several series are never
mixed. The interval reaches from one of the rounds' differences to another. Its level is at least 95 %, whatever the
distribution. It is wide with few rounds. An interval that crosses zero shows no difference. Fewer than FEWEST_ROUNDS
rounds have no interval and show nothing. A single round has neither a difference nor a ratio.
What can go wrong: a run without a meaningful speed (`metrics.why_no_speed`) is left out, together with its round. So is
a pair of runs whose loads differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from oncebench.lab.engine import SPARK
from oncebench.report.configuration import Variant, engine_name, variant_of
from oncebench.report.measures.metrics import BY_NAME, Metric, field, figure, flat_out
from oncebench.report.outcome import is_healthy
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell
from oncebench.scenario.order import order_of

# An interval misses the true median in one of this many samples at most: it is a 95 % interval.
MISSES = 20
# Of six rounds, the interval from the smallest to the largest contains the true median in 96.9 % of cases; of five it
# would in 93.75 %.
FEWEST_ROUNDS = 6
# Fewer rounds have no difference and no ratio. 38 to 58 % of the single rounds into Kafka in results/ have a ratio
# outside 0.9 to 1.1, by metric, although their medians are about 1.0.
FEWEST_COMPARED = 2
SINGLE_ROUNDS = "single rounds of equal cells often differ by more than 10 %"
# The numbers of events of a pair may differ by this share of the larger number (the rule of Spark's own latency
# benchmark). The plan is the same for both, so a larger difference would be another load.
SAME_LOAD = 0.02
BASELINE: Variant = ("at-least-once", "acknowledged")
# What a field had that an older report of Spark lacks.
_DEFAULTS: Mapping[str, Any] = Cell("", "", "").as_json()
# Fields of a run's configuration in which the two runs of a pair differ.
_OWN = ("guarantee", "variant", "seed")
# The schemas of reports since which batches, checkpoint and prices follow the present rules. Schema 4 changed them only
# for a flat-out load, and schema 5 only for a flat-out load of an engine without batches.
_SAME_RULES_SINCE, _SAME_RULES_FLAT_OUT, SAME_RULES_OTHER_ENGINES = 3, 4, 5
SCHEMA, MACHINE, ENGINE = "schema", "machine", "engine"
_LOCAL_PORT = re.compile(r"\b(localhost|127(?:\.\d+){3}):\d+")
# This field follows from the rate and from the swept field.
_FOLLOWING = frozenset({"sessions"})
_EVENTS = field("events", "in_topic")
# The units that the name of a field may end with.
UNITS = frozenset({"ms", "s", "bytes"})
# An empty value in words.
_EMPTY = {"checkpoint": "checkpoint in the work dir"}


@dataclass(frozen=True)
class Difference:
    """The median over the rounds, its 95 % interval, and the value of each round."""

    median: float
    low: float
    high: float
    rounds: tuple[float, ...]

    @property
    def has_interval(self) -> bool:
        """Whether there are enough rounds for a meaningful interval from `low` to `high`."""
        return len(self.rounds) >= FEWEST_ROUNDS

    def shows(self, none: float) -> bool:
        """Whether there is an interval, and it excludes `none`, the value of no difference."""
        return self.has_interval and not self.low <= none <= self.high

    def interval(self, form: str) -> str:
        """The interval as text: `(1.08 to 1.15)`, or `(3 rounds)` if these are too few."""
        return f"({self.low:{form}} to {self.high:{form}})" if self.has_interval else f"({rounds_text(self)})"


@dataclass(frozen=True)
class Setting:
    """The common part of the runs of a comparison.

    It consists of the sink, the engine, the machine, the user's servers, and the configuration without guarantee,
    variant and seed.
    """

    sink: str
    rest: str

    @staticmethod
    def of(report: Report) -> Setting:
        """The setting of a report.

        Older reports have no configuration, so only their sink distinguishes them. A field that a report lacks is
        newer than the report: its run had the default. Another engine than Spark has only the fields that its
        report has, because it does not use the others. Figures that were measured by another rule belong to another
        setting.
        """
        engine = engine_name(report)
        config: dict[str, Any] = dict(report.get("config", {}))
        if config:
            defaults = _DEFAULTS if engine == SPARK.name else {}
            config = {name: value for name, value in {**defaults, **config}.items() if name not in _OWN}
        if engine != SPARK.name:
            config[ENGINE] = engine
        if report.get("schema", 1) < _same_rules_since(report, engine):
            config[SCHEMA] = report.get("schema", 1)
        if (machine := machine_of(report)) is not None:
            config[MACHINE] = machine
        config |= servers_of(report)
        return Setting(report["cell"]["sink"], json.dumps(config, sort_keys=True))

    @property
    def config(self) -> dict[str, Any]:
        """The shared fields by name."""
        found: dict[str, Any] = json.loads(self.rest)
        return found


def _same_rules_since(report: Report, engine: str) -> int:
    """The schema since which the figures of such a run follow the present rules."""
    if not flat_out(report):
        return _SAME_RULES_SINCE
    return _SAME_RULES_FLAT_OUT if engine == SPARK.name else SAME_RULES_OTHER_ENGINES


def machine_of(report: Report) -> str | None:
    """Processor and cores; None for an older report without them.

    Machines of one kind differ by a factor.
    """
    return machine_in(report.get("environment", {}))


def machine_in(environment: Mapping[str, Any]) -> str | None:
    """Processor and cores of a stored environment; None if it lacks them."""
    cpu, cores = environment.get("cpu"), environment.get("cores")
    return f"{cpu}, {cores} cores" if cpu and cores else None


def servers_of(report: Report) -> dict[str, str]:
    """Returns the user's servers and options of Kafka's clients; empty if all are the run's own."""
    return servers_in(report.get("environment", {}))


def servers_in(facts: Mapping[str, Any]) -> dict[str, str]:
    """The same of a stored environment.

    A port of this machine is left out, because it may differ from run to run.
    """
    kafka = facts.get("kafka") or {}
    place = "own" if kafka.get("own", True) else _LOCAL_PORT.sub(r"\1", kafka.get("bootstrap_servers") or "the user's")
    security = kafka.get("security") or {}
    secured = [security[name] for name in ("protocol", "mechanism") if name in security]
    conf = [f"kafka_conf={kafka['kafka_conf']}"] if "kafka_conf" in kafka else []
    parts = [place, *secured, *conf, *(f"{name}={value}" for name, value in sorted((kafka.get("kafka") or {}).items()))]
    found = {"kafka": " ".join(parts)} if parts != ["own"] else {}
    theirs = ", ".join(sorted(facts.get("theirs") or {}))
    return found | ({"servers": f"of the user: {theirs}"} if theirs else {})


# (series, number, seed). The number counts how often the variant came before with the same seed in the series. Without
# a series it is a number of the report's own, because only the runs of a series take turns.
Round = tuple[str, int, int]
Rounds = Mapping[Round, Mapping[Variant, Report]]


def median_interval(values: Sequence[float]) -> Difference:
    """Returns the median of a sample, with a confidence interval.

    The interval lies between two values of the sample: the i-th smallest and the i-th largest. It is the narrowest
    such interval that contains the true median in at least 95 % of samples, whatever the distribution. A sample that
    is too small for such an interval gets its smallest and largest value.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no rounds to compare")
    ordered = sorted(values)  # the order of the rounds must not matter
    outside = _left_out(len(values))
    return Difference(float(median(ordered)), float(ordered[outside]), float(ordered[-1 - outside]), tuple(values))


@cache  # tables, lists and the page ask for the same numbers of rounds
def _left_out(rounds: int) -> int:
    """How many values the interval leaves out at each end.

    Each value is above or below the true median with equal chance, so all 2**rounds ways to fall are equally likely. An
    interval that leaves out `left_out` values at an end misses the median there if no more values are beyond it.
    """
    left_out, ways = 0, rounds
    missing = 1 + ways  # ways with at most left_out + 1 values beyond the median
    while 2 * missing * MISSES <= 2**rounds:
        left_out += 1
        ways = ways * (rounds - left_out) // (left_out + 1)
        missing += ways
    return left_out


def settings(reports: Iterable[Report], faulted: bool = False) -> dict[Setting, Rounds]:
    """Healthy runs (or runs with faults) by setting, round and variant.

    Each round has a seed of its own in its series. A report without a series is a round by itself. Probes are left out,
    because their rate may be too high.
    """
    found: dict[Setting, dict[Round, dict[Variant, Report]]] = {}
    for report in reports:
        if is_healthy(report) != faulted and not report.get("probe"):
            variant, rounds = variant_of(report), found.setdefault(Setting.of(report), {})
            series, seed = report.get("series") or "", report["seed"]
            again = sum((of, its) == (series, seed) and variant in runs for (of, _, its), runs in rounds.items())
            rounds.setdefault((series, again if series else len(rounds), seed), {})[variant] = report
    return {setting: dict(sorted(rounds.items())) for setting, rounds in found.items()}


def differing(found: Iterable[Setting]) -> list[str]:
    """The fields in which settings of the same sink differ.

    A field of the load that only one of two engines uses is no difference between them.
    """
    configs: dict[str, list[Mapping[str, Any]]] = {}
    for setting in found:
        configs.setdefault(setting.sink, []).append(setting.config)
    names = {
        name for of_sink in configs.values() for config in of_sink for name in config
        if any(_differ(name, config, other) for other in of_sink)
    }  # fmt: skip
    return sorted(names - _FOLLOWING or names)  # where nothing else differs, the field follows from nothing


def _differ(name: str, config: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    unused = name in _DEFAULTS and name not in other and config.get(ENGINE) != other.get(ENGINE)
    return not unused and bool(other.get(name) != config[name])


def fields_text(setting: Setting, names: Iterable[str]) -> str:
    """These fields of a setting with their values: `trigger 100 ms, rate 500`.

    Fields that the setting does not have are left out.
    """
    return ", ".join(with_unit(name, setting.config[name]) for name in names if name in setting.config)


def with_unit(name: str, value: Any) -> str:
    """A field and its value with its unit: `trigger_ms`, 2000 become `trigger 2,000 ms`."""
    if name == SCHEMA:
        return f"older rules ({SCHEMA} {value})"
    if value == "" and name in _EMPTY:
        return _EMPTY[name]
    stem, _, unit = name.rpartition("_")
    label, unit = (stem, f" {unit}") if unit in UNITS else (name, "")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None:
        return f"no {label.replace('_', ' ')}"
    return f"{label.replace('_', ' ')} {f'{value:,}' if number else value}{unit}"


def pairs(rounds: Rounds, metric: Metric, variant: Variant) -> Iterator[tuple[float, float]]:
    """(figure of `variant`, of BASELINE) of each round that has both under the same load."""
    for runs in rounds.values():
        if variant in runs and BASELINE in runs and _same_load(runs[variant], runs[BASELINE]):
            mine, other = figure(runs[variant], metric), figure(runs[BASELINE], metric)
            if mine is not None and other is not None:
                yield mine, other


def _same_load(one: Report, other: Report) -> bool:
    counts = sorted(count for count in map(_EVENTS, (one, other)) if count is not None)
    return len(counts) < 2 or counts[1] - counts[0] <= SAME_LOAD * counts[1]  # older reports have no count


def difference(rounds: Rounds, metric: Metric, variant: Variant) -> Difference | None:
    """Returns `variant` minus BASELINE, in the metric's unit.

    None if fewer than FEWEST_COMPARED rounds have both.
    """
    values = [mine - other for mine, other in pairs(rounds, metric, variant)]
    return median_interval(values) if len(values) >= FEWEST_COMPARED else None


def ratio(rounds: Rounds, metric: Metric, variant: Variant) -> Difference | None:
    """`variant` divided by BASELINE.

    None if fewer than FEWEST_COMPARED rounds have both, or if a figure is not above 0: a gap below the resolution of
    the clocks has no ratio.
    """
    found = list(pairs(rounds, metric, variant))
    comparable = len(found) >= FEWEST_COMPARED and all(mine > 0 and other > 0 for mine, other in found)
    return median_interval([mine / other for mine, other in found]) if comparable else None


def variants_in(rounds: Rounds) -> list[Variant]:
    """Every variant that ran in any of these rounds, in the order of tables."""
    return sorted({variant for runs in rounds.values() for variant in runs}, key=lambda variant: order_of(*variant))


def runs_in(found: Mapping[Setting, Rounds]) -> Iterator[Report]:
    """Every run in these settings."""
    for rounds in found.values():
        for runs in rounds.values():
            yield from runs.values()


def measured(found: Mapping[Setting, Rounds], metrics: Iterable[Metric]) -> list[Metric]:
    """The metrics for which any run in these settings has a figure."""
    return [metric for metric in metrics if any(figure(report, metric) is not None for report in runs_in(found))]


def most_rounds(reports: Sequence[Report]) -> tuple[int, int]:
    """Returns the most rounds in a comparison with at-least-once: of costs, and of recoveries."""
    return _most(settings(reports), "batch_ms"), _most(settings(reports, faulted=True), "recovery_s")


def _most(found: Mapping[Setting, Rounds], metric: str) -> int:
    compared = ((rounds, variant) for rounds in found.values() for variant in _compared(rounds))
    return max((sum(1 for _ in pairs(rounds, BY_NAME[metric], variant)) for rounds, variant in compared), default=0)


def cost_lines(reports: Sequence[Report]) -> list[str]:
    """A line per variant that took turns with at-least-once; empty when nothing can be compared."""
    lines = []
    found = settings(reports)
    several = differing(found)
    for setting, rounds, variant, extra in _differences(found, "batch_ms"):
        where = ", ".join(filter(None, (setting.sink, fields_text(setting, several))))
        time, price = (ratio(rounds, BY_NAME[name], variant) for name in ("s_per_million", "cpu_s"))
        more, label = (price, "processor time of an event") if time is None else (time, "time per event")
        lines.append(
            f"{where}: {_versus_baseline(variant)}, {rounds_text(extra)}: "
            f"{extra.median:+.1f} ms a batch{_interval(extra, '+.1f', extra)}"
            + ("" if more is None else f", {label} x {more.median:.3f}{_interval(more, '.3f', extra)}")
        )
    return lines


def recovery_lines(reports: Sequence[Report]) -> list[str]:
    """A line per variant that had the same faults in the same rounds as at-least-once."""
    lines = []
    found = settings(reports, faulted=True)
    several = [name for name in differing(found) if name != "faults"]
    for setting, _, variant, later in _differences(found, "recovery_s"):
        faults = ", ".join(filter(None, [*setting.config.get("faults", ()), fields_text(setting, several)]))
        lines.append(
            f"{setting.sink}, {faults}: {_versus_baseline(variant)}, {rounds_text(later)}: "
            f"{later.median:+.1f} s until new rows are seen{_interval(later, '+.1f', later)}"
        )
    return lines


def _differences(found: Mapping[Setting, Rounds], metric: str) -> Iterator[tuple[Setting, Rounds, Variant, Difference]]:
    """Each variant that ran together with the baseline, and how much more of the metric it had."""
    for setting, rounds in found.items():
        for variant in _compared(rounds):
            if (more := difference(rounds, BY_NAME[metric], variant)) is not None:
                yield setting, rounds, variant, more


def _interval(found: Difference, form: str, named: Difference) -> str:
    """Returns the interval after a blank, or nothing if it would only repeat the rounds.

    Args:
        named: the difference whose rounds the line already names.
    """
    alike = not found.has_interval and len(found.rounds) == len(named.rounds)
    return "" if alike else f" {found.interval(form)}"


def rounds_text(found: Difference) -> str:
    """The number of rounds: `1 round`, `5 rounds`."""
    return f"{len(found.rounds)} round{'' if len(found.rounds) == 1 else 's'}"


def _compared(rounds: Rounds) -> list[Variant]:
    """The variants that ran in a round together with the baseline, by name."""
    together = {key: runs for key, runs in rounds.items() if BASELINE in runs}
    return sorted(variant for variant in variants_in(together) if variant != BASELINE)


def _versus_baseline(variant: Variant) -> str:
    return f"{' '.join(variant)} versus {' '.join(BASELINE)}"
