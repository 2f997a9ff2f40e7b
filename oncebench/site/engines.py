"""The table of engines as data: the rows of `report.tables.engines`, each with its commands, and where they ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from oncebench.report.tables.engines import headings, lines
from oncebench.site.stored import ENGINES, Stored


def as_json(others: Sequence[Stored]) -> dict[str, Any] | None:
    """The table, and one line per series: its file, version and machine; None without a series."""
    reports = [each.report for each in others]
    if not reports:
        return None
    series = {each.file: _origin(each) for each in others}
    return {
        "headings": list(headings(reports)[2:-1]),
        "rows": [asdict(line) for line in lines(reports)],
        "series": [{"file": f"{ENGINES}/{file}", "origin": origin} for file, origin in series.items()],
    }


def _origin(stored: Stored) -> str:
    """The version and machine of a report."""
    found = stored.report.get("environment", {})
    return f"version {found.get('commit') or 'unknown'}, {found.get('cores')} cores, {found.get('cpu') or 'unknown'}"
