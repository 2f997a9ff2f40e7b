"""Recovery over a fault matrix: by configuration and fault, and over all faults.

Promise: a pure function of reports. A figure is a median, a maximum or a percentile of the `recovery` of faults. It
is `-` where no fault has that mark. A percentile is a value that was really measured (nearest rank). A fault and the
faults in its replay are one outage, counted from the first of them. Runs of different machines never share a table.
Only runs whose verdict is `kept` and that have a speed (`metrics.why_no_speed`) count: a wrong answer must not look
fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from oncebench.audit.python.latency import Distribution
from oncebench.audit.verdict import Verdict
from oncebench.report.comparisons.paired import machine_of
from oncebench.report.configuration import Configuration, configuration_of, place_of
from oncebench.report.grid import grid
from oncebench.report.measures.metrics import has_speed
from oncebench.report.measures.recovery import Recovery, merged
from oncebench.report.schema import Fault, Report
from oncebench.scenario.matrix.families import RANDOM, RANDOM_KILL, named, paired
from oncebench.scenario.matrix.families import columns as columns_of


@dataclass(frozen=True)
class _Mark:
    """A mark of a recovery: its field, its heading and its format."""

    name: str
    heading: str
    scale: float = 1e-3
    form: str = "{:,.1f}"

    def of(self, outages: Iterable[Outage]) -> list[float]:
        """The values of this mark, of the outages that have it."""
        found = (getattr(outage.recovery, self.name) for outage in outages)
        return [float(value) * self.scale for value in found if value is not None]


MARKS = (
    _Mark("detect", "seen s"),
    _Mark("restart", "process back s"),
    _Mark("first_visible", "first row s"),
    _Mark("longest_gap", "longest gap s"),
    _Mark("replayed_rows", "replayed rows", 1.0, "{:,.0f}"),
)
# Only in `overall`: few faults of a chain have this mark, and it says little about one fault.
MORE = (_Mark("caught_up", "caught up s"),)
HEADINGS = ("sink", "guarantee", "variant", "fault", "n", *(mark.heading for mark in MARKS))
OVERALL = ("recovery from all faults", "n", "p50", "p95")
Rows = list[tuple[str, ...]]


@dataclass(frozen=True)
class Outage:
    """A fault, or the two faults of a pair, in one run.

    `action`: what the faults did, without their points. `machine`: empty for an older report without it.
    """

    machine: str
    row: Configuration
    faults: str
    action: str
    recovery: Recovery


def markdown(outages: Iterable[Outage], family: str) -> str:
    """Returns a Markdown table of a family for each machine.

    A table has median / maximum by configuration and fault. Empty without faults of the family.
    """
    return _named(HEADINGS, tables(outages, family))


def tables(outages: Iterable[Outage], family: str) -> dict[str, Rows]:
    """The rows of those tables below HEADINGS, by machine."""
    columns = columns_of(family)
    groups: dict[tuple[str, Configuration, str], list[Outage]] = {}
    for outage in outages:
        if outage.faults in columns:
            groups.setdefault((outage.machine, outage.row, outage.action), []).append(outage)
    found: dict[str, Rows] = {}
    for machine, row, action in sorted(groups, key=lambda key: place_of(key[1])):
        group = groups[machine, row, action]
        marks = (_both(mark, group) for mark in MARKS)
        found.setdefault(machine, []).append((*row, action, str(len(group)), *marks))
    return dict(sorted(found.items()))


def overall(reports: Iterable[Report]) -> str:
    """Returns a table of p50 and p95 of each mark over all faults of a machine.

    The table also has the number of faults with each mark.
    """
    return _named(OVERALL, overall_tables(reports))


def overall_tables(reports: Iterable[Report]) -> dict[str, Rows]:
    """The rows of those tables below OVERALL, by machine."""
    groups: dict[str, list[Outage]] = {}
    for outage in outages_of(reports):
        groups.setdefault(outage.machine, []).append(outage)
    return {machine: [_quantiles(mark, groups[machine]) for mark in (*MARKS, *MORE)] for machine in sorted(groups)}


def _named(headings: Sequence[str], found: Mapping[str, Rows]) -> str:
    """The tables, each below the name of its machine."""
    return "\n".join(
        f"{machine}:\n\n{grid([headings, *rows])}" if machine else grid([headings, *rows])
        for machine, rows in found.items()
    )


def _quantiles(mark: _Mark, outages: Sequence[Outage]) -> tuple[str, ...]:
    values = mark.of(outages)
    found = Distribution.of(np.array(values))
    percentiles = ("-" if value is None else mark.form.format(value) for value in (found.p50, found.p95))
    return (mark.heading, str(len(values)), *percentiles)


def outages_of(reports: Iterable[Report]) -> Iterator[Outage]:
    """Every outage of the kept runs that have a speed and whose reports have recoveries."""
    for report in reports:
        if report["verdict"] != Verdict.KEPT or not has_speed(report):
            continue
        for faults in paired(report["faults"], _in_replay):
            if all(fault.get("recovery") is not None for fault in faults):
                machine = machine_of(report) or ""
                yield Outage(machine, configuration_of(report), *_names(faults), _recovery(faults))


def _in_replay(fault: Fault) -> bool:
    return "@" not in fault["fault"] and fault["fault"] != RANDOM_KILL


def _names(faults: Sequence[Fault]) -> tuple[str, str]:
    texts = [fault["fault"].split("@", maxsplit=1)[0] for fault in faults]
    if RANDOM_KILL in texts:
        return RANDOM, "random kill"
    return named(texts), ", ".join(text.partition(":")[2] for text in texts)


def _recovery(faults: Sequence[Fault]) -> Recovery:
    times = [t_us for fault in faults if (t_us := fault["t_us"]) is not None]
    return merged(times, [Recovery(**marks) for fault in faults if (marks := fault["recovery"])])


def _both(mark: _Mark, outages: Sequence[Outage]) -> str:
    values = mark.of(outages)
    return f"{mark.form.format(median(values))} / {mark.form.format(max(values))}" if values else "-"
