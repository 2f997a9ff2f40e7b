"""Runs cells one after the other in one workspace, and stores each report.

Promise: a report is stored as soon as it is made. It names its series, so that runs of another time do not count as
rounds of this one. The files of a run are deleted unless they are to be kept.

Failures: a used work dir is refused. If a cell can't be run or read (`UserError`, `PipelineError`, `OSError`), the
series ends; with `failed`, it reports the failure and continues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from loadgen.session import EVENTS_PER_SESSION
from oncebench.delivery.errors import PipelineError
from oncebench.errors import Interrupted, UserError
from oncebench.experiments.workspace import Workspace, open_workspace
from oncebench.report.results import Results
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell
from oncebench.workdir import open_work_dir

# Time of a run in addition to its load, on two idle cores: Spark's start, warm-up, draining, reading, judging.
RUN_S = 16.0
# Events per second that a run with --rate max sends, processes, reads and judges. On two idle cores, the median of 40
# runs (profile price, Kafka) was 36 s for 1.6 million events: RUN_S, and 20 s for the events.
PROCESSED_PER_S = 80_000.0
# Arguments: a cell, its title, and whether the run is a probe, whose figures no comparison uses.
Run = Callable[[Cell, str, bool], Report]


@contextmanager
def open_series(cells: Sequence[Cell], results: Results, workspace: Workspace) -> Iterator[tuple[Run, threading.Event]]:
    """Opens a workspace for these cells, or for smaller cells of the same sinks.

    Yields a function that runs one cell and stores its report, and the event that Ctrl-C sets.
    """
    with open_workspace(workspace, cells) as opened:
        numbers = count(1)

        def run(cell: Cell, title: str, probe: bool) -> Report:
            with open_work_dir(opened.folder / "cells" / f"{next(numbers):03d}") as work:
                report = opened.measure(cell, work.path, title)
                report |= {"series": results.runs.stem, **({"probe": True} if probe else {})}
                opened.clean(work.path)
            results.add(report)
            return report

        yield run, opened.interrupted


def run_series(
    cells: Sequence[Cell],
    results: Results,
    workspace: Workspace,
    failed: Callable[[Cell, Exception], None] | None = None,
    title: Callable[[Cell], str] = lambda cell: cell.brief,
) -> Iterator[Report]:
    """Runs the cells and yields each report that was not interrupted; Ctrl-C ends the series.

    Args:
        failed: called with each cell that failed; without it the first failure ends the series.
        title: the name of a cell in the live view.
    """
    with open_series(cells, results, workspace) as (run, interrupted):
        began = time.monotonic()
        for done, cell in enumerate(cells):
            if interrupted.is_set():
                break
            try:
                numbered = f"{done + 1}/{len(cells)}{time_left(done, len(cells), began)} {title(cell)}"
                report = run(cell, numbered, False)
            except Interrupted:
                raise
            except (UserError, PipelineError, OSError) as error:
                if failed is None:
                    raise
                failed(cell, error)
                continue
            if not report["interrupted"]:
                yield report


def at_least_s(cells: Sequence[Cell]) -> float:
    """Returns how many seconds these runs take on an idle machine: their loads, and RUN_S each."""
    return sum(map(_load_s, cells)) + RUN_S * len(cells)


def _load_s(cell: Cell) -> float:
    """Returns the duration of a load, in seconds.

    A load without a rate lasts as long as the run takes to process its events.
    """
    return cell.sessions * EVENTS_PER_SESSION / PROCESSED_PER_S if cell.rate == "max" else cell.load_s


def time_left(done: int, total: int, began: float) -> str:
    """Returns ` (12 min left)`, projected from the finished cells; empty below a minute."""
    minutes = (time.monotonic() - began) / max(1, done) * (total - done) / 60
    return f" ({minutes:.0f} min left)" if done and minutes >= 1 else ""
