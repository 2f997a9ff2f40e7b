"""The one stable function that `benchmarks/` calls: every cell measured, as plain figures.

Promise: its name, arguments and result do not change, so that a commit of today can be measured by the benchmarks of a
later one and the other way round. The result is {"sink guarantee variant": {metric: [a figure for each round]}}, with
the promise metrics from the killed run. A cell that could not be measured is missing, and so is a metric of it. What
can go wrong: nothing can be measured here (`UserError`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from oncebench.commands.series import run_series
from oncebench.judge.verdict import FORBIDDEN, RULES
from oncebench.reports.metrics import METRICS, Report, figure
from oncebench.reports.results import Results
from oncebench.rounds import in_rounds
from oncebench.scenario import Cell, all_supports, installed, quick

# What every commit is measured with. 200 sessions at 2,000 events/s: 10 s, as in `oncebench compare`.
RATE, SESSIONS = 2000.0, 200
# Of the killed run, where the guarantee forbids them.
PROMISED = {"lost": "LOSS", "duplicated": "DUP"}


def names(sinks: Sequence[str] = ()) -> list[str]:
    """Every cell that can be measured here: "sink guarantee variant"."""
    return [
        f"{sink} {support.delivery} {support.variant}"
        for sink, support in all_supports()
        if sink in (sinks or installed())
    ]


def figures(sinks: Sequence[str] = (), rounds: int = 3) -> dict[str, dict[str, list[float]]]:
    """Measures each cell healthy, so many rounds in turns, and killed once where it tells most."""
    wanted = sinks or installed()
    cells = [cell for cell in quick(Cell("", "", "", rate=RATE, sessions=SESSIONS)) if cell.sink in wanted]
    todo = in_rounds(cells, rounds)
    with tempfile.TemporaryDirectory(prefix="oncebench-bench-") as folder:
        results = Results(Path(folder) / "results", "bench")
        reports = list(run_series(todo, results, None, Path(folder) / "work", False, lambda _cell, _error: None))
    return figures_of(reports)


def figures_of(reports: Iterable[Report]) -> dict[str, dict[str, list[float]]]:
    """The figures in reports of such runs."""
    found: dict[str, dict[str, list[float]]] = {}
    for report in reports:
        cell = report["cell"]
        mine = found.setdefault(f"{cell['sink']} {cell['delivery']} {cell['variant']}", {})
        for name, value in _promises(report) if cell["faults"] else _costs(report):
            mine.setdefault(name, []).append(value)
    return found


def _costs(report: Report) -> Iterable[tuple[str, float]]:
    for metric in METRICS:
        value = None if metric.promised or metric.name == "recovery_s" else figure(report, metric)
        if value is not None:
            yield metric.name, value


def _promises(report: Report) -> Iterable[tuple[str, float]]:
    rows: dict[str, Any] = report["rows"]
    yield "broken", float(report["verdict"] != "kept")
    for name, code in PROMISED.items():
        if RULES[code][report["cell"]["delivery"]] == FORBIDDEN:
            yield name, float(rows[name])
    recovery = report["recovery"]["first_visible"]
    if recovery is not None and report["verdict"] == "kept":
        yield "recovery_s", recovery / 1000
