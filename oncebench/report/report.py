"""The report of one run as one JSON object, a stable interface for other programs.

Promise: every figure is computed from the record of the run that the report describes. A figure that was not measured
is null, never a guess. `schema` rises when a field changes its meaning. A newer report is refused, not misread.

The schemas:

- 1: latencies count from the end of the warm-up on. Batches, the sink's times, checkpoint and prices count from the
  start of the load on.
- 2: batches, the sink's times, checkpoint and prices count from the end of the warm-up on too.
- 3: prices count until the load is drained, and each process's use counts once. A batch ends at the time that Spark
  reports, not when its line was written. A time stamp in ms stands for the middle of its millisecond.
- 4: throughput, batches and prices of a flat-out load count from the end of the warm-up on. It begins with the query.
- 5: the processor time of a flat-out load counts until its last row is visible. Before, it counted until the pipeline
  had reported everything as read. For Spark these are the same moment within 2 %. Flink reports up to two checkpoints
  later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import numpy as np

from oncebench.audit.agreement import Agreement, compare, counts_of
from oncebench.audit.anomalies import CATALOGUE
from oncebench.audit.clock import why_no_times
from oncebench.audit.exits import exits_of
from oncebench.audit.python.attribution import Excuses, by_batch, charged, excuses, uncharged
from oncebench.audit.python.audit import Findings, Joined, Sightings, audit, first_sightings
from oncebench.audit.python.latency import Distribution
from oncebench.audit.python.model import Expected
from oncebench.audit.python.workloads.answers import answer_of
from oncebench.audit.sql.count import sql_audit
from oncebench.audit.verdict import NO_EXCUSES, Facts, Judgement, decide, facts_of
from oncebench.delivery.contract import GUARANTEES
from oncebench.errors import UserError
from oncebench.observe.resources import Use
from oncebench.record import Record
from oncebench.record.earlier import current_cell
from oncebench.record.json_lines import whole_lines
from oncebench.record.schema import BATCH
from oncebench.record.traits import traits_of
from oncebench.record.validation import refuse_newer, require
from oncebench.report.faults import faults_of, without_folder
from oncebench.report.measures.bottleneck import of_run as bottleneck_of_run
from oncebench.report.measures.checkpoint import (
    Progress,
    batch_costs,
    checkpoint_costs,
    cores_of,
    per_batch,
    sink_costs,
    split,
)
from oncebench.report.measures.price import needed, per_million, pipeline_cpu_s, price, watching_share
from oncebench.report.measures.recovery import Observed, of_run, recoveries
from oncebench.report.measures.throughput import throughput
from oncebench.report.measures.timeline import events_after, steadiness, timeline
from oncebench.report.measures.untimed import without_times
from oncebench.report.origin import origin
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell, counts_rows

SCHEMA = 5
FILE = "report.json"


def make_report(
    record: Record, cell: Cell, uses: Mapping[str, Use], facts: Mapping[str, Any], latencies: Path | None = None
) -> Report:
    """Judges a record and reports everything that was measured.

    Args:
        record: the run folder, loaded.
        cell: what was run.
        uses: what each component used; empty when a stored run is judged again.
        facts: `run`, `topics`, `kafka`, `theirs`, `java` and `interrupted` of the run. Optional: `durability`,
            `clock_moved_us` (older runs: not known), `checkpoint_written`, `measured_from_us` (from when on `uses` and
            `checkpoint_written` count; older runs: from the start of the load), `measured_until_us` (until when `uses`
            count; 0 and older runs: until the load was drained), `environment` (the machine and versions of the run;
            older runs: this machine).
        latencies: where to store each single latency: an array [rows, 3] of int64, epoch µs, in the order of row ids.
            The columns: when the row's session was scheduled to end, when the row was written (0: the sink does not
            report it, or by the clock of the user's Kafka), when it was first seen. Not stored if the clock was moved.
    """
    run = _Run.of(record, cell, uses, facts)
    moved_us = facts.get("clock_moved_us")
    report = {
        "schema": SCHEMA,
        "run": facts["run"],
        **_verdict_section(run),
        **_counts_section(run),
        **_speed_section(run),
        **_batch_section(run),
        **_price_section(run),
        **_fault_section(run),
        **origin(record, cell, facts),
        "clock_moved_us": moved_us,
    }
    if why_no_times(moved_us):
        return cast(Report, without_times(report))
    if latencies is not None:
        _store_latencies(run.seen, latencies)
    return cast(Report, report)


@dataclass(frozen=True)
class _Run:
    """A judged record: everything that the sections of the report share."""

    record: Record
    cell: Cell
    uses: Mapping[str, Use]
    facts: Mapping[str, Any]
    expected: Expected
    findings: Findings
    agreement: Agreement
    batches: Mapping[int, tuple[int, int]]  # (lost, duplicated) rows by batch
    excuses: Mapping[str, Excuses]  # by guarantee
    basis: Facts
    judgement: Judgement
    seen: Sightings

    @classmethod
    def of(cls, record: Record, cell: Cell, uses: Mapping[str, Use], facts: Mapping[str, Any]) -> _Run:
        """Audits the record with both auditors and judges it."""
        sql = sql_audit(record.path)  # the first, so that its memory is free again
        expected = answer_of(record)
        joined = Joined.of(record, expected)
        findings = audit(record, expected=expected, joined=joined, warmup_s=cell.warmup_s)
        agreement = Agreement(trouble=sql.trouble) if sql.trouble else compare(counts_of(findings), sql.counts)
        batches = by_batch(record, expected, joined)
        # The guarantee of a user's own sink is not known, so a certificate judges the run under each guarantee.
        asked = GUARANTEES if cell.black_box else (cell.guarantee,)
        excused = {guarantee: excuses(record, expected, guarantee, joined) for guarantee in asked}
        basis = facts_of(findings, record, cell, agreement.reasons, excused[cell.guarantee])
        seen = first_sightings(record, expected, joined)
        if _stamped_elsewhere(record, facts):
            seen = replace(seen, written_us=None)
        judgement = decide(findings.counts(), basis)
        return cls(record, cell, uses, facts, expected, findings, agreement, batches, excused, basis, judgement, seen)

    @property
    def started_us(self) -> int:
        """The time at which the load began."""
        return self.record.plan.started_us

    @property
    def warm_us(self) -> int:
        """The time at which the warm-up ended."""
        return self.started_us + round(self.cell.warmup_s * 1e6)

    @property
    def measured_from_us(self) -> int:
        """From when on `uses` and the checkpoint's writes count."""
        start: int = self.facts.get("measured_from_us", 0)
        return start

    @property
    def events(self) -> int:
        """The input events that `uses` were spent on."""
        return events_after(self.record, self.measured_from_us)


