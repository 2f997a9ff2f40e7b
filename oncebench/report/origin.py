"""Where a report comes from: the generator, the machine and versions, the settings, and how to run the cell again.

Promise: pure functions of a record and of the facts that its run stored. No path of the run folder is in a report.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from oncebench.lab.engine import SPARK
from oncebench.record import Record
from oncebench.report.environment import environment
from oncebench.report.faults import without_folder
from oncebench.report.measures.generators import generator_section
from oncebench.scenario.cell import Cell


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
    kafka = facts.get("kafka") or {}
    theirs = [f"{variable}={shlex.quote(where)}" for variable, where in (facts.get("theirs") or {}).items()]
    given = {"--bootstrap-servers": kafka["bootstrap_servers"]} if not kafka.get("own", True) else {}
    given |= {"--kafka-conf": kafka["kafka_conf"]} if kafka.get("kafka_conf") else {}
    options = [*given.items(), *(("--kafka-set", f"{name}={value}") for name, value in kafka.get("kafka", {}).items())]
    servers = [f"{option} {shlex.quote(str(value))}" for option, value in options]
    engine = _engine(facts)
    default = Cell(cell.sink, cell.guarantee, cell.variant)
    # The program of another engine has no option for a setting that it does not use.
    used = replace(cell, **{name: getattr(default, name) for name in engine["unused"]})
    return " ".join([*theirs, used.reproduce(engine["program"]), *servers])
