"""A report in a few lines for a person: the promise first, then what it cost, then where the files are.

Promise: a line is there only if it says something; a run that was not `kept`, or tells nothing of its speed, shows its
counts and why it shows no more, as in the tables (its report keeps the figures).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import Any

from oncebench.audit.anomalies import TERMS, terms_of
from oncebench.report.measures.metrics import BY_NAME, cpu_ms_of_a_batch, flat_out, latency, why_no_speed

Report = Mapping[str, Any]

_MEANING = {
    "kept": "the promise was kept",
    "broken": "the promise was BROKEN",
    "unknown": "this run cannot tell",
    "vacuous": "nothing was tested",
}
_QUANTILES = ("p50", "p95", "p99", "p999")
_MARKS = {"detect": "seen", "restart": "process back", "first_visible": "first row", "caught_up": "caught up"}


def summary(report: Report, files: Path | None = None) -> str:
    """The text that `oncebench run` and `oncebench audit` print.

    Args:
        report: of one run.
        files: the run's work dir, where it is known.
    """
    cell, rows = report["cell"], report["rows"]
    faults = [*cell["faults"], *([f"{cell['random_kills']} random kills"] if cell["random_kills"] else [])]
    state = f", {cell['open_sessions']:,} open sessions" if cell.get("open_sessions") else ""
    lines = [
        f"{cell['sink']}  {cell['guarantee']}  {cell['variant']}  {', '.join(faults) or 'healthy'}{state}",
        f"  verdict     {report['verdict']}: {_MEANING[report['verdict']]}",
    ]
    lines += [f"              {reason}" for reason in report["reasons"]]
    lines += _auditors(report)
    lines += _seen(report)
    lines += [
        f"  sessions    {report['sessions']['acknowledged']:,} acknowledged, "
        f"{report['sessions']['finished']:,} finished",
        f"  rows        {rows['expected']:,} expected, {rows['visible']:,} visible, {rows['lost']:,} lost, "
        f"{rows['duplicated']:,} duplicated",
    ]
    hidden = "; ".join(_hidden(report))
    lines += [f"  speed       not shown: {hidden}"] if hidden else _speed(report)
    lines += [f"  fault       {fault['fault']}: {_where(fault)}" for fault in report["faults"]]
    lines += [f"  died        1 x unasked ({death['told']}); see logs/pipeline.log" for death in _unasked(report)]
    if report["faults"] and not hidden:
        lines += [*_recovery(report["recovery"]), *_of_several(report["faults"])]
    lines.append(f"  reproduce   {report['reproduce']}")
    if files is not None:
        lines.append(f"  files       {files}")
    return "\n".join(lines)


def _auditors(report: Report) -> list[str]:
    """None of a report made by one auditor; where two disagree, the reasons say on what."""
    told = report.get("auditors")
    if told is None:
        return []
    if told["agree"]:
        return [f"  auditors    two, which agree on all {told['compared']} counts"]
    return [f"  auditors    two, {'and the second could not count' if told['trouble'] else 'which DISAGREE'}"]


def _seen(report: Report) -> list[str]:
    """The codes with their counts; then of each its rule, and its count by kind; then the words that rules make use of.

    Reports from before rules and kinds were in them show the counts alone.
    """
    if not report["anomalies"]:
        return []
    rules, splits = report.get("rules", {}), report.get("splits", {})
    lines = ["  seen        " + ", ".join(f"{code} {n}" for code, n in report["anomalies"].items())]
    for code, rule in rules.items():
        kinds = ", ".join(f"{kind} {n}" for kind, n in splits.get(code, {}).items() if n)
        lines += _wrapped(f"{code}{f' ({kinds})' if kinds else ''}: {rule}")
    terms = {term for rule in rules.values() for term in terms_of(rule)}
    for term, meaning in TERMS.items():
        lines += _wrapped(f"{term}: {meaning}") if term in terms else []
    return lines


def _wrapped(text: str) -> list[str]:
    return wrap(text, 120, initial_indent=" " * 14, subsequent_indent=" " * 16, break_on_hyphens=False)


def _hidden(report: Report) -> list[str]:
    """Why no speed is shown."""
    if report["verdict"] != "kept":
        return ["the promise was not seen to be kept"]
    return list(why_no_speed(report))


def _speed(report: Report) -> list[str]:
    batch, sink = report["batches"]["trigger_ms"], report["sink_ms"]
    rate = report["throughput"]["events_per_s"]
    share = report["checkpoint"]["share_of_batch"]
    lines = [] if rate is None else [f"  throughput  {_number(rate)} events/s"]
    found = {name: latency(name)(report) for name in _QUANTILES}
    told = [f"{name} {_number(ms)}" for name, ms in found.items() if ms is not None]
    n = report["latency_ms"]["n"]
    if n and not flat_out(report):
        told += [f"max {_number(report['latency_ms']['max'])}"]
        lines.append(f"  latency     {'  '.join(told)} ms, n {n:,} (scheduled end event to a committed reader)")
    if batch is not None:
        steps = "  ".join(f"{name} {_number(ms)}" for name, ms in sink.items() if ms is not None)
        parts = [*([f"checkpoint {share:.1%}"] if share is not None else []), *([f"sink {steps} ms"] if steps else [])]
        lines.append(f"  batch       {_number(batch)} ms{', of which ' if parts else ''}{', '.join(parts)}")
    of_batch, of_million = cpu_ms_of_a_batch(report), BY_NAME["cpu_s"].of(report)
    used = [] if of_batch is None else [f"{_number(of_batch)} ms a batch"]
    used += [] if of_million is None else [f"{_number(of_million)} s per million events"]
    return [*lines, f"  CPU         {', '.join(used)} (pipeline and servers)"] if used else lines


def _where(fault: Mapping[str, Any]) -> str:
    if not fault["hit"]:
        return "NOT hit"
    if fault["fault"] != "random:kill":
        return f"hit in batch {fault['batch']}"
    if fault["point"] is None:
        return "landed before the first step of a batch"
    return f"landed in batch {fault['batch']}, past {fault['point']}"


def _recovery(marks: Mapping[str, Any]) -> list[str]:
    if all(ms is None for ms in marks.values()):
        return []
    told = "  ".join(f"{word} {_seconds(marks[name])}" for name, word in _MARKS.items())
    again = marks.get("replayed_rows")  # older reports do not tell
    rows = "" if again is None else f", {again:,} rows made again"
    lines = [f"  recovery    {told}  (longest gap {_seconds(marks['longest_gap'])}{rows})"]
    if marks["first_visible"] is None:
        lines.append("              no new row came after the fault: the load was too short (give a longer --duration)")
    return lines


def _of_several(faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of more than one fault: how long it was to the first new row."""
    marks = [fault["recovery"] for fault in faults if fault.get("recovery")]  # older reports tell of the first only
    visible = [each["first_visible"] for each in marks if each["first_visible"] is not None]
    if len(marks) < 2 or not visible:
        return []
    told = f"first row {_seconds(median(visible))} (median), {_seconds(max(visible))} (longest)"
    return [f"              of {len(marks)} faults: {told}"]


def _unasked(report: Report) -> list[Mapping[str, Any]]:
    return list(report.get("deaths", {}).get("each_unasked", []))  # older reports tell of none


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def _seconds(ms: float | None) -> str:
    return "-" if ms is None else f"{ms / 1000:.1f} s"
