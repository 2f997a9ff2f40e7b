"""The reports of a results folder, each with its file and line.

Promise: every published figure leads to a report, and every report to its line. Files are read in the order of their
names, so the same reports give the same page.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from oncebench.errors import UserError
from oncebench.report.report import numbered
from oncebench.report.schema import Report
from oncebench.report.tables.engines import is_of_spark

RUNS = "runs"  # the folder into which `Results` writes them
# Series with other engines, of `python -m peers.headline`. They are apart: no sink of the suite has their variants.
ENGINES = "engines"


@dataclass(frozen=True)
class Stored:
    """A report, the name of its file in runs/, and its line there, counted from 1."""

    report: Report
    file: str
    line: int


def stored_in(folder: Path) -> list[Stored]:
    """All reports of a results folder.

    Raises:
        UserError: there is no report, a file is damaged, or a newer oncebench wrote it.
    """
    files = sorted((folder / RUNS).glob("*.jsonl"))
    found = [Stored(report, file.name, line) for file in files for line, report in numbered(file)]
    if not found:
        raise UserError(
            f"{folder / RUNS} holds no report. Write some with `oncebench compare --publish`, or add a file of "
            "your own runs with `oncebench table --publish FILE` (results/local/runs/*.jsonl)"
        )
    return found


def engines_in(folder: Path) -> list[Stored]:
    """The reports of series with other engines; often none."""
    files = sorted((folder / ENGINES).glob("*.jsonl"))
    return [Stored(report, file.name, line) for file in files for line, report in numbered(file)]


def take_in(files: Iterable[Path], folder: Path) -> list[Path]:
    """Copies files of reports into a results folder; a file already there may have grown.

    A series with other engines goes into ENGINES, every other file into RUNS.

    Raises:
        UserError: a file holds no reports, another file of its name is there, or its runs are there under another
            name and would count twice. Then nothing is copied.
    """
    found = [each for file in files for each in (sorted((file / RUNS).glob("*.jsonl")) if file.is_dir() else [file])]
    wanted = [(file, folder / (ENGINES if _has_other_engines(file) else RUNS) / file.name) for file in found]
    for file, target in wanted:
        if file.suffix != ".jsonl":
            raise UserError(
                f"{file} is no file of reports (.jsonl, a report on each line). Give a file of results/local/runs/"
            )
        runs = {report.get("run") for _, report in numbered(file)} - {None}
        for other in sorted(target.parent.glob("*.jsonl")):
            if other.name != file.name and runs & {report.get("run") for _, report in numbered(other)}:
                raise UserError(
                    f"{file} holds runs that are already in {other} and would count twice. Remove one of the two files"
                )
        if target.exists() and not file.read_bytes().startswith(target.read_bytes()):
            raise UserError(f"{target} holds other reports than {file}. Give the new file another name")
    taken = []
    for file, target in wanted:
        if not (target.exists() and target.samefile(file)):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            taken.append(target)
    return taken


def _has_other_engines(file: Path) -> bool:
    return file.suffix == ".jsonl" and any(not is_of_spark(report) for _, report in numbered(file))
