"""The report of one run: what outsiders rely on, as one JSON object.

Promise: every figure is computed from the record of the run that the report describes; what was not measured is
null, never a guess. `schema` is raised when a field changes its meaning; a newer report is refused, not misread.

Schema history: 1, the first; 2, batches, the sink's times, checkpoint and prices count from the end of the warm-up
on, as latencies did, and no more from the load's start; 3, prices count until all is drained, and what a process used
once; a batch ends when Spark says, and not when its line was written; a millisecond's stamp stands for its middle.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from oncebench.audit.agreement import Agreement, compare, counts_of
from oncebench.audit.anomalies import CATALOGUE
from oncebench.audit.exits import deaths
from oncebench.audit.python.attribution import by_batch, charged, uncharged
from oncebench.audit.python.audit import Findings, Sightings, audit, first_sightings
from oncebench.audit.python.latency import Distribution
from oncebench.audit.python.model import expected_output
from oncebench.audit.sql.count import second_audit
from oncebench.audit.verdict import judge
from oncebench.errors import UserError
from oncebench.observe.resources import Use
from oncebench.record import Record
from oncebench.record.earlier import current_cell
from oncebench.record.streams import refuse_newer
from oncebench.record.traits import traits_of
from oncebench.record.validation import require
from oncebench.report.environment import environment
from oncebench.report.faults import faults_of, without
from oncebench.report.measures.checkpoint import (
    Progress,
    batch_costs,
    checkpoint_costs,
    cores_of,
    per_batch,
    sink_costs,
    split,
)
from oncebench.report.measures.price import needed, per_million, price, watching_share
from oncebench.report.measures.recovery import Watched, of_run, recoveries
from oncebench.report.measures.timeline import events_after, steadiness, timeline
from oncebench.report.results import whole_lines
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell, counts_rows

SCHEMA = 3
FILE = "report.json"
EVENTS_PER_ROW = 5


def make_report(
    record: Record, cell: Cell, uses: Mapping[str, Use], facts: Mapping[str, Any], latencies: Path | None = None
) -> dict[str, Any]:
    """Judges a record and writes down everything that was measured.

    Args:
        record: the run folder, loaded.
        cell: what was run.
        uses: what each component used; empty when a stored run is judged again.
        facts: `run`, `topics`, `kafka`, `theirs`, `java`, and `interrupted` of the run; `durability`, if it was asked;
            `checkpoint_written`, if it was counted; `measured_from_us`, from when on `uses` and that were (older runs:
            from the load's start); `environment`, the machine and versions it ran on (older runs: this one's).
        latencies: where to keep every single one: an array [rows, 3] of int64, epoch µs, in the order of row ids: when
            the row's session was scheduled to end, when the row was written (0: the sink does not tell), when it was
            first seen.
    """
    expected = expected_output(record.input.table)
    findings = audit(record, expected=expected, warmup_s=cell.warmup_s)
    second = second_audit(record.path)
    agreement = Agreement(trouble=second.trouble) if second.trouble else compare(counts_of(findings), second.counts)
    of_batches = by_batch(record, expected)
    verdict = judge(findings, record, cell, agreement.reasons, of_batches)
    progress = record.progress.items
    seen = first_sightings(record, expected)
    if latencies is not None:
        written_us = np.zeros_like(seen.seen_us) if seen.written_us is None else seen.written_us
        np.save(latencies, np.column_stack((seen.ended_us, written_us, seen.seen_us)))
    after_us = record.plan.started_us + round(cell.warmup_s * 1e6)
    latency_ms = seen.latency_us[seen.ended_us >= after_us] / 1e3
    faults = faults_of(record)
    acted = [fault for fault in faults if fault["hit"]]
    telling = counts_rows(cell.variant)
    watched = Watched.of(
        record.timeline.items, progress, seen.seen_us, seen.latency_us, record.plan.started_us, telling
    )
    marks = recoveries(acted, watched)
    summary = record.load_status.items[-1].get("summary", {}) if record.load_status.items else {}
    measured_from_us = facts.get("measured_from_us", 0)
    events = events_after(record, measured_from_us)
    batches = Progress(progress, 0 if cell.rate == "max" else after_us, cores_of(cell.master))
    paid = price(uses, events, needed(traits_of(record.cell, cell.sink).services))
    shown = timeline(record, seen)
    return {
        "schema": SCHEMA,
        "run": facts["run"],
        "cell": {"sink": cell.sink, "guarantee": cell.guarantee, "variant": cell.variant, "faults": list(cell.faults),
                 "random_kills": cell.random_kills, "open_sessions": cell.open_sessions},
        "verdict": verdict.word,
        "broken_by": sorted(verdict.codes),
        "reasons": [without(record.path, reason) for reason in verdict.reasons],
        "auditors": agreement.to_json(),
        "anomalies": findings.counts(),
        **_explained(findings),
        "sessions": dict(findings.sessions),
        "rows": dict(findings.rows),
        "events": {**findings.events, "invalid_by_reason": dict(findings.invalid)},
        "throughput": _throughput(seen.seen_us[seen.ended_us >= record.plan.started_us], record, cell),
        "latency_ms": findings.latency.visible.to_json(),
        "visibility_gap_ms": findings.latency.gap.to_json(),
        "append_latency_ms": _append(seen, after_us).to_json(),
        "latency_curve_ms": Distribution.curve(latency_ms),
        "torn_seen_by_observer": findings.latency.torn_sessions,
        "batches": {**batch_costs(batches), "split_ms": split(batches)},
        "checkpoint": {**checkpoint_costs(batches, record.path / "checkpoint"),
                       "per_million_events": per_million(facts.get("checkpoint_written"), events),
                       "per_batch": per_batch(facts.get("checkpoint_written"), progress, measured_from_us)},
        "sink_ms": sink_costs(batches),
        "resources": {name: use.as_json() for name, use in sorted(uses.items())},
        "cpu_s_per_million_events": None if paid is None else paid["cpu_s"],
        "price": paid,
        "watching_share": watching_share(uses),
        "timeline": shown,
        "steadiness": steadiness(shown, cell.rate, cell.warmup_s, _load_s(record)),
        "recovery": of_run(acted, marks, watched).as_json(),
        "deaths": _died(record),
        "faults": [
            {**fault, "recovery": None if mark is None else mark.as_json()}
            for fault, mark in zip_longest(charged(faults, of_batches), marks)
        ],
        "uncharged": uncharged(faults, of_batches),
        "generator": {"lateness_ms": summary.get("lateness_ms"), "sent_share": summary.get("sent_share"),
                      "events_per_s": summary.get("events_per_s")},
        "topics": _from_here(facts.get("topics"), record.path),
        "environment": {**(facts.get("environment") or environment()), "java": facts.get("java"),
                        "kafka": facts.get("kafka"), "theirs": facts.get("theirs") or {},
                        "durability": facts.get("durability")},
        "config": cell.as_json(),
        "seed": cell.seed,
        "interrupted": bool(facts.get("interrupted")),
        "reproduce": _again(cell, facts),
    }  # fmt: skip


def _explained(findings: Findings) -> dict[str, Any]:
    """Of each code that occurred: its rule, its count by kind, and examples."""
    occurred = {code: found for code, found in findings.anomalies.items() if found.count}
    return {
        "rules": {code: CATALOGUE[code].rule for code in occurred},
        "splits": {code: dict(found.split) for code, found in occurred.items() if found.split},
        "examples": {code: list(found.examples) for code, found in occurred.items()},
    }


def _append(seen: Sightings, from_us: int) -> Distribution:
    """From the scheduled end of a session to when its rows were written, of a sink that tells it."""
    if seen.written_us is None:
        return Distribution()
    return Distribution.of((seen.written_us - seen.ended_us)[seen.ended_us >= from_us] / 1e3)


def _died(record: Record) -> dict[str, Any]:
    told = deaths(record.timeline.items, record.hits.items).as_json()
    each = [{**death, "why": without(record.path, death["why"])} for death in told["each_unasked"]]
    return {**told, "each_unasked": each}


def _load_s(record: Record) -> float:
    scheduled = record.ledger.scheduled_us
    return float(scheduled.max() - record.plan.started_us) / 1e6 if len(scheduled) else 0.0


def _from_here(topics: Mapping[str, str] | None, folder: Path) -> dict[str, str] | None:
    return None if topics is None else {name: without(folder, where) for name, where in topics.items()}


def _again(cell: Cell, facts: Mapping[str, Any]) -> str:
    """The command that runs the cell again, with where the servers are that the suite did not start."""
    kafka = facts.get("kafka") or {}
    theirs = [f"{variable}={shlex.quote(where)}" for variable, where in (facts.get("theirs") or {}).items()]
    servers = [] if kafka.get("own", True) else ["--bootstrap-servers", shlex.quote(str(kafka["bootstrap_servers"]))]
    return " ".join([*theirs, cell.reproduce(), *servers])


def write_report(report: Mapping[str, Any], path: Path) -> None:
    """Writes a report whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(report, indent=1, default=_plain))
    temporary.replace(path)


