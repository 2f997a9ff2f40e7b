"""Timelines as data: one run of each faulted cell, second by second, with its faults and how it came back.

Promise: a step of the page is one step of the report or several whole ones: events and rows are summed, a latency or a
lag is the highest of them, so that no peak is lost. Of a cell's runs it is the first with the worst verdict.

What can go wrong: a report that does not say when its timeline starts has no marks of faults (`marked` is false).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Any

from oncebench.report.configuration import Configuration, configuration_of
from oncebench.report.report import EVENTS_PER_ROW
from oncebench.report.schema import Report
from oncebench.report.titles import title
from oncebench.scenario.fault_matrix import RANDOM, RANDOM_KILL
from oncebench.site.pack import Texts, short

# From worst to best, as a reader looks for them.
_ORDER = ("broken", "unknown", "vacuous", "kept")
# Steps of all timelines together, which at some 25 bytes each are less than half of what the page may weigh; and of
# one: no fewer than tell a fault of ten seconds in a run of minutes, no more than a plot has room for.
ALL_STEPS, FEWEST_STEPS, MOST_STEPS = 15_000, 30, 180
MARKS = ("detect", "restart", "first_visible", "caught_up")


def as_json(reports: Sequence[Report], ways: Sequence[Configuration], texts: Texts) -> list[dict[str, Any]]:
    """One timeline for each faulted cell that has one, in the order of rows, then by what was done."""
    chosen = sorted(_chosen(reports), key=lambda number: (ways.index(configuration_of(reports[number])), number))
    most = room([len(reports[number]["timeline"]["sent"]) for number in chosen])
    return [_timeline(reports[number], number, ways, texts, most) for number in chosen]


def room(lengths: Sequence[int]) -> int:
    """How many steps a timeline may have: so many that all together are no more than ALL_STEPS."""

    def together(most: int) -> int:
        return sum(ceil(length / ceil(length / most)) for length in lengths)

    return next((most for most in range(MOST_STEPS, FEWEST_STEPS, -1) if together(most) <= ALL_STEPS), FEWEST_STEPS)


def merged(values: Sequence[Any], each: int, how: Callable[[Iterable[Any]], Any]) -> list[Any]:
    """`each` steps as one; one in which nothing was measured stays so."""
    groups = ([value for value in values[at : at + each] if value is not None] for at in range(0, len(values), each))
    return [how(group) if group else None for group in groups]


def _chosen(reports: Sequence[Report]) -> list[int]:
    best: dict[tuple[Any, ...], int] = {}
    for number, report in enumerate(reports):
        cell = report["cell"]
        faulted = cell["faults"] or cell["random_kills"]
        if not faulted or not (report.get("timeline") or {}).get("sent") or report.get("interrupted"):
            continue
        key = (*configuration_of(report), *cell["faults"], cell["random_kills"], cell.get("open_sessions", 0))
        if key not in best or _badness(report) < _badness(reports[best[key]]):
            best[key] = number
    return list(best.values())


def _badness(report: Report) -> int:
    return _ORDER.index(report["verdict"])


def _timeline(report: Report, number: int, ways: Sequence[Configuration], texts: Texts, most: int) -> dict[str, Any]:
    told = report["timeline"]
    each = max(1, ceil(len(told["sent"]) / most))
    step_s = told["step_s"] * each
    return {
        "run": number,
        "way": ways.index(configuration_of(report)),
        "title": texts.add(title(report)),
        "step": step_s,
        "sent": [_per_s(count, step_s) for count in merged(told["sent"], each, sum)],
        "visible": [_per_s(rows * EVENTS_PER_ROW, step_s) for rows in merged(told["visible"], each, sum)],
        "p50": [short(ms, 3) for ms in merged(told["p50_ms"], each, max)],
        "p99": [short(ms, 3) for ms in merged(told["p99_ms"], each, max)],
        "lag": merged(told["lag"], each, max),
        "marked": told.get("start_us") is not None,
        "faults": [_fault(fault, told["start_us"], texts) for fault in report["faults"] if _placed(fault, told)],
    }


def _placed(fault: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
    return fault["hit"] and fault.get("t_us") is not None and told.get("start_us") is not None


def _fault(fault: Mapping[str, Any], start_us: int, texts: Texts) -> list[Any]:
    """When (s after the timeline's start), what, the rows that it lost and doubled; then the marks, in s after it."""
    name = RANDOM if fault["fault"] == RANDOM_KILL else str(fault["fault"]).split("@", maxsplit=1)[0]
    recovery = fault.get("recovery") or {}
    marks = [None if recovery.get(mark) is None else round(recovery[mark] / 1000, 1) for mark in MARKS]
    return [round((fault["t_us"] - start_us) / 1e6, 1), texts.add(name), fault["lost"], fault["duplicated"], *marks]


def _per_s(count: float, step_s: float) -> float | int | None:
    return short(count / step_s, 3)
