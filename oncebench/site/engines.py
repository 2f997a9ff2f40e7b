"""The tables of engines as data: the rows of `report.tables.engines`, with their commands.

Each table also names where its runs ran.

Promise: every figure is that of the table. Only the order of the columns differs: a phone shows the first columns only,
so these are the ones to compare first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from oncebench.report.schema import Report
from oncebench.report.tables.engines import by_place, headings, lines, notes_on
from oncebench.site.stored import ENGINES, Stored

# Places in the table: CPU flat out, p99, lost, duplicated, events/s, p50, CPU of the steady load, kills, recovery.
_ORDER = (1, 3, 7, 8, 0, 2, 4, 5, 6)
_UNITS = {"lost": "rows lost", "duplicated": "rows duplicated"}
# The components of an engine that readers know by name.
_COMPONENTS = {
    "pyspark": "Spark", "flink-runtime": "Flink", "kafka-streams": "Kafka Streams", "flink-connector-kafka":
    "Flink's Kafka connector", "kafka-clients": "Kafka's clients",
}  # fmt: skip


def as_json(others: Sequence[Stored]) -> list[dict[str, Any]]:
    """The tables, one per machine and version, each with its notes and its files."""
    tables: list[dict[str, Any]] = []
    for place, reports in by_place(each.report for each in others).items():
        here = set(map(id, reports))
        tables.append({
            "place": place,
            "headings": [_UNITS.get(name, name) for name in _in_order(headings(reports)[2:-1])],
            "rows": [{**asdict(line), "figures": _in_order(line.figures)} for line in lines(reports)],
            "versions": _versions(reports),
            "notes": notes_on(reports),
            "files": list(dict.fromkeys(f"{ENGINES}/{each.file}" for each in others if id(each.report) in here)),
        })  # fmt: skip
    return tables


def _in_order(values: Sequence[str]) -> list[str]:
    return [values[at] for at in _ORDER]


def _versions(reports: Sequence[Report]) -> str:
    """The versions of the engines and of their clients: `Flink 2.2.1, Spark 4.2.0`."""
    found: dict[str, set[str]] = {}
    for report in reports:
        facts = report.get("environment", {})
        theirs = facts.get("engine", {}).get("settings", {}).get("versions", {})
        for name, version in {**facts.get("versions", {}), **theirs}.items():
            if name in _COMPONENTS:
                found.setdefault(name, set()).add(version)
    return ", ".join(
        f"{_COMPONENTS[name]} {' and '.join(sorted(found[name]))}" for name in _COMPONENTS if name in found
    )
