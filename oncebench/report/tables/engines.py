"""The table of engines: Spark, and other engines with the same work. Pure functions of reports.

A row is an engine under one guarantee. It has three loads: flat out, steady, and killed (`python -m peers.headline`
makes them). A figure is the median over the rounds, with the lowest and the highest. Lost and duplicated rows are sums
over all rounds. A missing figure is `-`. Runs of different machines never share a table (`by_machine`). Interrupted
runs do not count, and a run that has no speed elsewhere has none here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from oncebench.audit.verdict import Verdict
from oncebench.lab.engine import SPARK
from oncebench.report.measures.metrics import has_speed
from oncebench.report.schema import Report
from oncebench.report.tables.grid import grid

FLAT_OUT, STEADY, KILLED = "flat out", "steady", "killed"
_TIMED = (FLAT_OUT, STEADY)
NONE = "-"
# How the files and the reports of such a series are named.
SERIES = "headline-"
# The suite's own pipeline in words: with our sink, and with the one that Spark ships.
OURS, SHIPPED = "Spark, our sink", "Spark, its own sink"
_SHIPPED_VARIANT = "native"


@dataclass(frozen=True)
class Line:
    """A row of the table.

    Attributes:
        engine: in words.
        guarantee, variant: of the cell.
        figures: the texts between variant and verdict.
        verdicts: the verdicts other than `kept`, each with its anomalies; `kept` if there is no other.
        commands: the command of each load, from its first run.
    """

    engine: str
    guarantee: str
    variant: str
    figures: tuple[str, ...]
    verdicts: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts below the headings."""
        verdicts = ", ".join(f"{verdict} ({codes})" if codes else verdict for verdict, codes in self.verdicts)
        return self.engine, f"{self.guarantee}, {self.variant}", *self.figures, verdicts


def is_of_series(report: Report) -> bool:
    """Whether the report belongs to a series of `python -m peers.headline`."""
    return report.get("series", "").startswith(SERIES)


def by_machine(reports: Iterable[Report]) -> dict[str, list[Report]]:
    """The reports that count, by the machine that they ran on, in words."""
    found: dict[str, list[Report]] = {}
    for report in reports:
        if not report.get("interrupted"):
            facts = report.get("environment", {})
            cores, cpu = facts.get("cores") or "unknown", facts.get("cpu") or "of unknown kind"
            found.setdefault(f"{cores} cores, {cpu}", []).append(report)
    return found


def headings(reports: Iterable[Report]) -> tuple[str, ...]:
    """The headings; the rate is that of the steady runs."""
    rates = sorted({report["config"]["rate"] for report in reports if load_of(report) == STEADY})
    at = f" at {', '.join(f'{rate:,.0f}' for rate in rates)}/s" if rates else ", steady"
    return (
        "engine", "guarantee, variant", "events/s, flat out", "CPU per event, flat out", f"p50{at}", f"p99{at}",
        f"CPU per event{at}", "killed", "lost", "duplicated", "verdict",
    )  # fmt: skip


def lines(reports: Sequence[Report]) -> Iterator[Line]:
    """The rows, in the order in which the reports begin with them."""
    groups: dict[tuple[str, str, str], list[Report]] = {}
    for report in reports:
        cell = report["cell"]
        groups.setdefault((engine_of(report), cell["guarantee"], cell["variant"]), []).append(report)
    for (engine, guarantee, variant), found in groups.items():
        commands = {load_of(report): report["reproduce"] for report in reversed(found)}
        loads = (load for load in (FLAT_OUT, STEADY, KILLED) if load in commands)
        yield Line(
            engine, guarantee, variant, _figures(found), _verdicts(found), tuple(commands[load] for load in loads)
        )


def markdown(reports: Sequence[Report]) -> str:
    """A table per machine in Markdown; empty without a report."""
    tables = []
    for machine, found in by_machine(reports).items():
        table = grid([headings(found), *(line.cells for line in lines(found))], right_from=2)
        tables.append(f"{machine}:\n\n{table}")
    return "\n".join(tables)


def engine_of(report: Report) -> str:
    """The engine of a report, in words."""
    if is_of_spark(report):
        return SHIPPED if report["cell"]["variant"] == _SHIPPED_VARIANT else OURS
    return _name(report).replace("-", " ").title()


def is_of_spark(report: Report) -> bool:
    """Whether the suite's own pipeline ran; the other engines are peers."""
    return _name(report) == SPARK.name


def load_of(report: Report) -> str:
    """The load of a report's run."""
    if report["cell"]["random_kills"]:
        return KILLED
    return FLAT_OUT if report["config"]["rate"] == "max" else STEADY


def _name(report: Report) -> str:
    """The engine's name; older reports are of Spark."""
    return str((report.get("environment", {}).get("engine") or {}).get("name", SPARK.name))


def _figures(reports: Sequence[Report]) -> tuple[str, ...]:
    fast, steady = ([each for each in reports if load_of(each) == load and has_speed(each)] for load in _TIMED)
    killed = [each for each in reports if load_of(each) == KILLED]
    kills = sum(fault["hit"] for each in killed for fault in each["faults"])
    return (
        _spread((each["throughput"]["events_per_s"] for each in fast), "{:,.0f}"),
        _spread(map(_cpu_us, fast), "{:.1f}", " µs"),
        _spread((each["latency_ms"]["p50"] for each in steady), "{:,.0f}", " ms"),
        _spread((each["latency_ms"]["p99"] for each in steady), "{:,.0f}", " ms"),
        _spread(map(_cpu_us, steady), "{:.0f}", " µs"),
        f"{kills} times" if killed else NONE,
        _sum(killed, "lost"),
        _sum(killed, "duplicated"),
    )


def _cpu_us(report: Report) -> float | None:
    """Processor time per event of engine and broker."""
    return report["cpu_s_per_million_events"]


def _spread(values: Iterable[float | None], form: str, unit: str = "") -> str:
    known = [value for value in values if value is not None]
    if not known:
        return NONE
    text = f"{form.format(median(known))}{unit}"
    return text if len(known) == 1 else f"{text} ({form.format(min(known))} to {form.format(max(known))})"


def _sum(reports: Sequence[Report], what: str) -> str:
    counts: list[Any] = [each["rows"][what] for each in reports]  # type: ignore[literal-required]
    return NONE if not counts or None in counts else f"{sum(counts):,}"


def _verdicts(reports: Sequence[Report]) -> tuple[tuple[str, str], ...]:
    found = {
        (str(report["verdict"]), " ".join(sorted(report.get("broken_by", []))))
        for report in reports
        if report["verdict"] != Verdict.KEPT
    }
    return tuple(sorted(found)) or ((Verdict.KEPT, ""),)
