"""The table of all cells, made from reports and from nothing else.

Promise: each figure is a field of one report, or the median of that field over the reports of the same cell.
A cell whose verdict is not `kept` has counts and no speed: a wrong answer must not look fast. A run without a
meaningful speed (`metrics.why_no_speed`) adds no figure. Runs with other settings or other faults have rows of their
own. `runs` counts all runs of a row, also those without a speed. Rows are sorted by guarantee, variant and faults,
numbers by size.
Markdown has thousands separators, `-` where there is no figure, and a mark on latencies that include an outage. CSV has
plain numbers and empty fields.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from oncebench.audit.verdict import Verdict
from oncebench.report.comparisons.paired import Setting, differing
from oncebench.report.comparisons.sweep_selection import setting_text
from oncebench.report.configuration import configuration_of, place_of, run_kind_of
from oncebench.report.grid import grid
from oncebench.report.measures.metrics import BY_NAME, THROUGHPUT, field, has_speed, latency
from oncebench.report.outcome import LIMIT, ORDER, broken_by, is_healthy, only_tried, outcome_of
from oncebench.report.replication import replicas_text
from oncebench.report.schema import Fault, Report
from oncebench.report.tables.notes import (
    FELL_BEHIND,
    OUTAGE_MARK,
    QUANTILES,
    fell_behind,
    notes,
)
from oncebench.report.titles import faults_title


@dataclass(frozen=True)
class Column:
    """One column: heading, place in a report, format, and whether it is a speed figure."""

    heading: str
    of: Callable[[Report], float | None]
    form: str
    speed: bool = True


COLUMNS = (
    Column("lost", field("rows", "lost"), "{:,.0f}", speed=False),
    Column("duplicated", field("rows", "duplicated"), "{:,.0f}", speed=False),
    Column("events/s", THROUGHPUT, "{:,.0f}"),
    Column("p50 ms", latency("p50"), "{:,.0f}"),
    Column("p95 ms", latency("p95"), "{:,.0f}"),
    Column("p99 ms", latency("p99"), "{:,.0f}"),
    Column("checkpoint %", field("checkpoint", "share_of_batch", scale=100), "{:,.1f}"),
    Column("CPU s/M events", BY_NAME["cpu_s"].of, "{:,.0f}"),
    Column("recovery s", BY_NAME["recovery_s"].of, "{:,.1f}"),
)
HEADINGS = ("sink", "guarantee", "variant", "faults", "verdict", "runs", *(column.heading for column in COLUMNS))
KEY_COLUMNS = 5
_FAULTS = "faults"


def rows(reports: Sequence[Report], plain: bool = False) -> list[tuple[str, ...]]:
    """One row of text per cell, with the repeats of a cell together.

    `plain`: numbers as a program reads them.
    """
    groups = _groups(reports)
    return [
        (*key, _verdict_cell(groups[key]), str(len(groups[key])), *_figures(groups[key], plain))
        for key in sorted(groups, key=_order)
    ]  # fmt: skip


def markdown(reports: Sequence[Report]) -> str:
    """A Markdown table without empty columns, and notes on its figures below."""
    groups = _groups(reports)
    found = rows(reports)
    columns = [at for at in range(len(HEADINGS)) if at < KEY_COLUMNS or any(row[at] != "-" for row in found)]
    table = [tuple(row[at] for at in columns) for row in (HEADINGS, *found)]
    in_table = [report for of_cell in groups.values() if _sound(of_cell) for report in of_cell]
    behind = any(map(_behind, groups.values()))
    outage = any(cell.endswith(OUTAGE_MARK) for row in found for cell in row[KEY_COLUMNS:])
    return grid(table, right_from=KEY_COLUMNS) + notes(in_table, HEADINGS, behind, outage)


def as_csv(reports: Sequence[Report]) -> str:
    """The same table as CSV, with plain numbers and all columns."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADINGS, *rows(reports, plain=True)])
    return text.getvalue()


def fault_markdown(reports: Sequence[Report]) -> str:
    """A Markdown table of the rows that each fault lost and duplicated in its batch.

    "not hit" where a fault did not act.
    """
    points: list[str] = []
    found: dict[tuple[tuple[str, str, str], str], dict[str, list[Fault]]] = {}
    for report in reports:
        for fault in report["faults"]:
            point = fault["point"] or "none"
            points += [] if point in points else [point]
            key = configuration_of(report), run_kind_of(report).text
            found.setdefault(key, {}).setdefault(point, []).append(fault)
    table = [("sink", "guarantee", "variant", *points)]
    table += [
        (*key[0][:2], key[0][2] + key[1], *(_damage(found[key].get(point, [])) for point in points))
        for key in sorted(found, key=lambda key: (place_of(key[0]), key[1]))
    ]
    return grid(table)


def lost_by(faults: Iterable[Fault]) -> int:
    """The lost rows that are charged to these faults."""
    return sum(fault["lost"] or 0 for fault in faults)


def duplicated_by(faults: Iterable[Fault]) -> int:
    """The duplicated rows that are charged to these faults."""
    return sum(fault["duplicated"] or 0 for fault in faults)


