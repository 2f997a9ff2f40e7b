"""Recovery over a fault matrix: for each row and nemesis what its faults took, and the quantiles over all of them.

Promise: a pure function of reports; a figure is a median, a maximum or a quantile of the `recovery` of faults, and `-`
where no fault has that mark. A fault and those in its replay are one outage, counted from the first of them. Only runs
whose verdict is `kept` are counted: a fast wrong answer is no answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from oncebench.audit.verdict import KEPT
from oncebench.report.measures.recovery import Recovery, together
from oncebench.report.tables.table import Report, aligned
from oncebench.scenario.fault_matrix import RANDOM, RANDOM_KILL, named, paired
from oncebench.scenario.fault_matrix import columns as columns_of
from oncebench.scenario.order import order_of

Row = tuple[str, str, str]


@dataclass(frozen=True)
class _Mark:
    """A mark of a recovery: its field, its heading, and how it is written."""

    name: str
    heading: str
    scale: float = 1e-3
    form: str = "{:,.1f}"

    def of(self, outages: Iterable[_Outage]) -> list[float]:
        """It, of those outages that have it."""
        found = (getattr(outage.recovery, self.name) for outage in outages)
        return [float(value) * self.scale for value in found if value is not None]


MARKS = (
    _Mark("detect", "seen s"),
    _Mark("restart", "process back s"),
    _Mark("first_visible", "first row s"),
    _Mark("longest_gap", "longest gap s"),
    _Mark("replayed_rows", "replayed rows", 1.0, "{:,.0f}"),
)
# Those of `overall` beside them, which few faults of a chain have, or which say little of one fault.
MORE = (_Mark("caught_up", "caught up s"),)
HEADINGS = ("sink", "guarantee", "variant", "nemesis", "n", *(mark.heading for mark in MARKS))
OVERALL = ("recovery from all faults", "n", "p50", "p95")


@dataclass(frozen=True)
class _Outage:
    """A fault, or the two of a pair, in one run."""

    row: Row
    faults: str
    nemesis: str
    recovery: Recovery


def markdown(reports: Iterable[Report], family: str) -> str:
    """A Markdown table of the faults of a family: median / maximum by row and nemesis; empty if none tells."""
    rows = table(reports, family)
    return aligned([HEADINGS, *rows]) if rows else ""


def table(reports: Iterable[Report], family: str) -> list[tuple[str, ...]]:
    """The rows of that table, below HEADINGS."""
    columns = columns_of(family)
    outages = [outage for outage in outages_of(reports) if outage.faults in columns]
    groups: dict[tuple[Row, str], list[_Outage]] = {}
    for outage in outages:
        groups.setdefault((outage.row, outage.nemesis), []).append(outage)
    return [
        (*row, nemesis, str(len(groups[row, nemesis])), *(_both(mark, groups[row, nemesis]) for mark in MARKS))
        for row, nemesis in sorted(groups, key=lambda key: (key[0][0], order_of(*key[0][1:])))
    ]


def overall(reports: Iterable[Report]) -> str:
    """p50 and p95 of each mark over all faults of these reports, each with the number of faults that have it."""
    rows = overall_table(reports)
    return aligned([OVERALL, *rows]) if rows else ""


def overall_table(reports: Iterable[Report]) -> list[tuple[str, ...]]:
    """The rows of that table, below OVERALL."""
    outages = list(outages_of(reports))
    if not outages:
        return []
    rows: list[tuple[str, ...]] = []
    for mark in (*MARKS, *MORE):
        values = mark.of(outages)
        quantiles = (mark.form.format(np.percentile(values, q)) if values else "-" for q in (50, 95))
        rows.append((mark.heading, str(len(values)), *quantiles))
    return rows


def outages_of(reports: Iterable[Report]) -> Iterator[_Outage]:
    """Every outage of the runs that were kept and tell of it."""
    for report in reports:
        cell = report["cell"]
        row = cell["sink"], cell["guarantee"], cell["variant"]
        for faults in paired(report["faults"], _in_replay):
            if report["verdict"] == KEPT and all(fault.get("recovery") is not None for fault in faults):
                yield _Outage(row, *_names(faults), _recovery(faults))


def _in_replay(fault: Report) -> bool:
    return "@" not in fault["fault"] and fault["fault"] != RANDOM_KILL


def _names(faults: Sequence[Report]) -> tuple[str, str]:
    texts = [fault["fault"].split("@", maxsplit=1)[0] for fault in faults]
    if RANDOM_KILL in texts:
        return RANDOM, "random kill"
    return named(texts), ", ".join(text.partition(":")[2] for text in texts)


def _recovery(faults: Sequence[Report]) -> Recovery:
    return together([fault["t_us"] for fault in faults], [Recovery(**fault["recovery"]) for fault in faults])


def _both(mark: _Mark, outages: Sequence[_Outage]) -> str:
    values = mark.of(outages)
    return f"{mark.form.format(median(values))} / {mark.form.format(max(values))}" if values else "-"
