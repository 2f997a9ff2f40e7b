"""Where a report comes from, and how to run its cell again.

The origin is the generator, the machine, the versions and the settings.

Promise: pure functions of a record and of the facts that its run stored. No path of the run folder is in a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oncebench.audit.verdict import not_finished
from oncebench.lab.engine import SPARK
from oncebench.record import Record
from oncebench.report.environment import environment
from oncebench.report.faults import without_folder
from oncebench.report.measures.generators import generator_section
from oncebench.scenario.cell import Cell
from oncebench.scenario.reproduce import Program, reproduce


def origin(record: Record, cell: Cell, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The section of a report; `facts` as in `make_report`."""
    engine = _engine(facts)
    return {
        "generator": generator_section(record),
        "topics": _without_folder(facts.get("topics"), record.path),
        "environment": {
            **(facts.get("environment") or environment()),
            "java": facts.get("java"),
            "kafka": facts.get("kafka"),
            "theirs": facts.get("theirs") or {},
            "durability": facts.get("durability"),
            "engine": {name: engine[name] for name in ("name", "settings")},
        },
        "config": {name: value for name, value in cell.as_json().items() if name not in engine["unused"]},
        "seed": cell.seed,
        "interrupted": bool(facts.get("interrupted")),
        "not_finished": not_finished(record),
        "reproduce": _reproduce(cell, facts),
    }


def _engine(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The engine of the run; a run folder without one is of Spark."""
    found: Mapping[str, Any] = facts.get("engine") or SPARK.as_json()
    return found


def _without_folder(topics: Mapping[str, str] | None, folder: Path) -> dict[str, str] | None:
    return None if topics is None else {name: without_folder(folder, where) for name, where in topics.items()}


def _reproduce(cell: Cell, facts: Mapping[str, Any]) -> str:
    """The command that runs the cell again, with the addresses of the user's servers."""
    kafka, engine = facts.get("kafka") or {}, _engine(facts)
    program = Program(tuple(engine["program"]), tuple(engine["unused"]), engine.get("defaults", {}))
    return reproduce(cell, program, None if kafka.get("own", True) else kafka, facts.get("theirs") or {})
