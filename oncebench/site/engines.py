"""The tables of engines as data: the rows of `report.tables.engines`, each with its commands, and where they ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from oncebench.report.tables.engines import by_machine, headings, lines
from oncebench.site.stored import ENGINES, Stored


def as_json(others: Sequence[Stored]) -> list[dict[str, Any]]:
    """The tables, one per machine, each with its files and the versions in them."""
    tables = []
    for machine, reports in by_machine(each.report for each in others).items():
        versions: dict[str, list[str]] = {}
        here = set(map(id, reports))
        for each in others:
            if id(each.report) in here:
                commit = each.report.get("environment", {}).get("commit") or "unknown"
                versions.setdefault(f"{ENGINES}/{each.file}", []).append(commit)
        tables.append({
            "machine": machine,
            "headings": list(headings(reports)[2:-1]),
            "rows": [asdict(line) for line in lines(reports)],
            "files": [{"file": file, "versions": list(dict.fromkeys(found))} for file, found in versions.items()],
        })  # fmt: skip
    return tables
