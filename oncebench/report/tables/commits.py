"""Speed over commits, from asv's figures of the benchmarks `speed`.

A published file is asv's own, `results/commits/MACHINE/COMMIT-ENVIRONMENT.json`, copied from `results/asv/`. It has one
commit. Its other benchmarks are left out. `results/commits/changes.json` says in words what each commit has changed.

Promise: figures are compared only within one machine and one version of the benchmarks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oncebench.errors import UserError
from oncebench.report.grid import grid

FOLDER = "commits"  # below a results folder
CHANGES = "changes.json"
# As asv shortens them in the names of its files.
_SHORT = 8
_BENCHMARK = "speed.Speed.track_"
_RESULT, _VERSION = 0, 2  # places in a row of asv's results


@dataclass(frozen=True)
class _Column:
    """A column: heading, metric of `benchmarks/speed.py`, and how to write its figures."""

    heading: str
    metric: str
    text: Callable[[float], str]

    def shown(self, figure: float, first: float) -> str:
        """The figure, and its ratio to that of the first commit."""
        return f"{self.text(figure)} ({figure / first:.2f})"


# The metric of the first column is a time, so that lower is better in each.
_COLUMNS = (
    _Column("flat out, s per million events", "flat_out_s_per_million", "{:.1f}".format),
    _Column("CPU per event, µs", "flat_out_cpu_us_per_event", "{:.1f}".format),
    _Column("batch at 3,000 events/s, ms", "steady_batch_ms", "{:,.0f}".format),
    _Column("p50 there, ms", "steady_p50_ms", "{:,.0f}".format),
    _Column("p99 there, ms", "steady_p99_ms", "{:,.0f}".format),
)
# A phone shows the first columns only, so the words are last.
HEADINGS = ("commit", *(column.heading for column in _COLUMNS), "what it changed")
NOTE = "In brackets: the ratio to the first commit of the table. Lower is better."


@dataclass(frozen=True)
class Commit:
    """The speed of one commit on one machine.

    Attributes:
        name: the start of its hash.
        date: when it was made.
        change: what it changed, in words; often empty.
        machine: processor and cores.
        version: of the benchmarks.
        file: the published file, relative to the results folder.
        figures: by metric of `benchmarks/speed.py`.
    """

    name: str
    date: datetime
    change: str
    machine: str
    version: str
    file: str
    figures: Mapping[str, float]


def commits_in(folder: Path) -> list[Commit]:
    """Returns the published commits of a results folder, the oldest first; often none.

    Raises:
        UserError: a file is not asv's, or is damaged.
    """
    place = folder / FOLDER
    changes = _json(place / CHANGES) if (place / CHANGES).exists() else {}
    found = (_read(file, folder, changes) for file in sorted(place.glob("*/*-*.json")))
    return sorted((each for each in found if each), key=lambda each: each.date)


def as_json(commits: Sequence[Commit]) -> list[dict[str, Any]]:
    """A table for the page per machine and version of the benchmarks, the newest first."""
    return [
        {
            "machine": one[0].machine,
            "headings": HEADINGS,
            "rows": list(_rows(one)),
            "note": NOTE,
            "files": [each.file for each in one],
        }
        for one in _tables(commits)
    ]


def markdown(commits: Sequence[Commit]) -> str:
    """The same tables as text; empty without a commit."""
    return "\n".join(f"{one[0].machine}\n\n{grid([HEADINGS, *_rows(one)])}\n{NOTE}\n" for one in _tables(commits))


def _tables(commits: Sequence[Commit]) -> list[list[Commit]]:
    tables: dict[tuple[str, str], list[Commit]] = {}
    for each in commits:
        tables.setdefault((each.machine, each.version), []).append(each)
    return sorted(tables.values(), key=lambda table: table[-1].date, reverse=True)


def _rows(table: Sequence[Commit]) -> Iterator[tuple[str, ...]]:
    first = table[0].figures
    for each in table:
        shown = (column.shown(each.figures[column.metric], first[column.metric]) for column in _COLUMNS)
        yield each.name, *shown, each.change


def _read(file: Path, folder: Path, changes: Mapping[str, str]) -> Commit | None:
    """Reads a file of asv; None if asv has not measured each metric of `speed`."""
    stored = _json(file)
    try:
        rows = {column.metric: stored["results"].get(_BENCHMARK + column.metric) for column in _COLUMNS}
        if not all(row and row[_RESULT] for row in rows.values()):
            return None
        name = stored["commit_hash"][:_SHORT]
        return Commit(
            name,
            datetime.fromtimestamp(stored["date"] / 1000, UTC),
            changes.get(name, ""),
            stored["params"]["cpu"],
            ",".join(sorted({row[_VERSION] for row in rows.values()})),
            file.relative_to(folder).as_posix(),
            {metric: float(row[_RESULT][0]) for metric, row in rows.items()},
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise _no_results(file) from error


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (UnicodeDecodeError, ValueError) as error:
        raise _no_results(file) from error


def _no_results(file: Path) -> UserError:
    return UserError(f"{file} is no file of asv's results. Copy it again from results/asv/, or remove it")
