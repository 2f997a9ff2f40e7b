"""The folders of reports and tables.

The user's own are in results/local (ignored by git), published ones in results.

Promise: a report file is written line by line, each line complete. Tables are written only from the reports in the same
folder.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from oncebench.record.json_lines import whole_lines
from oncebench.report.schema import Report
from oncebench.report.tables import table as tables

PUBLISHED = Path("results")
LOCAL = PUBLISHED / "local"


def stamp() -> str:
    """A name for a series that this process starts now.

    Names sort by time, and two processes never share a name.
    """
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def default_work_dir(kind: str) -> Path:
    """A new work folder for this process."""
    return LOCAL / "work" / f"{kind}-{stamp()}"


class Results:
    """One file of reports and the tables made from it.

    Args:
        folder: `LOCAL` or `PUBLISHED`.
        name: the name of the file in runs/ and of the tables in tables/.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.runs = folder / "runs" / f"{name}.jsonl"
        self.tables = folder / "tables"
        self._name = name

    @classmethod
    def of(cls, runs: Path) -> Results:
        """The results that a file of reports belongs to.

        `add` appends to this file. Tables go where they were.
        """
        home = runs.parent.parent if runs.parent.name == "runs" else runs.parent
        found = cls(home, runs.stem)
        found.runs = runs
        return found

    def add(self, report: Report) -> None:
        """Appends one report as a line, and replaces a last line that was cut while it was written."""
        self.runs.parent.mkdir(parents=True, exist_ok=True)
        with self.runs.open("a+b") as file:
            if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                _end_line(file)
            file.write(json.dumps(report, separators=(",", ":")).encode() + b"\n")

    def write_text(self, suffix: str, text: str) -> Path:
        """Writes the text of a table; returns the path."""
        self.tables.mkdir(parents=True, exist_ok=True)
        written = self.tables / f"{self._name}{suffix}"
        written.write_text(text, "utf-8")
        return written

    def write_tables(self, reports: Sequence[Report]) -> tuple[Path, Path]:
        """Writes the tables of the reports as Markdown and CSV; returns the paths."""
        return self.write_text(".md", tables.markdown(reports)), self.write_text(".csv", tables.as_csv(reports))


def _end_line(file: BinaryIO) -> None:
    """Ends the last line of a file, or removes it if it was cut."""
    file.seek(0)
    whole = "".join(whole_lines(file.read().decode("utf-8", "surrogateescape"))).encode("utf-8", "surrogateescape")
    file.truncate(len(whole))
    if whole and not whole.endswith(b"\n"):
        file.write(b"\n")
