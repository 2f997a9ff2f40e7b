"""Cells one after the other in one lab: what `compare` and `faults` do between choosing and showing.

Promise: every report is stored as soon as it is made, and tells its series, so that runs of another time are not taken
for those of its rounds; what a cell has left is deleted unless it is to be kept. What can go wrong: a work dir that has
served already is refused; a cell can't be run, or not be read (`UserError`, `PipelineError`, `OSError`); then the
series ends, or, if `failed` is given, tells it and goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import click

from oncebench.commands.run import bytes_needed
from oncebench.delivery.errors import PipelineError
from oncebench.errors import ExitCode, UserError
from oncebench.lab.disk import prepare_disks
from oncebench.lab.lab import open_lab
from oncebench.live.view import view
from oncebench.measure import BULKY, measure
from oncebench.report.results import Results
from oncebench.report.schema import Report
from oncebench.run.interrupt import gently
from oncebench.run.workdir import delete_below, open_work_dir, refuse_used, require_free
from oncebench.scenario.cell import Cell

# What a run takes beside its load, on two idle cores: Spark's start, priming, draining, reading, judging.
RUN_S = 16.0
# A cell, its title, and whether it only tries something: such a run is no figure of a comparison.
Run = Callable[[Cell, str, bool], Report]


@contextmanager
def open_series(
    cells: Sequence[Cell], results: Results, bootstrap_servers: str | None, place: Path, keep: bool
) -> Iterator[tuple[Run, threading.Event]]:
    """A work dir and a lab for these cells, or others of the same sinks and no larger: what runs one cell under a title
    and gives its report, which is stored; and what a Ctrl-C sets."""
    prepare_disks(cells)
    with open_work_dir(place) as work, gently() as interrupted:
        refuse_used(work.path)
        require_free(work.path, bytes_needed(cells))
        with open_lab(work.path, bootstrap_servers, {cell.sink for cell in cells}) as lab:
            numbers = count(1)

            def run(cell: Cell, title: str, probe: bool) -> Report:
                with open_work_dir(work.path / "cells" / f"{next(numbers):03d}") as folder, view(title) as show:
                    report = measure(cell, lab, folder.path, show, interrupted)
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
    bootstrap_servers: str | None,
    place: Path,
    keep: bool,
    failed: Callable[[Cell, Exception], None] | None = None,
    named: Callable[[Cell], str] = lambda cell: cell.brief,
) -> Iterator[Report]:
    """Runs the cells in a work dir and yields each report that was not interrupted; ends early after a Ctrl-C. `named`:
    what a cell is called while it runs."""
    with open_series(cells, results, bootstrap_servers, place, keep) as (run, interrupted):
        began = time.monotonic()
        for done, cell in enumerate(cells):
            if interrupted.is_set():
                break
            try:
                report = run(cell, f"{done + 1}/{len(cells)}{left(done, len(cells), began)} {named(cell)}", False)
            except (UserError, PipelineError, OSError) as error:
                if failed is None or getattr(error, "exit_code", None) == ExitCode.INTERRUPTED:
                    raise
                failed(cell, error)
                continue
            if not report["interrupted"]:
                yield report


@dataclass
class Trouble:
    """Tells of each cell that came to no end when it happens, and of all once more at the end."""

    errors: list[Exception] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __call__(self, cell: Cell, error: Exception) -> None:
        """One more."""
        self.errors.append(error)
        self.lines.append(f"not run to its end: {cell.title}: {error}\n  {cell.reproduce()}")
        click.echo(self.lines[-1], err=True)

    def tell_again(self) -> None:
        """All of them."""
        for line in self.lines:
            click.echo(line, err=True)


def at_least_s(cells: Sequence[Cell]) -> float:
    """How long runs take on an idle machine if nothing goes wrong: their loads, and what each takes beside it."""
    return sum(cell.load_s for cell in cells) + RUN_S * len(cells)


def left(done: int, of: int, began: float) -> str:
    """How long the rest will take if it takes as long as what is done: ` (12 min left)`; empty at first."""
    minutes = (time.monotonic() - began) / max(1, done) * (of - done) / 60
    return f" ({minutes:.0f} min left)" if done and minutes >= 1 else ""


def _delete(folder: Path) -> None:
    for name in BULKY:
        delete_below(folder, folder / name)
