"""The one stable function that `benchmarks/` calls: every cell measured, as plain figures.

Promise: its name, arguments and result do not change, so that a commit of today can be measured by the benchmarks of a
later one and the other way round. The result is {"sink guarantee variant": {metric: [a figure for each round]}}; those
of promises are one figure each, the sum over all runs of the cell, healthy or killed, and a run that came to no end
counts as one that could not tell. A metric that no run of a cell has is missing. Where REPORTS names a results folder
in the environment, the reports of the runs stay there, a file for each commit that is measured. Each sink has a lab of
its own: a server that does not start leaves the runs of its sink untested, and no others. What can go wrong: nothing
can be measured here (`UserError`).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oncebench.audit.verdict import BROKEN, FORBIDDEN, KEPT, RULES
from oncebench.commands.series import run_series
from oncebench.delivery.errors import PipelineError
from oncebench.errors import ExitCode, UserError
from oncebench.report.measures.metrics import BY_NAME, METRICS, figure, flat_out
from oncebench.report.results import Results, stamp
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import PROFILES, quick
from oncebench.scenario.rounds import in_rounds
from oncebench.scenario.supports import all_supports, installed

__all__ = ["METRICS", "figures", "names"]  # what `benchmarks/` uses; every commit must have these names
REPORTS = "ONCEBENCH_BENCH_REPORTS"
# What every commit is measured with is the load of what is published, so that its runs can stand beside those.
FULL = PROFILES["full"]
SESSIONS = round(FULL.rate * FULL.duration_s / 100)
# Killed in its third second it has to come back, of which rows that wait in the topic tell: no more load than it takes.
SESSIONS_KILLED = 100
# And once with a load that is there before the pipeline starts, for at a fixed rate a million events take as long as
# planned: six batches, of about the size that they have where a pipeline on two cores is at its limit.
FLAT_OUT: Mapping[str, Any] = {"rate": "max", "sessions": 300, "max_events_per_batch": 5_000}
# From so many rounds on asv asks a test. Of one run it knows no interval, and tells any change of a tenth: so what is
# killed and what is flat out then takes as many rounds as the rest.
TESTED_ROUNDS = 7
BY_MILLION = frozenset({"s_per_million", "cpu_s", "written_mb", "checkpoint_mb"})
# asv prints every digit that it is given, and rounds differ by percents.
DIGITS = 4
# Where the guarantee forbids them.
PROMISED = {"lost": "LOSS", "duplicated": "DUP"}


def names(sinks: Sequence[str] = (), only: str = "") -> list[str]:
    """Every cell that can be measured here: "sink guarantee variant"; of these, those with every word of `only`."""
    found = (
        f"{sink} {support.guarantee} {support.variant}"
        for sink, support in all_supports()
        if sink in (sinks or installed())
    )
    return [name for name in found if all(word in name for word in only.split())]


def figures(sinks: Sequence[str] = (), rounds: int = 3, only: str = "") -> dict[str, dict[str, list[float]]]:
    """Measures each cell that `names` gives healthy, so many rounds in turns, killed once where it tells most, and once
    flat out (from TESTED_ROUNDS on all of them in so many rounds); one sink after the other."""
    load = Cell("", "", "", rate=FULL.rate, sessions=SESSIONS, warmup_s=FULL.warmup_s)
    wanted = names(sinks, only)
    cells = [
        replace(cell, sessions=SESSIONS_KILLED) if cell.faulted else cell
        for cell in quick(load)
        if _name(cell) in wanted
    ]
    reports: list[Report] = []
    failed: list[str] = []
    ended: Exception | None = None

    def tell(cell: Cell, error: Exception) -> None:
        print(f"{cell.brief}: {error}", file=sys.stderr)
        failed.append(_name(cell))

    with tempfile.TemporaryDirectory(prefix="oncebench-bench-") as folder:
        results = Results(Path(os.environ.get(REPORTS) or Path(folder) / "results"), f"bench-{stamp()}")
        for sink in dict.fromkeys(cell.sink for cell in cells):
            mine = [cell for cell in cells if cell.sink == sink]
            healthy, killed = ([cell for cell in mine if cell.faulted == faulted] for faulted in (False, True))
            flat_out, others = [replace(cell, **FLAT_OUT) for cell in healthy], rounds if rounds >= TESTED_ROUNDS else 1
            todo = in_rounds(healthy, rounds) + in_rounds(killed, others) + in_rounds(flat_out, others)
            before = len(reports) + len(failed)
            try:
                reports.extend(run_series(todo, results, None, Path(folder) / sink, False, tell))
            except (UserError, PipelineError, OSError) as error:
                if getattr(error, "exit_code", None) == ExitCode.INTERRUPTED:
                    raise
                left = todo[len(reports) + len(failed) - before :]
                print(f"{sink}: {error}; so {len(left)} of its runs are untested", file=sys.stderr)
                failed += map(_name, left)
                ended = error
            if len(reports) + len(failed) - before < len(todo):
                break  # an interruption
    if ended is not None and not reports:
        raise ended
    return figures_of(reports, failed)


def _name(cell: Cell) -> str:
    return f"{cell.sink} {cell.guarantee} {cell.variant}"


def figures_of(reports: Iterable[Report], failed: Iterable[str] = ()) -> dict[str, dict[str, list[float]]]:
    """The figures in reports of such runs, and in the names of cells of which a run came to no end."""
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
    """Of a run that is flat out what a million events take, and of others all the rest: elsewhere a million events take
    what time and machine there are."""
    for metric in METRICS:
        wanted = not metric.promised and metric.name != "recovery_s" and (metric.name in BY_MILLION) == flat_out(report)
        value = figure(report, metric) if wanted else None
        if value is not None:
            yield metric.name, float(f"{value:.{DIGITS}g}")


def _promises(report: Report) -> Iterable[tuple[str, float]]:
    rows: Mapping[str, Any] = report["rows"]
    yield "broken", float(report["verdict"] == BROKEN)
    yield "untested", float(report["verdict"] not in (KEPT, BROKEN))
    for name, code in PROMISED.items():
        if RULES[code][report["cell"]["guarantee"]] == FORBIDDEN:
            yield name, float(rows[name])


def _recovery(report: Report) -> Iterable[tuple[str, float]]:
    value = figure(report, BY_NAME["recovery_s"])
    if value is not None:
        yield "recovery_s", float(f"{value:.{DIGITS}g}")
