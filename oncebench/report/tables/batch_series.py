"""A stored series of `oncebench batches`: one file of JSON lines.

The first line says where the series comes from: {"series", "command", "environment", "rows" or "events", "partitions"}.
Each other line is a batch, see `oncebench.report.tables.batches`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncebench.errors import ExitCode, UserError
from oncebench.record.json_lines import LineWriter, read_lines
from oncebench.record.validation import RecordError

FOLDER = "batches"  # below a results folder


@dataclass(frozen=True)
class BatchSeries:
    """Where a series comes from, and its batches."""

    about: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]

    @property
    def is_whole(self) -> bool:
        """Whether the batches went through the whole pipeline."""
        return "events" in self.about

    def write(self, folder: Path) -> Path:
        """Writes the series below a results folder; returns the new file."""
        path = folder / FOLDER / f"{self.about['series']}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with LineWriter(path) as file:
            for line in (self.about, *self.lines):
                file.append(line)
        return path


def read_series(path: Path) -> BatchSeries:
    """Reads a stored series.

    Raises:
        UserError: the file is no such series (exit code 2).
    """
    try:
        about, *lines = read_lines(path).items
    except (RecordError, ValueError):
        about, lines = {}, []
    if "series" not in about or not lines or not all("arm" in line for line in lines):
        raise UserError(
            f"{path} is no series of `oncebench batches`. Give a file of results/local/{FOLDER}/",
            exit_code=ExitCode.USAGE,
        )
    return BatchSeries(about, lines)


def series_in(folder: Path) -> list[BatchSeries]:
    """The series of a results folder, by the name of the file."""
    return [read_series(path) for path in sorted((folder / FOLDER).glob("*.jsonl"))]
