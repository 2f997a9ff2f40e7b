"""Measures every cell for `benchmarks/`, and returns plain figures.

Promise: names, arguments and results do not change. So the benchmarks of a later commit can measure today's code, and
today's benchmarks can measure later code.

The result is {"sink guarantee variant": {metric: [one figure per round]}}. A metric without a figure is missing. The
metrics of promises have one figure each: the sum over all runs of the cell, healthy or killed. A failed run counts as
untested.

If the environment variable REPORTS names a results folder, the reports stay there, one file per measured commit. Each
sink has a lab of its own: a server that does not start leaves only the runs of its own sink untested. Failure: nothing
can be measured on this machine (`UserError`).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loadgen.session import EVENTS_PER_SESSION
from oncebench.audit.verdict import FORBIDDEN, RULES, Verdict
from oncebench.delivery.errors import PipelineError
from oncebench.errors import Interrupted, UserError
from oncebench.experiments.series import run_series
from oncebench.experiments.workspace import Workspace
from oncebench.report.measures.metrics import BY_NAME, METRICS, figure, flat_out
from oncebench.report.results import Results, stamp
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import PROFILES, quick
from oncebench.scenario.rounds import in_rounds
from oncebench.scenario.supports import all_supports, installed

__all__ = ["METRICS", "figures", "names"]  # what `benchmarks/` uses; every commit must have these names
REPORTS = "ONCEBENCH_BENCH_REPORTS"
# Every commit is measured with the same load, so that the figures are comparable. At this rate a batch has enough
# events to show their cost, and the slowest commit of the history still keeps up.
RATE, FULL = 3_000.0, PROFILES["full"]
SESSIONS = round(RATE * FULL.duration_s / EVENTS_PER_SESSION)
# A killed run needs only the rows that wait in the topic during the restart: it is killed in its third second.
SESSIONS_KILLED = 100
# Each cell also runs once with a load that is complete before the pipeline starts. At a fixed rate, a million events
# take as long as planned. After the warm-up some ten batches are left, each as large as after an outage of 15 s.
FLAT_OUT: Mapping[str, Any] = {"rate": "max", "sessions": 8_000, "max_events_per_batch": 50_000, "warmup_s": 3.0}
# From 7 rounds on asv applies a statistical test. For a single run it has no interval and reports any change of 10 %.
# So from 7 rounds on, killed and flat-out cells run as often as the others.
TESTED_ROUNDS = 7
BY_MILLION = frozenset({"s_per_million", "cpu_s", "written_mb", "checkpoint_mb"})
# asv prints every digit that it gets, and rounds differ by percents.
DIGITS = 4
# Metrics of promises; a cell has those that its guarantee forbids.
PROMISED = {"lost": "LOSS", "duplicated": "DUP"}


def names(sinks: Sequence[str] = (), only: str = "") -> list[str]:
    """Returns the measurable cells as "sink guarantee variant", with every word of `only`."""
    found = (
        f"{sink} {support.guarantee} {support.variant}"
        for sink, support in all_supports()
        if sink in (sinks or installed())
    )
    return [name for name in found if all(word in name for word in only.split())]


def figures(sinks: Sequence[str] = (), rounds: int = 3, only: str = "") -> dict[str, dict[str, list[float]]]:
    """Measures each cell of `names`: healthy in interleaved rounds, killed, and flat out.

    Killed and flat-out cells run once; from TESTED_ROUNDS rounds on, they run as often as the healthy cells. One sink
    is measured after the other.
    """
    load = Cell("", "", "", rate=RATE, sessions=SESSIONS, warmup_s=FULL.warmup_s)
    wanted = names(sinks, only)
    cells = [
        replace(cell, sessions=SESSIONS_KILLED) if cell.faulted else cell
        for cell in quick(load)
        if _name(cell) in wanted
    ]
    reports: list[Report] = []
    failed: list[str] = []
    ended: Exception | None = None

    def report_failure(cell: Cell, error: Exception) -> None:
        print(f"{cell.brief}: {error}", file=sys.stderr)
        failed.append(_name(cell))

    with tempfile.TemporaryDirectory(prefix="oncebench-bench-") as folder:
        results = Results(Path(os.environ.get(REPORTS) or Path(folder) / "results"), f"bench-{stamp()}")
        for sink in dict.fromkeys(cell.sink for cell in cells):
            mine = [cell for cell in cells if cell.sink == sink]
            healthy, killed = ([cell for cell in mine if cell.faulted == faulted] for faulted in (False, True))
            at_once = [replace(cell, **FLAT_OUT) for cell in healthy]
            others = rounds if rounds >= TESTED_ROUNDS else 1
            planned = in_rounds(healthy, rounds) + in_rounds(killed, others) + in_rounds(at_once, others)
            before = len(reports) + len(failed)
            try:
                reports.extend(run_series(planned, results, Workspace(Path(folder) / sink), report_failure))
            except Interrupted:
                raise
            except (UserError, PipelineError, OSError) as error:
                untested = planned[len(reports) + len(failed) - before :]
                print(f"{sink}: {error}. {len(untested)} of its runs are untested", file=sys.stderr)
                failed += map(_name, untested)
                ended = error
            if len(reports) + len(failed) - before < len(planned):
                break  # an interruption
    if ended is not None and not reports:
        raise ended
    return figures_of(reports, failed)


def _name(cell: Cell) -> str:
    return f"{cell.sink} {cell.guarantee} {cell.variant}"


def figures_of(reports: Iterable[Report], failed: Iterable[str] = ()) -> dict[str, dict[str, list[float]]]:
    """Returns the figures of these reports.

    Args:
        failed: the cell's name for each run that failed.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for report in reports:
        cell = report["cell"]
        mine = found.setdefault(f"{cell['sink']} {cell['guarantee']} {cell['variant']}", {})
        for name, value in _recovery(report) if cell["faults"] else _costs(report):
            mine.setdefault(name, []).append(value)
        for name, value in _promises(report):
            _add(mine, name, value)
    for name in failed:
        _add(found.setdefault(name, {}), "untested", 1.0)
    return found


def _add(mine: dict[str, list[float]], name: str, value: float) -> None:
    mine[name] = [sum(mine.get(name, []), start=value)]


def _costs(report: Report) -> Iterable[tuple[str, float]]:
    """Yields the cost metrics of a healthy run.

    Only a flat-out run has the costs per million events: at a fixed rate these depend on the plan and the machine.
    """
    for metric in METRICS:
        wanted = not metric.promised and metric.name != "recovery_s" and (metric.name in BY_MILLION) == flat_out(report)
        value = figure(report, metric) if wanted else None
        if value is not None:
            yield metric.name, float(f"{value:.{DIGITS}g}")


def _promises(report: Report) -> Iterable[tuple[str, float]]:
    rows: Mapping[str, Any] = report["rows"]
    yield "broken", float(report["verdict"] == Verdict.BROKEN)
    yield "untested", float(report["verdict"] not in (Verdict.KEPT, Verdict.BROKEN))
    for name, code in PROMISED.items():
        if RULES[code][report["cell"]["guarantee"]] == FORBIDDEN:
            yield name, float(rows[name])


def _recovery(report: Report) -> Iterable[tuple[str, float]]:
    value = figure(report, BY_NAME["recovery_s"])
    if value is not None:
        yield "recovery_s", float(f"{value:.{DIGITS}g}")
