"""Measures one cell: runs it, judges it, and returns its report.

Every command and every series of cells calls `measure`. `benchmarks/` reaches it through `oncebench.bench`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oncebench.errors import ExitCode
from oncebench.faults.disk import BROKER, CHECKPOINT, OUTPUT
from oncebench.lab.engine import SPARK, Engine
from oncebench.lab.lab import Lab
from oncebench.live.status import JUDGING, RunStatus, Show
from oncebench.observe.resources import Use
from oncebench.record import FACTS, Record, RecordError
from oncebench.record.digests import write_digests
from oncebench.report.environment import environment
from oncebench.report.report import FILE, make_report, write_report
from oncebench.report.schema import Report
from oncebench.run.cell import During, RunResult, run_cell
from oncebench.scenario.cell import Cell
from oncebench.scenario.supports import expected_codes
from oncebench.servers.sink_servers import services
from oncebench.sinks.registry import PACKAGES, suite_sinks

LATENCIES = "latencies.npy"  # the times of every row, in the same folder as the report
# Files of a run that the audit does not need. They are deleted unless the user keeps them.
BULKY = ("kafka", *services(), CHECKPOINT, OUTPUT, BROKER)


def measure(
    cell: Cell,
    lab: Lab,
    folder: Path,
    show: Show | None = None,
    interrupted: threading.Event | None = None,
    engine: Engine = SPARK,
    during: During | None = None,
) -> Report:
    """Runs a cell in an open work dir; returns its report, also stored in `report.json`.

    Args:
        during: called with the pipeline while it is measured, see `run_cell`.
    """
    show = show or (lambda _status: None)
    result = run_cell(cell, lab, folder, show, interrupted or threading.Event(), engine, during)
    show(RunStatus(JUDGING))
    used = [name for name in suite_sinks()[cell.sink].traits.services if name in lab.theirs]
    theirs = {services()[name].variable: lab.theirs[name] for name in used}
    package = PACKAGES[cell.sink].distribution if cell.sink in PACKAGES else None
    facts = {"run": result.run, "topics": result.topics.as_json(), "kafka": result.kafka, "java": lab.java.version,
             "theirs": theirs, "durability": result.durability, "interrupted": result.interrupted,
             "checkpoint_written": result.checkpoint_written, "measured_from_us": result.measured_from_us,
             "measured_until_us": result.measured_until_us, "clock_moved_us": result.clock_moved_us,
             "engine": result.engine, "environment": environment(package)}  # fmt: skip
    kept = {**facts, "digests": True, "uses": {name: use.as_json() for name, use in result.uses.items()}}
    (folder / FACTS).write_text(json.dumps(kept, indent=1))
    write_digests(folder)
    return _report(Record.load(folder), cell, result, facts)


def judge_again(folder: Path) -> Report:
    """Judges a stored run again from its record.

    Raises:
        RecordError: the folder holds no run, is damaged, or was written by a newer oncebench.
    """
    record = Record.load(folder)
    described = dict(record.cell["cell"])
    lists = {name: tuple(value) for name, value in described.items() if isinstance(value, list)}
    cell = Cell(**{**described, **lists})
    stored = dict(record.facts or {"run": record.cell["run"]})
    uses = {name: Use(**use) for name, use in stored.pop("uses", {}).items()}
    try:
        return make_report(record, cell, uses, stored)
    except Exception as error:
        if record.altered:  # damaged values may be values that no audit can count
            raise RecordError(f"{folder} cannot be judged. {record.altered[0]}") from error
        raise


def exit_code(reports: Sequence[Report]) -> int:
    """Returns 0 if every guarantee was kept, 3 if one was broken, 1 if one could not be tested.

    A deliberately broken sink counts as kept if it is broken by every anomaly that it exists to demonstrate.
    """
    outcomes = {_outcome(report) for report in reports}
    return ExitCode.BROKEN if "broken" in outcomes else ExitCode.KEPT if outcomes <= {"kept"} else ExitCode.ERROR


def _outcome(report: Report) -> str:
    wanted = expected_codes(report)
    if not wanted:
        return str(report["verdict"])
    return "kept" if report["verdict"] == "broken" and wanted <= set(report["anomalies"]) else "not shown"


def _report(record: Record, cell: Cell, result: RunResult, facts: Mapping[str, Any]) -> Report:
    report = make_report(record, cell, result.uses, facts, record.path / LATENCIES)
    write_report(report, record.path / FILE)
    return report
