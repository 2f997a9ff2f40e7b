"""The one stable function that everything else calls: run a cell, judge it, report it.

`benchmarks/` calls `measure` and nothing deeper, so that old commits can be measured by a newer suite and the other
way round.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oncebench.errors import ExitCode
from oncebench.faults.disk import BROKER, CHECKPOINT, OUTPUT
from oncebench.lab.lab import Lab
from oncebench.live.status import Show
from oncebench.observe.resources import Use
from oncebench.record import FACTS, Record
from oncebench.report.environment import environment
from oncebench.report.report import FILE, make_report, write_report
from oncebench.report.schema import Report
from oncebench.run.cell import Ran, run_cell
from oncebench.scenario.cell import Cell
from oncebench.scenario.supports import expected_codes
from oncebench.servers.sink_servers import SERVICES
from oncebench.sinks.registry import suite_sinks

LATENCIES = "latencies.npy"  # every row's times, beside the report
# What a run leaves that the audit does not need; deleted unless the user wants to keep it.
BULKY = ("kafka", "postgres", "pravega", CHECKPOINT, OUTPUT, BROKER)


def measure(
    cell: Cell, lab: Lab, folder: Path, show: Show | None = None, interrupted: threading.Event | None = None
) -> Report:
    """Runs a cell in an open work dir and returns its report, which is also in `folder/report.json`."""
    ran = run_cell(cell, lab, folder, show or (lambda _seen: None), interrupted or threading.Event())
    used = [name for name in suite_sinks()[cell.sink].traits.services if name in lab.theirs]
    theirs = {SERVICES[name].variable: lab.theirs[name] for name in used}
    facts = {"run": ran.run, "topics": ran.topics.as_json(), "kafka": ran.kafka, "java": lab.java.version,
             "theirs": theirs, "durability": ran.durability, "interrupted": ran.interrupted,
             "checkpoint_written": ran.checkpoint_written, "measured_from_us": ran.measured_from_us,
             "environment": environment()}  # fmt: skip
    kept = {**facts, "uses": {name: use.as_json() for name, use in ran.uses.items()}}
    (folder / FACTS).write_text(json.dumps(kept, indent=1))
    return _report(Record.load(folder), cell, ran, facts)


def judge_again(folder: Path) -> Report:
    """Judges a stored run anew from its record.

    Raises:
        RecordError: the folder is none, is damaged, or was written by a newer oncebench.
    """
    record = Record.load(folder)
    described = dict(record.cell["cell"])
    cell = Cell(**{**described, "faults": tuple(described["faults"])})
    stored = dict(record.facts or {"run": record.cell["run"]})
    uses = {name: Use(**use) for name, use in stored.pop("uses", {}).items()}
    return make_report(record, cell, uses, stored)


def exit_code(reports: Sequence[Report]) -> int:
    """0 if every promise was kept, 3 if one was broken, 1 if one could not be tested.

    What is broken on purpose must be broken, and by what it is there to show.
    """
    words = {_as_expected(report) for report in reports}
    return ExitCode.BROKEN if "broken" in words else ExitCode.KEPT if words <= {"kept"} else ExitCode.ERROR


def _as_expected(report: Report) -> str:
    wanted = expected_codes(report)
    if not wanted:
        return str(report["verdict"])
    return "kept" if report["verdict"] == "broken" and wanted <= set(report["anomalies"]) else "not shown"


def _report(record: Record, cell: Cell, ran: Ran, facts: Mapping[str, Any]) -> Report:
    report = make_report(record, cell, ran.uses, facts, record.path / LATENCIES)
    write_report(report, record.path / FILE)
    return report
