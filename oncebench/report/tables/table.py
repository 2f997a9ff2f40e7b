"""Tables from reports: the only way that a figure gets into a table.

Promise: a cell of a table is a field of one report, or the median of that field over the reports of the same cell;
where a verdict is not `kept` there are counts but no speed (a fast wrong answer is no answer), and a run that tells
nothing of its speed (`metrics.why_no_speed`) adds none. Runs under different settings have rows of their own, and so
have runs with different faults. Rows come in the order of guarantee, variant, faults, numbers by their size. In
Markdown numbers have thousands separators and what there is no figure for is `-`; in CSV numbers are plain, and such a
field is empty.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from oncebench.audit.verdict import BROKEN
from oncebench.report.comparisons.paired import Setting, differing
from oncebench.report.comparisons.sweep_selection import setting_in_words
from oncebench.report.measures.metrics import BY_NAME, field, latency, why_no_speed
from oncebench.report.outcome import LIMIT, ORDER, is_healthy, only_tried, word_of
from oncebench.report.titles import title
from oncebench.scenario.order import order_of

Report = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column: its heading, where it stands in a report, how it is written, and whether it is a speed figure."""

    heading: str
    of: Callable[[Report], float | None]
    form: str
    speed: bool = True


COLUMNS = (
    Column("lost", field("rows", "lost"), "{:,.0f}", speed=False),
    Column("duplicated", field("rows", "duplicated"), "{:,.0f}", speed=False),
    Column("events/s", field("throughput", "events_per_s"), "{:,.0f}"),
    Column("p50 ms", latency("p50"), "{:,.0f}"),
    Column("p95 ms", latency("p95"), "{:,.0f}"),
    Column("p99 ms", latency("p99"), "{:,.0f}"),
    Column("checkpoint %", field("checkpoint", "share_of_batch", scale=100), "{:,.1f}"),
    Column("CPU s/M events", BY_NAME["cpu_s"].of, "{:,.0f}"),
    Column("recovery s", BY_NAME["recovery_s"].of, "{:,.1f}"),
)
HEADINGS = ("sink", "guarantee", "variant", "faults", "verdict", *(column.heading for column in COLUMNS))
KEY_COLUMNS = 5
_FAULTS = "faults"


def rows(reports: Sequence[Report], plain: bool = False) -> list[tuple[str, ...]]:
    """One row of text for each cell, repeats of a cell together; `plain`: numbers as a program reads them."""
    groups: dict[tuple[str, ...], list[Report]] = {}
    reports = [report for report in reports if not only_tried(report)]
    swept = differing({Setting.of(report) for report in reports if is_healthy(report)})
    alike: dict[tuple[str, ...], list[Report]] = {}
    for report in reports:
        alike.setdefault(_key(report), []).append(report)
    for of in alike.values():
        fields = swept if is_healthy(of[0]) else _apart(of)
        for report in of:
            groups.setdefault(_key(report, fields), []).append(report)
    return [
        (*key, verdict_of(groups[key]) + _unasked(groups[key]), *_figures(groups[key], plain))
        for key in sorted(groups, key=_order)
    ]


def markdown(reports: Sequence[Report]) -> str:
    """A Markdown table, aligned so that it is readable as text too, without columns that no row has a figure in."""
    found = rows(reports)
    told = [at for at in range(len(HEADINGS)) if at < KEY_COLUMNS or any(row[at] != "-" for row in found)]
    table = [tuple(row[at] for at in told) for row in (HEADINGS, *found)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [_line(row, widths) for row in table]
    rule = ["-" * width if at < KEY_COLUMNS else "-" * (width - 1) + ":" for at, width in enumerate(widths)]
    return "\n".join([lines[0], "| " + " | ".join(rule) + " |", *lines[1:]]) + "\n"


def as_csv(reports: Sequence[Report]) -> str:
    """The same table as CSV, with plain numbers."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADINGS, *rows(reports, plain=True)])
    return text.getvalue()


def fault_markdown(reports: Sequence[Report]) -> str:
    """A Markdown table of what each fault did: rows lost and doubled in its batch, "not hit" where it did not act."""
    points: list[str] = []
    found: dict[tuple[str, ...], dict[str, list[Mapping[str, Any]]]] = {}
    for report in reports:
        for fault in report["faults"]:
            point = fault["point"] or "none"
            points += [] if point in points else [point]
            found.setdefault(_key(report)[:3], {}).setdefault(point, []).append(fault)
    table = [("sink", "guarantee", "variant", *points)]
    table += [(*key, *(_done(found[key].get(point, [])) for point in points)) for key in sorted(found, key=_place)]
    return aligned(table)


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Rows of text, the first of them headings, as a Markdown table that is readable as text too."""
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in table
    ]
    return "\n".join([lines[0], "| " + " | ".join("-" * width for width in widths) + " |", *lines[1:]]) + "\n"