def counts_text(lost: int, duplicated: int) -> str:
    """`3 lost, 2 duplicated`, without the counts that are 0."""
    return ", ".join(f"{n} {word}" for n, word in ((lost, "lost"), (duplicated, "duplicated")) if n)


def _damage(faults: Sequence[Fault]) -> str:
    hit = [fault for fault in faults if fault["hit"]]
    if not hit:
        return "not hit" if faults else "-"
    if any(fault["lost"] is None for fault in hit):
        return "-"
    damage = counts_text(lost_by(hit), duplicated_by(hit)) or "nothing"
    return damage if len(hit) == 1 else f"{damage} in {len(hit)}"


def verdict_of(reports: Sequence[Report]) -> str:
    """The outcome of the worst of a cell's repeats, with the anomalies that broke it."""
    outcomes = [outcome_of(report) for report in reports]
    worst = min(outcomes, key=ORDER.index)
    codes = sorted({
        code for report, outcome in zip(reports, outcomes, strict=True) if outcome == worst
        for code in broken_by(report)
    })  # fmt: skip
    return f"{worst} ({' '.join(codes)})" if worst in (Verdict.BROKEN, LIMIT) and codes else worst


def _verdict_cell(reports: Sequence[Report]) -> str:
    """The verdict, whether the cell fell behind its load, and unasked deaths."""
    died = sum(report.get("deaths", {}).get("unasked", 0) for report in reports)  # older reports have none
    marks = [FELL_BEHIND] if _behind(reports) else []
    marks += [f"died {died} more"] if died else []
    return ", ".join([verdict_of(reports), *marks])


def _sound(reports: Iterable[Report]) -> bool:
    return all(report["verdict"] == Verdict.KEPT for report in reports)


def _behind(reports: Sequence[Report]) -> bool:
    return _sound(reports) and fell_behind(reports)


def _groups(reports: Sequence[Report]) -> dict[tuple[str, ...], list[Report]]:
    """The runs of each row, by the row's key."""
    counted = [report for report in reports if not only_tried(report)]
    healthy_fields = differing({Setting.of(report) for report in counted if is_healthy(report)})
    alike: dict[tuple[str, ...], list[Report]] = {}
    for report in counted:
        alike.setdefault(_key(report), []).append(report)
    groups: dict[tuple[str, ...], list[Report]] = {}
    for runs in alike.values():
        fields = healthy_fields if is_healthy(runs[0]) else _differing_fields(runs)
        for report in runs:
            groups.setdefault(_key(report, fields), []).append(report)
    return groups


def _differing_fields(alike: Sequence[Report]) -> list[str]:
    """The fields in which runs with the same title differ, and `faults` if those differ."""
    chains = {tuple(report["cell"]["faults"]) for report in alike}
    return [*differing({Setting.of(report) for report in alike}), *([_FAULTS] if len(chains) > 1 else [])]


def _key(report: Report, fields: Sequence[str] = ()) -> tuple[str, ...]:
    """Sink, guarantee, variant, and the faults with the run's values in `fields`."""
    cell = report["cell"]
    if _FAULTS in fields:
        faults = ", ".join(cell["faults"])
    elif len(cell["faults"]) > 2:
        faults = ", ".join(faults_title(cell["faults"]))
    else:
        faults = ", ".join(_short(fault) for fault in cell["faults"])
    if cell.get("random_kills"):
        faults = ", ".join(filter(None, (faults, f"{cell['random_kills']} random kills")))
    state = f"{cell['open_sessions']:,} open sessions" if cell.get("open_sessions") else ""
    others = [name for name in fields if name not in ("open_sessions", "brokers", "replication", _FAULTS)]
    setting = setting_text(Setting.of(report), others)
    replicas = replicas_text(report)
    return *configuration_of(report), ", ".join(filter(None, (faults or "none", state, replicas, setting)))


def _short(fault: str) -> str:
    fault = fault.split("@", maxsplit=1)[0]
    return f"killed {fault.removesuffix(':kill')}" if fault.endswith(":kill") else fault.replace(":kill", "")


def _order(key: tuple[str, ...]) -> tuple[Any, ...]:
    sink, guarantee, variant, faults = key
    parts = re.split(r"(\d+(?:\.\d+)?)", faults.replace(",", ""))  # text, number, text, ...
    numbers = (float(each) if at % 2 else each for at, each in enumerate(parts))
    return *place_of((sink, guarantee, variant)), not faults.startswith("none"), *numbers


def _figures(reports: Sequence[Report], plain: bool) -> list[str]:
    figures = []
    timed = [report for report in reports if has_speed(report)] if _sound(reports) else []
    for column in COLUMNS:
        values = [value for value in map(column.of, timed if column.speed else reports) if value is not None]
        form, nothing = (column.form.replace(",", ""), "") if plain else (column.form, "-")
        marked = not plain and column.heading in QUANTILES and not is_healthy(reports[0])
        figure = form.format(median(values) if column.speed else sum(values)) if values else nothing
        figures.append(f"{figure}{OUTAGE_MARK}" if values and marked else figure)
    return figures