def read_reports(path: Path) -> list[dict[str, Any]]:
    """The reports in a report.json, in a .jsonl file, or in the runs/*.jsonl of a results folder.

    Raises:
        UserError: nothing is there, it is damaged, or it was written by a newer oncebench.
    """
    files = sorted((path / "runs").glob("*.jsonl")) if path.is_dir() else [path]
    if path.is_dir() and (path / FILE).exists():
        files = [path / FILE]
    reports: list[dict[str, Any]] = []
    for file in files:
        reports += [report for _, report in numbered(file)]
    if not reports:
        raise UserError(f"{path} holds no report; `oncebench compare` and `oncebench run --json PATH` write some")
    return reports


def numbered(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """The reports of a file, each with the number of its line, from 1. Rows that older ones count as made again where
    nothing told of any (always 0) are null, as in newer ones.

    Raises:
        UserError: it is damaged, or was written by a newer oncebench.
    """
    try:
        text = file.read_text("utf-8")
        texts = whole_lines(text) if file.suffix == ".jsonl" else [text]
        found = [(number, json.loads(line)) for number, line in enumerate(texts, 1) if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is no report ({error}); take it from a sound copy, or run the cell again") from error
    for _, report in found:
        if not isinstance(report, dict) or "schema" not in report or "verdict" not in report:
            raise UserError(f"{file} is no report of oncebench: it has no schema and verdict")
        refuse_newer(report["schema"], file, SCHEMA)
        for name in {"cell", "config"} & report.keys():
            report[name] = current_cell(report[name])
        require(report, Report, file)
        _take_back(report)
    return found


def _take_back(report: dict[str, Any]) -> None:
    """What an older report could not know: how many rows were made again of a variant that tells no rows."""
    cell = report["cell"]
    if not counts_rows(cell["variant"]):
        for marks in (report["recovery"], *(fault.get("recovery") for fault in report["faults"])):
            if marks:
                marks["replayed_rows"] = None


def _throughput(seen_us: Any, record: Record, cell: Cell) -> dict[str, float | None]:
    """Events and sessions whose rows became visible, per second, from the start of the load (or, when the load was
    there first, from the start of the query) to the last new row."""
    # A life that only took open sessions into the state was there before the load.
    running = [line["t_us"] for line in record.progress.items
               if line["kind"] == "running" and line["t_us"] >= record.plan.started_us]  # fmt: skip
    start_us = (running[0] if running else None) if cell.rate == "max" else record.plan.started_us
    if len(seen_us) == 0 or start_us is None or int(np.max(seen_us)) <= start_us:
        return {"events_per_s": None, "sessions_per_s": None}
    seconds = (int(np.max(seen_us)) - start_us) / 1e6
    per_s = len(seen_us) * EVENTS_PER_ROW / seconds
    return {"events_per_s": round(per_s, 1), "sessions_per_s": round(per_s / 100, 2)}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