def _stamped_elsewhere(record: Record, facts: Mapping[str, Any]) -> bool:
    """Whether the user's Kafka wrote the rows' times (its clocks may not match the observer's)."""
    own: bool = (facts.get("kafka") or {}).get("own", True)
    return not own and bool(record.ends.get("output_is_log", True))


def _verdict_section(run: _Run) -> dict[str, Any]:
    cell, judgement = run.cell, run.judgement
    return {
        "cell": {
            "sink": cell.sink,
            "guarantee": cell.guarantee,
            "variant": cell.variant,
            "faults": list(cell.faults),
            "random_kills": cell.random_kills,
            "open_sessions": cell.open_sessions,
        },
        "verdict": str(judgement.verdict),
        "broken_by": sorted(judgement.codes),
        "reasons": [without_folder(run.record.path, reason) for reason in judgement.reasons],
        "auditors": run.agreement.as_json(),
        **(_for_each_guarantee(run) if cell.black_box else {}),
    }


def _for_each_guarantee(run: _Run) -> dict[str, Any]:
    """What a certificate needs to judge the run under each guarantee, besides the counts."""
    basis, no_times = run.basis, why_no_times(run.facts.get("clock_moved_us"))
    questions = {"weak": basis.weak, "undecided": basis.undecided, "not_exercised": basis.not_exercised}
    return {
        "open_questions": {
            name: [without_folder(run.record.path, reason) for reason in reasons] for name, reasons in questions.items()
        },
        "excuses": {guarantee: asdict(NO_EXCUSES if no_times else found) for guarantee, found in run.excuses.items()},
    }


