"""The tables of engines as data: the rows of `report.tables.engines`, each with its commands, and where they ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from oncebench.report.tables.engines import by_place, headings, lines, notes_on
from oncebench.site.stored import ENGINES, Stored


def as_json(others: Sequence[Stored]) -> list[dict[str, Any]]:
    """The tables, one per machine and version, each with its notes and its files."""
    tables = []
    for place, reports in by_place(each.report for each in others).items():
        here = set(map(id, reports))
        tables.append({
            "place": place,
            "headings": list(headings(reports)[2:-1]),
            "rows": [asdict(line) for line in lines(reports)],
            "notes": notes_on(reports),
            "files": list(dict.fromkeys(f"{ENGINES}/{each.file}" for each in others if id(each.report) in here)),
        })  # fmt: skip
    return tables
