"""Timelines as data: one run of each cell with a fault, step by step.

Promise: a step of the page is one step of the report, or several whole ones. Events and rows are summed; a latency or a
lag is the highest of them, so no peak disappears. Of a cell's runs it is the first with the worst verdict.

Failure mode: a report without the start of its timeline has no marks of faults (`marked` is false).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Any

from oncebench.audit.python.model import EVENTS_PER_ROW
from oncebench.report.configuration import Configuration, configuration_of, run_kind_of
from oncebench.report.outcome import ORDER, is_healthy
from oncebench.report.schema import Report
from oncebench.report.titles import title
from oncebench.scenario.matrix.families import RANDOM, RANDOM_KILL
from oncebench.site.pack import Texts, short
from pipeline.config import RECORDS, SESSIONS

# ALL_STEPS bounds all timelines together: at some 30 bytes a step they take a quarter of the page's size limit. The
# texts and tables of a thousand different cells take the rest.
# FEWEST_STEPS per timeline still resolve a fault of ten seconds in a run of minutes. A plot has room for MOST_STEPS.
ALL_STEPS, FEWEST_STEPS, MOST_STEPS = 8_500, 20, 180
_EVENTS_PER_ROW = {SESSIONS: EVENTS_PER_ROW, RECORDS: 1}
MARKS = ("detect", "restart", "first_visible", "caught_up")


def as_json(reports: Sequence[Report], configurations: Sequence[Configuration], texts: Texts) -> list[dict[str, Any]]:
    """One timeline for each cell with a fault, in the order of configurations, then reports."""
    chosen = sorted(
        _chosen(reports), key=lambda number: (configurations.index(configuration_of(reports[number])), number)
    )
    most = room([len(reports[number]["timeline"]["sent"]) for number in chosen])
    return [_timeline(reports[number], number, configurations, texts, most) for number in chosen]


def room(lengths: Sequence[int]) -> int:
    """The largest number of steps per timeline that keeps all timelines within ALL_STEPS."""

    def together(most: int) -> int:
        return sum(ceil(length / ceil(length / most)) for length in lengths)

    return next((most for most in range(MOST_STEPS, FEWEST_STEPS, -1) if together(most) <= ALL_STEPS), FEWEST_STEPS)


def merged(values: Sequence[Any], each: int, how: Callable[[Iterable[Any]], Any]) -> list[Any]:
    """Merges `each` steps into one; a step without a measurement stays None."""
    groups = ([value for value in values[at : at + each] if value is not None] for at in range(0, len(values), each))
    return [how(group) if group else None for group in groups]


def _chosen(reports: Sequence[Report]) -> list[int]:
    best: dict[tuple[Any, ...], int] = {}
    for number, report in enumerate(reports):
        cell = report["cell"]
        if is_healthy(report) or not (report.get("timeline") or {}).get("sent") or report.get("interrupted"):
            continue
        key = (
            *configuration_of(report),
            *run_kind_of(report),
            *cell["faults"],
            cell["random_kills"],
            cell.get("open_sessions", 0),
        )
        if key not in best or _badness(report) < _badness(reports[best[key]]):
            best[key] = number
    return list(best.values())


def _badness(report: Report) -> int:
    return ORDER.index(report["verdict"])


def _timeline(
    report: Report, number: int, configurations: Sequence[Configuration], texts: Texts, most: int
) -> dict[str, Any]:
    timeline = report["timeline"]
    each = max(1, ceil(len(timeline["sent"]) / most))
    step_s = timeline["step_s"] * each
    return {
        "run": number,
        "configuration": configurations.index(configuration_of(report)),
        "title": texts.add(title(report)),
        "step": step_s,
        "sent": [_per_s(count, step_s) for count in merged(timeline["sent"], each, sum)],
        "visible": [_per_s(_events(rows, report), step_s) for rows in merged(timeline["visible"], each, sum)],
        "p50": [short(ms, 3) for ms in merged(timeline["p50_ms"], each, max)],
        "p99": [short(ms, 3) for ms in merged(timeline["p99_ms"], each, max)],
        "lag": merged(timeline["lag"], each, max),
        "marked": timeline.get("start_us") is not None,
        "faults": [
            _fault(fault, timeline["start_us"], texts) for fault in report["faults"] if _placed(fault, timeline)
        ],
    }


def _events(rows: int | None, report: Report) -> int | None:
    """Returns how many events these rows need; None: each window has another number of events."""
    each = _EVENTS_PER_ROW.get(run_kind_of(report).workload)
    return None if rows is None or each is None else rows * each


def _placed(fault: Mapping[str, Any], timeline: Mapping[str, Any]) -> bool:
    return fault["hit"] and fault.get("t_us") is not None and timeline.get("start_us") is not None


def _fault(fault: Mapping[str, Any], start_us: int, texts: Texts) -> list[Any]:
    """A fault: seconds after the start, name, rows lost, rows duplicated, and its MARKS.

    Marks are in seconds after the fault.
    """
    name = RANDOM if fault["fault"] == RANDOM_KILL else str(fault["fault"]).split("@", maxsplit=1)[0]
    recovery = fault.get("recovery") or {}
    marks = [None if recovery.get(mark) is None else round(recovery[mark] / 1000, 1) for mark in MARKS]
    return [round((fault["t_us"] - start_us) / 1e6, 1), texts.add(name), fault["lost"], fault["duplicated"], *marks]


def _per_s(count: float | None, step_s: float) -> float | int | None:
    return None if count is None else short(count / step_s, 3)