def _counts_section(run: _Run) -> dict[str, Any]:
    """Anomalies, sessions, rows and events."""
    findings = run.findings
    primed_rows = int(np.count_nonzero(run.expected.ended_at < run.started_us))
    return {
        "anomalies": findings.counts(),
        **_anomaly_details(findings),
        "sessions": {**findings.sessions, "primed": primed_rows // run.expected.rows},
        "rows": dict(findings.rows),
        "events": {**findings.events, "invalid_by_reason": dict(findings.invalid)},
    }


def _anomaly_details(findings: Findings) -> dict[str, Any]:
    """The rule, the count by kind and the examples of each code that occurred."""
    occurred = {code: found for code, found in findings.anomalies.items() if found.count}
    return {
        "rules": {code: CATALOGUE[code].rule for code in occurred},
        "splits": {code: dict(found.split) for code, found in occurred.items() if found.split},
        "examples": {code: list(found.examples) for code, found in occurred.items()},
    }


def _speed_section(run: _Run) -> dict[str, Any]:
    """Throughput, latencies, and the run second by second."""
    seen, latency = run.seen, run.findings.latency
    measured = seen.ended_us >= run.warm_us
    append = (
        Distribution()
        if seen.written_us is None
        else Distribution.of((seen.written_us - seen.ended_us)[measured] / 1e3)
    )
    steps = timeline(run.record, seen)
    of_load = seen.ended_us >= run.started_us
    events = int(np.broadcast_to(seen.events, of_load.shape)[of_load].sum())
    return {
        "throughput": throughput(seen.seen_us[of_load], run.record, run.cell, run.measured_from_us, events),
        "latency_ms": latency.visible.as_json(),
        "visibility_gap_ms": (Distribution() if seen.written_us is None else latency.gap).as_json(),
        "append_latency_ms": append.as_json(),
        "latency_curve_ms": Distribution.curve(seen.latency_us[measured] / 1e3, latency.visible.unseen),
        "torn_seen_by_observer": latency.torn_sessions,
        "timeline": steps,
        "steadiness": steadiness(steps, run.cell, _load_s(run.record)),
    }


def _batch_section(run: _Run) -> dict[str, Any]:
    """Batches, checkpoint, and the steps of the protocol."""
    written = run.facts.get("checkpoint_written")
    lines = run.record.progress.items
    from_us = run.measured_from_us if run.cell.rate == "max" else run.warm_us
    progress = Progress(lines, from_us, cores_of(run.cell.master, run.cell.workers))
    parts = split(progress)
    limit = bottleneck_of_run(run.record, run.cell, run.uses, run.facts, parts)
    return {
        "batches": {**batch_costs(progress), "split_ms": parts},
        "bottleneck": None if limit is None else limit.as_json(),
        "checkpoint": {
            **checkpoint_costs(progress, run.record.path / "checkpoint"),
            "per_million_events": per_million(written, run.events),
            "per_batch": per_batch(written, lines, run.measured_from_us),
        },
        "sink_ms": sink_costs(progress),
    }


def _price_section(run: _Run) -> dict[str, Any]:
    # Executors on other machines are not measured, and half a price would look cheap.
    uses = run.uses if run.cell.on_this_machine else {}
    paid = price(uses, run.events, _servers(run))
    return {
        "resources": {name: use.as_json() for name, use in sorted(run.uses.items())},
        "cpu_s_per_million_events": None if paid is None else paid["cpu_s"],
        "pipeline_cpu_s_per_million_events": pipeline_cpu_s(uses, run.events, _servers(run)),
        "price": paid,
        "watching_share": watching_share(run.uses, _servers(run)),
    }


def _servers(run: _Run) -> frozenset[str]:
    return needed(traits_of(run.record.cell, run.cell.sink).services)


def _fault_section(run: _Run) -> dict[str, Any]:
    """The faults with their effects, the recoveries, and deaths of the pipeline."""
    record, cell, seen = run.record, run.cell, run.seen
    faults = faults_of(record)
    acted = [fault for fault in faults if fault["hit"]]
    has_batches = any(line["kind"] == BATCH for line in record.progress.items)
    reports_rows = counts_rows(cell.variant)
    observed = Observed.of(
        record.timeline.items, record.progress.items, seen.seen_us, seen.latency_us, run.started_us, reports_rows
    )
    marks = recoveries(acted, observed)
    return {
        "recovery": of_run(acted, marks, observed).as_json(),
        "deaths": _deaths(record),
        "faults": [
            {**fault, "recovery": None if mark is None else mark.as_json()}
            for fault, mark in zip_longest(charged(faults, run.batches, has_batches), marks)
        ],
        "uncharged": uncharged(faults, run.batches),
    }


def _store_latencies(seen: Sightings, path: Path) -> None:
    written_us = np.zeros_like(seen.seen_us) if seen.written_us is None else seen.written_us
    np.save(path, np.column_stack((seen.ended_us, written_us, seen.seen_us)))


def _deaths(record: Record) -> dict[str, Any]:
    found = exits_of(record.timeline.items, record.hits.items).as_json()
    each = [{**death, "why": without_folder(record.path, death["why"])} for death in found["each_unasked"]]
    return {**found, "each_unasked": each}


def _load_s(record: Record) -> float:
    scheduled = record.ledger.scheduled_us
    return float(scheduled.max() - record.plan.started_us) / 1e6 if len(scheduled) else 0.0


def write_report(report: Report, path: Path) -> None:
    """Writes a report completely or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(report, indent=1, default=_plain))
    temporary.replace(path)


def read_reports(path: Path) -> list[Report]:
    """The reports in a report.json, a .jsonl file, or the runs/*.jsonl of a results folder.

    Raises:
        UserError: there is no report, a file is damaged, or a newer oncebench wrote it.
    """
    files = sorted((path / "runs").glob("*.jsonl")) if path.is_dir() else [path]
    if path.is_dir() and (path / FILE).exists():
        files = [path / FILE]
    reports: list[Report] = []
    for file in files:
        reports += [report for _, report in reports_with_lines(file)]
    if not reports:
        raise UserError(
            f"{path} contains no report. Give a file of results/local/runs/, or a folder with a folder runs/ in it"
        )
    return reports


def reports_with_lines(file: Path) -> list[tuple[int, Report]]:
    """The reports of a file, each with the number of its line, from 1.

    Older reports count replayed rows (always 0) even for variants that do not report rows. Here they are null, as in
    newer reports.

    Raises:
        UserError: the file is damaged, or a newer oncebench wrote it.
    """
    try:
        text = file.read_text("utf-8")
        texts = whole_lines(text) if file.suffix == ".jsonl" else [text]
        found = [(number, json.loads(line)) for number, line in enumerate(texts, 1) if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is not a report ({error}). Take an undamaged copy, or run the cell again.") from error
    for _, report in found:
        if not isinstance(report, dict) or "schema" not in report or "verdict" not in report:
            raise UserError(
                f"{file} is not a report of oncebench: it has no schema and verdict. Give a file of "
                "results/local/runs/. For a series of `oncebench batches`, use `oncebench batches --from`"
            )
        refuse_newer(report["schema"], file, SCHEMA)
        for name in ("cell", "config"):
            if name in report:
                report[name] = current_cell(report[name])
        require(report, Report, file)
        _remove_unknown_replays(cast(Report, report))
    return found


def _remove_unknown_replays(report: Report) -> None:
    """Sets the replayed rows of a variant that does not report rows to null.

    Older reports have 0 there.
    """
    cell = report["cell"]
    if not counts_rows(cell["variant"]):
        for marks in (report["recovery"], *(fault.get("recovery") for fault in report["faults"])):
            if marks:
                marks["replayed_rows"] = None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