def _done(faults: Sequence[Mapping[str, Any]]) -> str:
    hit = [fault for fault in faults if fault["hit"]]
    if not hit:
        return "not hit" if faults else "-"
    lost, doubled = sum(fault["lost"] for fault in hit), sum(fault["duplicated"] for fault in hit)
    told = ", ".join(f"{n} {word}" for n, word in ((lost, "lost"), (doubled, "doubled")) if n) or "nothing"
    return told if len(hit) == 1 else f"{told} in {len(hit)}"


def verdict_of(reports: Sequence[Report]) -> str:
    """What the worst of a cell's repeats came to, with its anomaly codes."""
    words = [word_of(report) for report in reports]
    worst = min(words, key=ORDER.index)
    codes = sorted({
        code for report, word in zip(reports, words, strict=True) if word == worst for code in report["anomalies"]
    })  # fmt: skip
    return f"{worst} ({' '.join(codes)})" if worst in (BROKEN, LIMIT) and codes else worst


def _unasked(reports: Sequence[Report]) -> str:
    """Tells of deaths of the pipeline that no fault had asked for: such a run has measured them too."""
    died = sum(report.get("deaths", {}).get("unasked", 0) for report in reports)  # older reports tell of none
    return f", died {died} more" if died else ""


def _apart(alike: Sequence[Report]) -> list[str]:
    """What tells runs apart whose faults have one title: fields of their settings, and the faults themselves."""
    chains = {tuple(report["cell"]["faults"]) for report in alike}
    return [*differing({Setting.of(report) for report in alike}), *([_FAULTS] if len(chains) > 1 else [])]


def _key(report: Report, swept: Sequence[str] = ()) -> tuple[str, ...]:
    """Sink, guarantee, variant and faults, with what the run has in the fields that are swept."""
    cell = report["cell"]
    faults = ", ".join(_short(fault) for fault in cell["faults"])
    if len(cell["faults"]) > 2:
        faults = title({"cell": {"faults": cell["faults"]}})
    if _FAULTS in swept:
        faults = ", ".join(cell["faults"])
    if cell.get("random_kills"):
        faults = ", ".join(filter(None, (faults, f"{cell['random_kills']} random kills")))
    state = f"{cell['open_sessions']:,} open sessions" if cell.get("open_sessions") else ""
    setting = setting_in_words(Setting.of(report), [name for name in swept if name not in ("open_sessions", _FAULTS)])
    return cell["sink"], cell["guarantee"], cell["variant"], ", ".join(filter(None, (faults or "none", state, setting)))


def _short(fault: str) -> str:
    fault = fault.split("@", maxsplit=1)[0]
    return f"killed {fault.removesuffix(':kill')}" if fault.endswith(":kill") else fault.replace(":kill", "")


def _place(key: tuple[str, ...]) -> tuple[Any, ...]:
    return key[0], order_of(key[1], key[2])


def _order(key: tuple[str, ...]) -> tuple[Any, ...]:
    parts = re.split(r"(\d+(?:\.\d+)?)", key[3].replace(",", ""))  # text, number, text, ...
    return *_place(key), not key[3].startswith("none"), *(float(each) if at % 2 else each
                                                          for at, each in enumerate(parts))  # fmt: skip


def _figures(reports: Sequence[Report], plain: bool) -> list[str]:
    figures = []
    sound = all(report["verdict"] == "kept" for report in reports)
    timed = [report for report in reports if sound and not any(True for _ in why_no_speed(report))]
    for column in COLUMNS:
        values = [value for value in map(column.of, timed if column.speed else reports) if value is not None]
        shown = bool(values)
        total = sum(values) if not column.speed else median(values) if values else 0.0
        form, nothing = (column.form.replace(",", ""), "") if plain else (column.form, "-")
        figures.append(form.format(total) if shown else nothing)
    return figures


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [text.ljust(width) if at < KEY_COLUMNS else text.rjust(width) for at, (text, width) in
             enumerate(zip(row, widths, strict=True))]  # fmt: skip
    return "| " + " | ".join(cells) + " |"
