"""The headline table: pure functions of reports.

A figure is the median over the rounds, with the lowest and the highest. The rows lost and duplicated are sums over all
rounds. A missing figure is `-`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from oncebench.report.schema import Report
from oncebench.report.tables.grid import grid
from peers.headline.plan import FLAT_OUT, KILLED, STEADY, STEADY_EVENTS_PER_S, Row

NONE = "-"
HEADINGS: tuple[str, ...] = (
    "engine", "guarantee, variant", "events/s, flat out", "CPU per event",
    f"p50 at {STEADY_EVENTS_PER_S:,.0f}/s", "p99", "CPU per event", "killed", "lost", "duplicated", "verdict",
)  # fmt: skip


def load_of(report: Report) -> str:
    """The load of a report's run."""
    if report["cell"]["random_kills"]:
        return KILLED
    return FLAT_OUT if report["config"]["rate"] == "max" else STEADY


def markdown(rows: Sequence[Row], reports: Sequence[Report]) -> str:
    """The table in Markdown; a row without a report is left out."""
    lines = [HEADINGS]
    for row in rows:
        found = [report for report in reports if is_of(row, report)]
        if found:
            lines.append(_line(row, found))
    return grid(lines, right_from=2)


def commands(rows: Sequence[Row], reports: Sequence[Report]) -> list[str]:
    """The command of each row and load, as its first run prints it."""
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        for report in reports:
            if is_of(row, report):
                found.setdefault((row.name, load_of(report)), report["reproduce"])
    return list(found.values())


def is_of(row: Row, report: Report) -> bool:
    """Whether the report is of a run of this row."""
    cell = report["cell"]
    return (cell["guarantee"], cell["variant"]) == (row.guarantee, row.variant)


def _line(row: Row, reports: Sequence[Report]) -> tuple[str, ...]:
    fast, steady, killed = ([each for each in reports if load_of(each) == load] for load in (FLAT_OUT, STEADY, KILLED))
    kills = sum(each["cell"]["random_kills"] for each in killed)
    return (
        row.engine,
        f"{row.guarantee}, {row.variant}",
        _spread((each["throughput"]["events_per_s"] for each in fast), "{:,.0f}"),
        _spread(map(_cpu_us, fast), "{:.1f}", " µs"),
        _spread((each["latency_ms"]["p50"] for each in steady), "{:,.0f}", " ms"),
        _spread((each["latency_ms"]["p99"] for each in steady), "{:,.0f}", " ms"),
        _spread(map(_cpu_us, steady), "{:.0f}", " µs"),
        f"{kills} times" if killed else NONE,
        _sum(killed, "lost"),
        _sum(killed, "duplicated"),
        _verdicts(reports),
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


def _verdicts(reports: Sequence[Report]) -> str:
    """The verdicts other than `kept`, each with its anomalies; `kept` if there is no other."""
    others = [each["verdict"] + _codes(each) for each in reports if each["verdict"] != "kept"]
    return ", ".join(dict.fromkeys(others)) or "kept"


def _codes(report: Report) -> str:
    codes = " ".join(sorted(report.get("broken_by", [])))
    return f" ({codes})" if codes else ""
