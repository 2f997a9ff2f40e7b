"""Cells one after the other in one lab: what `compare` and `faults` do between choosing and showing.

Promise: every report is stored as soon as it is made; what a cell has left is deleted unless it is to be kept. What can
go wrong: a cell can't be run, or not be read (`UserError`, `PipelineError`); then the series ends, or, if `failed` is
given, tells it and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from oncebench.commands.run import bytes_needed
from oncebench.errors import INTERRUPTED, UserError
from oncebench.measure import BULKY, measure
from oncebench.reports.results import Results
from oncebench.run.disks import prepare_disks
from oncebench.run.interrupt import gently
from oncebench.run.lab import open_lab
from oncebench.run.live import view
from oncebench.run.workdir import delete_below, open_work_dir, require_free
from oncebench.scenario import Cell
from pipeline.errors import PipelineError


def run_series(
    cells: Sequence[Cell],
    results: Results,
    bootstrap_servers: str | None,
    place: Path,
    keep: bool,
    failed: Callable[[Cell, Exception], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Runs the cells in a work dir and yields each report that was not interrupted; ends early after a Ctrl-C."""
    prepare_disks(cells)
    with open_work_dir(place) as work, gently() as interrupted:
        require_free(work.path, bytes_needed(cells))
        with open_lab(work.path, bootstrap_servers, {cell.sink for cell in cells}) as lab:
            for number, cell in enumerate(cells, 1):
                if interrupted.is_set():
                    break
                with (
                    open_work_dir(work.path / "cells" / f"{number:03d}") as folder,
                    view(f"{number}/{len(cells)} {cell.brief}") as show,
                ):
                    try:
                        report = measure(cell, lab, folder.path, show, interrupted)
                    except (UserError, PipelineError) as error:
                        if failed is None or getattr(error, "exit_code", None) == INTERRUPTED:
                            raise
                        failed(cell, error)
                        continue
                    if not keep:
                        for name in BULKY:
                            delete_below(folder.path, folder.path / name)
                results.add(report)
                if not report["interrupted"]:
                    yield report
        if not keep:
            for name in BULKY:
                delete_below(work.path, work.path / name)
