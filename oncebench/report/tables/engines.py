"""The table of engines: Spark and other engines with the same work.

Promise: pure functions of reports. A row is an engine under one guarantee. It has three loads: flat out, steady, and
killed (`python -m peers.headline` makes them). A figure is the median over the rounds, with the lowest and the highest;
recovery is the median over the kills. Lost and duplicated rows are sums over all rounds. A missing figure is `-`. Runs
of different machines or versions never share a table (`by_place`). Interrupted runs do not count, and a figure that a
run does not have elsewhere is missing here too. The one exception is the processor time per event of a steady load,
which has a note (`notes_on`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from oncebench.audit.anomalies import CATALOGUE
from oncebench.audit.verdict import Verdict
from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.lab.engine import SPARK
from oncebench.report.comparisons.paired import SAME_RULES_OTHER_ENGINES
from oncebench.report.configuration import engine_name
from oncebench.report.grid import grid
from oncebench.report.measures.metrics import THROUGHPUT, Getter, field, has_speed, latency
from oncebench.report.outcome import broken_by
from oncebench.report.schema import Report
from oncebench.report.tables.notes import FELL_BEHIND, fell_behind, notes

FLAT_OUT, STEADY, KILLED = "flat out", "steady", "killed"
NONE = "-"
# Follows the heading of a column that has a note of its own; `*` means an outage elsewhere.
MARK = "†"
# How the files and the reports of such a series are named.
SERIES = "headline-"
# The suite's own pipeline in words: with our sink, and with the one that Spark ships.
OURS, SHIPPED = "Spark, our sink", "Spark, its own sink"
_SHIPPED_VARIANT = "native"
# The latencies of this table, by their names in the notes.
_NOTED = ("p50 ms", "p99 ms")
# The first figures of a line are medians, each with its range if there are several runs.
_SPREADS, _TO = 5, " to "
# Processor time per event of engine and broker: seconds per million are microseconds per one.
_CPU_US: Getter = field("cpu_s_per_million_events")


@dataclass(frozen=True)
class Line:
    """A row of the table.

    Attributes:
        engine: in words.
        guarantee, variant: of the cell.
        promise: the guarantee in words. The verdict judges the guarantee, also where the engine promises another one.
        figures: the texts between variant and verdict.
        verdicts: the verdicts other than `kept`, each with its anomalies; `kept` if there is no other.
        behind: whether most of the steady runs fell behind their load, so that the latencies include the backlog.
        commands: the command of each load, from its first run.
    """

    engine: str
    guarantee: str
    variant: str
    promise: str
    figures: tuple[str, ...]
    verdicts: tuple[tuple[str, str], ...]
    behind: bool
    commands: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts below the headings."""
        marks = [f"{verdict} ({codes})" if codes else verdict for verdict, codes in self.verdicts]
        marks += [FELL_BEHIND] if self.behind else []
        return self.engine, f"{self.promise}, {self.variant}", *self.figures, ", ".join(marks)


def is_of_series(report: Report) -> bool:
    """Whether the report belongs to a series of `python -m peers.headline`."""
    return report.get("series", "").startswith(SERIES)


def by_place(reports: Iterable[Report]) -> dict[str, list[Report]]:
    """The reports that count, by the machine and the version that they ran on, in words.

    Expects the oldest reports first. The newest machine and version come first.
    """
    found: dict[str, list[Report]] = {}
    for report in reports:
        if not report.get("interrupted"):
            facts = report.get("environment", {})
            cores, cpu = facts.get("cores") or "unknown", facts.get("cpu") or "of unknown kind"
            version = facts.get("commit") or "unknown"
            found.setdefault(f"{cores} cores, {cpu}, version {version}", []).append(report)
    return dict(reversed(found.items()))


def headings(reports: Sequence[Report]) -> tuple[str, ...]:
    """The headings; the rate is that of the steady runs."""
    at, mark = _at_rate(reports), MARK if _timed(reports, STEADY) else ""
    return (
        "engine", "guarantee, variant", "events/s, flat out", "CPU per event, flat out", f"p50{at}", f"p99{at}",
        f"CPU per event{at}{mark}", "killed", "recovery", "lost", "duplicated", "verdict",
    )  # fmt: skip


def notes_on(reports: Sequence[Report]) -> list[str]:
    """The notes below the table of these reports, a line each."""
    steady, found = _timed(reports, STEADY), list(lines(reports))
    made = []
    if any(text != NONE and _TO not in text for line in found for text in line.figures[:_SPREADS]):
        made.append("A figure without a range is of one run.")
    if steady:
        made.append(
            f"{MARK}: no price. Much of this work does not depend on the number of events, and a pipeline that starts "
            "each batch at once uses what the machine has. Compare CPU per event flat out."
        )
    behind = any(line.behind for line in found)
    codes = {code for line in found for _, each in line.verdicts for code in each.split()}
    made += [f"{code}: {CATALOGUE[code].means}." for code in CATALOGUE if code in codes]
    return [*made, *filter(None, notes(steady, _NOTED, behind).splitlines())]


def lines(reports: Sequence[Report]) -> Iterator[Line]:
    """The rows, in the order in which the reports begin with them."""
    groups: dict[tuple[str, str, str], list[Report]] = {}
    for report in reports:
        cell = report["cell"]
        groups.setdefault((engine_of(report), cell["guarantee"], cell["variant"]), []).append(report)
    for (engine, guarantee, variant), found in groups.items():
        commands = {load_of(report): report["reproduce"] for report in reversed(found)}
        loads = (load for load in (FLAT_OUT, STEADY, KILLED) if load in commands)
        ordered = tuple(commands[load] for load in loads)
        behind = fell_behind(_timed(found, STEADY))
        yield Line(engine, guarantee, variant, _promise(found[0]), _figures(found), _verdicts(found), behind, ordered)


