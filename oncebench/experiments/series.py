"""Runs cells one after the other in one lab, and stores each report.

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
from pathlib import Path

from loadgen.session import EVENTS_PER_SESSION
from oncebench.delivery.errors import PipelineError
from oncebench.errors import Interrupted, UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.broker import isolates
from oncebench.lab.disk import prepare_disks
from oncebench.lab.engine import SPARK, Engine
from oncebench.lab.lab import START_TIMEOUT_S, Lab, open_lab
from oncebench.live.view import view
from oncebench.measure import BULKY, measure
from oncebench.report.results import Results
from oncebench.report.schema import Report
from oncebench.run.interrupt import gently
from oncebench.scenario.cell import Cell
from oncebench.workdir import delete_below, open_work_dir, refuse_used, require_free

# Time of a run in addition to its load, on two idle cores: Spark's start, warm-up, draining, reading, judging.
RUN_S = 16.0
# Events per second that a run with --rate max sends, processes, reads and judges. On two idle cores, the median of the
# 40 runs in results/runs/costs-price-kafka was 36 s for 1.6 million events: RUN_S, and 20 s for the events.
PROCESSED_PER_S = 80_000.0
# What a series keeps until its end, per event without padding: the record of each run, and its topics in each broker.
# Measured in `compare --profile price` (40 runs of 1.6 M events, one broker): 239 and 143 bytes. A quarter is added.
RECORD_BYTES_PER_EVENT = 300
BROKER_BYTES_PER_EVENT = 180
# A run needs more while it goes: state, logs, and the files that the audit sorts. So the largest run gets this besides.
WORKING_BYTES_PER_EVENT = 1000
BASE_BYTES = 200_000_000
# Arguments: a cell, its title, and whether the run is a probe, whose figures no comparison uses.
Run = Callable[[Cell, str, bool], Report]
EngineOf = Callable[[Cell, Lab], Engine]


def spark(_cell: Cell, _lab: Lab) -> Engine:
    """Returns the engine of every cell that is no peer's."""
    return SPARK


@contextmanager
def open_series(
    cells: Sequence[Cell],
    results: Results,
    kafka: KafkaAccess | None,
    place: Path,
    keep: bool,
    start_timeout_s: float = START_TIMEOUT_S,
    engine: EngineOf = spark,
) -> Iterator[tuple[Run, threading.Event]]:
    """Opens a work dir and a lab for these cells, or for smaller cells of the same sinks.

    Yields a function that runs one cell and stores its report, and the event that Ctrl-C sets.
    """
    prepare_disks(cells)
    with open_work_dir(place) as work, gently() as interrupted:
        refuse_used(work.path)
        require_free(work.path, bytes_needed(cells))
        brokers = min((cell.brokers for cell in cells), default=1)  # a run that needs others starts its own
        apart = all(isolates(cell) for cell in cells)
        with open_lab(work.path, kafka, {cell.sink for cell in cells}, start_timeout_s, brokers, apart) as lab:
            numbers = count(1)

            def run(cell: Cell, title: str, probe: bool) -> Report:
                with open_work_dir(work.path / "cells" / f"{next(numbers):03d}") as folder, view(title) as show:
                    report = measure(cell, lab, folder.path, show, interrupted, engine(cell, lab))
                    report |= {"series": results.runs.stem, **({"probe": True} if probe else {})}
                    if not keep:
                        _delete(folder.path)
                results.add(report)
                return report

            yield run, interrupted
        if not keep:
            _delete(work.path)


def run_series(
    cells: Sequence[Cell],
    results: Results,
    kafka: KafkaAccess | None,
    place: Path,
    keep: bool,
    failed: Callable[[Cell, Exception], None] | None = None,
    title: Callable[[Cell], str] = lambda cell: cell.brief,
    start_timeout_s: float = START_TIMEOUT_S,
    engine: EngineOf = spark,
) -> Iterator[Report]:
    """Runs the cells and yields each report that was not interrupted; Ctrl-C ends the series.

    Args:
        failed: called with each cell that failed; without it the first failure ends the series.
        title: the name of a cell in the live view.
        start_timeout_s: see `Lab`.
        engine: returns the engine of a cell.
    """
    with open_series(cells, results, kafka, place, keep, start_timeout_s, engine) as (run, interrupted):
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


def bytes_needed(cells: Sequence[Cell]) -> int:
    """Returns the disk space that the work dir of these cells needs."""
    kept = sum(
        _events(cell)
        * (RECORD_BYTES_PER_EVENT + cell.brokers * BROKER_BYTES_PER_EVENT + (1 + cell.brokers) * cell.record_bytes)
        + _replayed_bytes(cell)
        for cell in cells
    )
    return BASE_BYTES + kept + WORKING_BYTES_PER_EVENT * max(map(_events, cells), default=0)


def _replayed_bytes(cell: Cell) -> int:
    """Returns the disk space of the records of a user's file: as events and as rows, stored, read, and observed."""
    if not cell.records:
        return 0
    return (3 + 2 * cell.brokers) * Path(cell.records).stat().st_size * cell.passes


def _events(cell: Cell) -> int:
    return cell.sessions * EVENTS_PER_SESSION + cell.open_sessions


def at_least_s(cells: Sequence[Cell]) -> float:
    """Returns the duration of these runs in seconds on an idle machine: their loads, and RUN_S each."""
    return sum(map(_load_s, cells)) + RUN_S * len(cells)


def _load_s(cell: Cell) -> float:
    """Returns the duration of a load. A load without a rate lasts as long as the run takes to process its events."""
    return cell.sessions * EVENTS_PER_SESSION / PROCESSED_PER_S if cell.rate == "max" else cell.load_s


def time_left(done: int, total: int, began: float) -> str:
    """Returns ` (12 min left)`, projected from the finished cells; empty below a minute."""
    minutes = (time.monotonic() - began) / max(1, done) * (total - done) / 60
    return f" ({minutes:.0f} min left)" if done and minutes >= 1 else ""


def _delete(folder: Path) -> None:
    for name in BULKY:
        delete_below(folder, folder / name)
