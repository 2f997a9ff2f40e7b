"""Writes index.html, data.js and the tables of a results folder, from all its reports.

Promise: every published figure comes from a report in runs/ or engines/. Each file is written whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from oncebench.report.comparisons import repeatability, sustained
from oncebench.report.tables import cost_table, engines, fault_matrix, fault_text, table
from oncebench.site import csv_tables
from oncebench.site.data import as_script, data_of
from oncebench.site.page import page
from oncebench.site.stored import engines_in, stored_in

PAGE, DATA = "index.html", "data.js"


def publish(folder: Path) -> list[Path]:
    """Writes the page and tables of a results folder; returns their paths, the page first.

    Raises:
        UserError: the folder holds no report, or a damaged one.
    """
    stored = stored_in(folder)
    reports = [each.report for each in stored]
    others = engines_in(folder)
    data = as_script(data_of(stored, others))
    made: Mapping[str, str] = {
        PAGE: page(data),
        DATA: data,
        "tables/all.md": table.markdown(reports),
        "tables/all.csv": table.as_csv(reports),
        "tables/costs.md": cost_table.markdown(reports),
        "tables/sustained.md": sustained.markdown(reports),
        "tables/noise.md": repeatability.noise_markdown(reports),
        "tables/engines.md": engines.markdown([each.report for each in others]),
        "tables/costs.csv": csv_tables.costs(reports),
        "tables/faults.md": fault_text.markdown(reports, fault_matrix.cells_of(reports)),
        "tables/faults.csv": csv_tables.cells(reports),
        "tables/runs.csv": csv_tables.runs(stored),
    }
    for name in (name for name, text in made.items() if not text):
        (folder / name).unlink(missing_ok=True)  # an earlier publication wrote it, and there is no content for it
    return [_written(folder / name, text) for name, text in made.items() if text]


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)
    return path