def markdown(reports: Sequence[Report]) -> str:
    """A table per machine and version in Markdown, with its notes; empty without a report."""
    tables = []
    for place, found in by_place(reports).items():
        table = grid([headings(found), *(line.cells for line in lines(found))], right_from=2)
        below = "".join(f"\n{note}\n" for note in notes_on(found))
        tables.append(f"{place}:\n\n{table}{below}")
    return "\n".join(tables)


def engine_of(report: Report) -> str:
    """The engine of a report, in words."""
    if is_of_spark(report):
        return SHIPPED if report["cell"]["variant"] == _SHIPPED_VARIANT else OURS
    return engine_name(report).replace("-", " ").title()


def cpu_of_exactly_once(reports: Sequence[Report]) -> dict[str, tuple[float, float, int]]:
    """Returns the processor time per event of exactly-once, flat out, by engine, in µs.

    The first two numbers are the lowest and the highest row. Each row is a variant, with the median of its runs. The
    third number is the smallest number of runs behind a row.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for report in _timed(reports, FLAT_OUT):
        cell, cpu_us = report["cell"], _cpu_us_flat_out(report)
        if cell["guarantee"] == EXACTLY_ONCE and cpu_us is not None:
            name = engine_of(report).partition(",")[0]
            found.setdefault(name, {}).setdefault(cell["variant"], []).append(cpu_us)
    return {
        engine: (min(map(median, rows.values())), max(map(median, rows.values())), min(map(len, rows.values())))
        for engine, rows in found.items()
    }


def _promise(report: Report) -> str:
    """Returns the guarantee in words.

    The engine's own setting is added if that promises something else (Flink's NONE).
    """
    guarantee = report["cell"]["guarantee"]
    own: str = report["environment"].get("engine", {}).get("settings", {}).get("guarantee", guarantee)
    return guarantee if own.lower().replace("_", "-") == guarantee else f"{own}, judged as {guarantee}"


def is_of_spark(report: Report) -> bool:
    """Whether the suite's own pipeline ran; the other engines are peers."""
    return engine_name(report) == SPARK.name


def load_of(report: Report) -> str:
    """The load of a report's run."""
    if report["cell"]["random_kills"]:
        return KILLED
    return FLAT_OUT if report["config"]["rate"] == "max" else STEADY


def _figures(reports: Sequence[Report]) -> tuple[str, ...]:
    fast, steady = (_timed(reports, load) for load in (FLAT_OUT, STEADY))
    killed = [each for each in reports if load_of(each) == KILLED]
    kills = sum(fault["hit"] for each in killed for fault in each["faults"])
    return (
        _spread(map(THROUGHPUT, fast), "{:,.0f}"),
        _spread(map(_cpu_us_flat_out, fast), "{:.1f}", " µs"),
        _spread(map(latency("p50"), steady), "{:,.0f}", " ms"),
        _spread(map(latency("p99"), steady), "{:,.0f}", " ms"),
        _spread(map(_CPU_US, steady), "{:.0f}", " µs"),
        f"{kills} times" if killed else NONE,
        _spread(_recoveries_s(filter(has_speed, killed)), "{:.1f}", " s"),
        _sum(killed, "lost"),
        _sum(killed, "duplicated"),
    )


def _cpu_us_flat_out(report: Report) -> float | None:
    """Returns the processor time per event, in µs; None for an older run of a peer.

    Such a run counted time after the last row too.
    """
    return _CPU_US(report) if is_of_spark(report) or report.get("schema", 1) >= SAME_RULES_OTHER_ENGINES else None


def _recoveries_s(killed: Iterable[Report]) -> Iterator[float]:
    """Yields the seconds from each kill to the first new row.

    A kill yields nothing if another kill follows before that row.
    """
    for report in killed:
        for fault in report["faults"]:
            marks = fault.get("recovery")
            first_ms = marks.get("first_visible") if marks else None
            if first_ms is not None:
                yield first_ms / 1000


def _timed(reports: Iterable[Report], load: str) -> list[Report]:
    """The runs of a load whose times and prices describe their cell."""
    return [report for report in reports if load_of(report) == load and has_speed(report)]


def _at_rate(reports: Iterable[Report]) -> str:
    """The load of the steady runs, as headings have it: ` at 3,000/s`."""
    rates = sorted({report["config"]["rate"] for report in reports if load_of(report) == STEADY})
    return f" at {', '.join(f'{rate:,.0f}' for rate in rates)}/s" if rates else ", steady"


def _spread(values: Iterable[float | None], form: str, unit: str = "") -> str:
    known = [value for value in values if value is not None]
    if not known:
        return NONE
    text = f"{form.format(median(known))}{unit}"
    return text if len(known) == 1 else f"{text} ({form.format(min(known))}{_TO}{form.format(max(known))})"


def _sum(reports: Sequence[Report], what: str) -> str:
    counts: list[Any] = [each["rows"][what] for each in reports]  # type: ignore[literal-required]
    return NONE if not counts or None in counts else f"{sum(counts):,}"


def _verdicts(reports: Sequence[Report]) -> tuple[tuple[str, str], ...]:
    found = {
        (str(report["verdict"]), " ".join(broken_by(report))) for report in reports if report["verdict"] != Verdict.KEPT
    }
    return tuple(sorted(found)) or ((Verdict.KEPT, ""),)
