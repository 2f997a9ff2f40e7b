"""The reports of a results folder, each with its file and line.

Promise: every published figure leads to a report, and every report to its line. Files are read in the order of their
names, so the same reports give the same page.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oncebench.errors import UserError
from oncebench.report.report import reports_with_lines
from oncebench.report.schema import Report
from oncebench.report.tables.engines import is_of_series

RUNS = "runs"  # the folder into which `Results` writes them
# Series of `python -m peers.headline`. They are apart: no sink of the suite has the variants of other engines.
ENGINES = "engines"


@dataclass(frozen=True)
class Stored:
    """A report, the name of its file in runs/ or engines/, and its line there, counted from 1."""

    report: Report
    file: str
    line: int


def stored_in(folder: Path) -> list[Stored]:
    """All reports of a results folder.

    Raises:
        UserError: there is no report, a file is damaged, or a newer oncebench wrote it.
    """
    files = sorted((folder / RUNS).glob("*.jsonl"))
    found = [Stored(report, file.name, line) for file in files for line, report in reports_with_lines(file)]
    if not found:
        raise UserError(
            f"{folder / RUNS} holds no report. Write some with `oncebench compare --publish`, or add a file of "
            "your own runs with `oncebench table --publish FILE` (results/local/runs/*.jsonl)"
        )
    return found


def engines_in(folder: Path) -> list[Stored]:
    """The reports of series with several engines; often none."""
    files = sorted((folder / ENGINES).glob("*.jsonl"))
    return [Stored(report, file.name, line) for file in files for line, report in reports_with_lines(file)]


def take_in(files: Iterable[Path], folder: Path) -> list[Path]:
    """Copies files of reports into a results folder; a file already there may have grown.

    A series of several engines goes into ENGINES, every other file into RUNS. Returns the copies. A file that is there
    with the same reports is not copied.

    Args:
        files: files of reports, or results folders with such files.

    Raises:
        UserError: a file holds no reports, another file of its name is there, or its runs are there under another
            name and would count twice. Then nothing is copied.
    """
    wanted: dict[Path, Path] = {}
    for file in (each for place in files for each in (_files(place) if place.is_dir() else [place])):
        if file.suffix != ".jsonl":
            raise UserError(
                f"{file} is no file of reports (.jsonl, a report on each line). Give a file of results/local/runs/"
            )
        of_engines = any(is_of_series(report) for _, report in reports_with_lines(file))
        target = folder / (ENGINES if of_engines else RUNS) / file.name
        if wanted.setdefault(target, file) != file:
            raise UserError(f"{file} and {wanted[target]} have the same name. Rename one of them")
    for target, file in wanted.items():
        if target.exists() and not file.read_bytes().startswith(target.read_bytes()):
            raise UserError(f"{target} holds other reports than {file}. Give the new file another name")
    _refuse_repeated(wanted, folder)
    taken = []
    for target, file in wanted.items():
        if not (target.exists() and target.read_bytes() == file.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            taken.append(target)
    return taken


def _files(folder: Path) -> list[Path]:
    return [file for part in (RUNS, ENGINES) for file in sorted((folder / part).glob("*.jsonl"))]


def _refuse_repeated(wanted: Mapping[Path, Path], folder: Path) -> None:
    """Refuses a run that would be in two files."""
    seen: dict[str, Path] = {}
    for target in dict.fromkeys([*_files(folder), *wanted]):
        file = wanted.get(target, target)
        for run in {report["run"] for _, report in reports_with_lines(file) if report.get("run")}:
            if (other := seen.setdefault(run, file)) != file:
                first, second = (file, other) if file in wanted.values() else (other, file)
                what = f"{first} holds runs that are already in {second} and would count twice"
                raise UserError(f"{what}. Remove one of the two files")
