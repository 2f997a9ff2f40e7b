"""Writes index.html, data.js and the tables of a results folder, from all its reports.

Promise: every published figure comes from a file in runs/, engines/, batches/ or commits/. Each file is written whole
or not at all. A file whose content stays the same is not touched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oncebench.report.comparisons import repeatability, sustained
from oncebench.report.tables import batches, commits, cost_table, engines, fault_matrix, fault_text, table
from oncebench.report.tables.batch_series import series_in
from oncebench.site import csv_tables
from oncebench.site.data import as_script, data_of
from oncebench.site.page import page
from oncebench.site.stored import engines_in, stored_in

PAGE, DATA = "index.html", "data.js"
# Pages of a clone that explain the figures, by their path from the results folder. The page links to those that exist.
GUIDES = {
    "../README.md": "README", "../docs/reading_the_tables.md": "the columns", "../docs/glossary.md": "the terms",
    "../docs/what_it_costs.md": "costs", "../docs/faults.md": "faults", "../docs/peers.md": "other engines",
}  # fmt: skip


@dataclass(frozen=True)
class Publication:
    """The files of a published results folder.

    Attributes:
        files: their paths, the page first.
        changed: whether the publication has changed, added or deleted a file.
    """

    files: list[Path]
    changed: bool


def publish(folder: Path) -> Publication:
    """Writes the page and tables of a results folder.

    Raises:
        UserError: the folder holds no report, or a damaged one.
    """
    stored = stored_in(folder)
    reports = [each.report for each in stored]
    others = engines_in(folder)
    series = series_in(folder)
    history = commits.commits_in(folder)
    data = as_script(data_of(stored, others, series, history))
    made: Mapping[str, str] = {
        PAGE: page(data, {path: name for path, name in GUIDES.items() if (folder / path).exists()}),
        DATA: data,
        "tables/all.md": table.markdown(reports),
        "tables/all.csv": table.as_csv(reports),
        "tables/costs.md": cost_table.markdown(reports),
        "tables/sustained.md": sustained.markdown(reports),
        "tables/noise.md": repeatability.noise_markdown(reports),
        "tables/engines.md": engines.markdown([each.report for each in others]),
        "tables/commits.md": commits.markdown(history),
        "tables/batches.md": "\n".join(filter(None, (batches.markdown(series), batches.agreements(series)))),
        "tables/costs.csv": csv_tables.costs(reports),
        "tables/faults.md": fault_text.markdown(reports, fault_matrix.cells_of(reports)),
        "tables/faults.csv": csv_tables.cells(reports),
        "tables/runs.csv": csv_tables.runs(stored),
    }
    changed = [_write(folder / name, text) for name, text in made.items()]
    return Publication([folder / name for name, text in made.items() if text], any(changed))


def _write(path: Path, text: str) -> bool:
    """Writes a file, or deletes it if it has no content; returns whether the file changes."""
    before, content = path.read_bytes() if path.exists() else None, text.encode() or None
    if before == content:
        return False
    if content is None:  # an earlier publication wrote the file
        path.unlink()
        return True
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
    return True
