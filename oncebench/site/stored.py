"""The reports of a results folder, each with the file and the line where it stands.

Promise: whatever is published can be looked up: a figure leads to a report, and a report to its line. Files come by
name and lines in their order, so that the same reports give the same page.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from oncebench.errors import UserError
from oncebench.report.report import numbered
from oncebench.report.schema import Report

RUNS = "runs"  # where `Results` puts them


@dataclass(frozen=True)
class Stored:
    """A report, the name of its file in runs/, and its line there, from 1."""

    report: Report
    file: str
    line: int


def stored_in(folder: Path) -> list[Stored]:
    """All reports of a results folder.

    Raises:
        UserError: there are none, a file is damaged, or a newer oncebench wrote it.
    """
    files = sorted((folder / RUNS).glob("*.jsonl"))
    found = [Stored(report, file.name, line) for file in files for line, report in numbered(file)]
    if not found:
        raise UserError(
            f"{folder / RUNS} holds no report; `oncebench compare --publish` writes some there, and "
            "`oncebench table --publish FILE` takes a file of your own runs (results/local/runs/*.jsonl) into it"
        )
    return found


def take_in(files: Iterable[Path], folder: Path) -> list[Path]:
    """Copies files of reports into a results folder; one that is there already may have grown meanwhile.

    Raises:
        UserError: one is no file of reports, another one of its name is there, or its runs are there under another
            name: they would count twice. Nothing of it was copied then.
    """
    wanted = [each for file in files for each in (sorted((file / RUNS).glob("*.jsonl")) if file.is_dir() else [file])]
    for file in wanted:
        there = folder / RUNS / file.name
        if file.suffix != ".jsonl":
            raise UserError(f"{file} is no file of reports (.jsonl, one on each line); give one of results/local/runs/")
        mine = {report.get("run") for _, report in numbered(file)} - {None}
        for other in sorted((folder / RUNS).glob("*.jsonl")):
            if other.name != file.name and mine & {report.get("run") for _, report in numbered(other)}:
                raise UserError(f"{file} holds runs that are in {other} already, and would count twice")
        if there.exists() and not file.read_bytes().startswith(there.read_bytes()):
            raise UserError(f"{there} holds other reports than {file}; give the new file another name")
    taken = []
    for file in wanted:
        there = folder / RUNS / file.name
        if not (there.exists() and there.samefile(file)):
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, there)
            taken.append(there)
    return taken
