"""Where reports and tables go: a user's own below results/local (ignored by git), published ones beside it.

Promise: a report file is written line by line, each line whole; tables are written from the reports in the same
folder, and by nothing else.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from oncebench.report.tables import table as tables

PUBLISHED = Path("results")
LOCAL = PUBLISHED / "local"


def stamp() -> str:
    """A name for what is started now: sorts by time, one per second."""
    return time.strftime("%Y%m%d-%H%M%S")


def default_work_dir(kind: str) -> Path:
    """A fresh work dir of this process, also if another is started in the same second."""
    return LOCAL / "work" / f"{kind}-{stamp()}-{os.getpid()}"


class Results:
    """One file of reports, and the tables made from it.

    Args:
        folder: `LOCAL` or `PUBLISHED`.
        name: of the file in runs/ and of the tables in tables/.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.runs = folder / "runs" / f"{name}.jsonl"
        self.tables = folder / "tables"
        self._name = name

    @classmethod
    def of(cls, runs: Path) -> Results:
        """Those that a file of reports belongs to: what is added goes into it, tables where they were."""
        home = runs.parent.parent if runs.parent.name == "runs" else runs.parent
        found = cls(home, runs.stem)
        found.runs = runs
        return found

    def add(self, report: Mapping[str, Any]) -> None:
        """Appends one report as a line of its own, in place of one that was cut while it was written."""
        self.runs.parent.mkdir(parents=True, exist_ok=True)
        with self.runs.open("a+b") as file:
            if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                _end_line(file)
            file.write(json.dumps(report, separators=(",", ":")).encode() + b"\n")

    def write_text(self, suffix: str, text: str) -> Path:
        """Writes one table as it is; returns its path."""
        self.tables.mkdir(parents=True, exist_ok=True)
        written = self.tables / f"{self._name}{suffix}"
        written.write_text(text, "utf-8")
        return written

    def write_tables(self, reports: Sequence[Mapping[str, Any]]) -> tuple[Path, Path]:
        """Writes the Markdown and CSV tables of the reports; returns their paths."""
        return self.write_text(".md", tables.markdown(reports)), self.write_text(".csv", tables.as_csv(reports))


def whole_lines(text: str) -> list[str]:
    """The lines of a file that is appended to, without a last one that was cut while it was written."""
    *lines, last = text.splitlines(keepends=True) or [""]
    try:
        json.loads(last)
    except ValueError:
        return lines if not last.endswith("\n") else [*lines, last]
    return [*lines, last]


def _end_line(file: BinaryIO) -> None:
    """Ends the last line of a file, or takes it away if it was cut."""
    file.seek(0)
    whole = "".join(whole_lines(file.read().decode("utf-8", "surrogateescape"))).encode("utf-8", "surrogateescape")
    file.truncate(len(whole))
    if whole and not whole.endswith(b"\n"):
        file.write(b"\n")
