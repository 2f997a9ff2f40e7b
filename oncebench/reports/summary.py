"""A report in a few lines for a person: the promise first, then what it cost, then where the files are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MEANING = {
    "kept": "the promise was kept",
    "broken": "the promise was BROKEN",
    "unknown": "this run cannot tell",
    "vacuous": "nothing was tested",
}


def summary(report: Mapping[str, Any]) -> str:
    """The text that `oncebench run` and `oncebench audit` print."""
    cell, rows, latency = report["cell"], report["rows"], report["latency_ms"]
    faults = [*cell["faults"], *([f"{cell['random_kills']} random kills"] if cell["random_kills"] else [])]
    lines = [
        f"{cell['sink']}  {cell['delivery']}  {cell['variant']}  {', '.join(faults) or 'healthy'}",
        f"  verdict     {report['verdict']}: {_MEANING[report['verdict']]}",
    ]
    lines += [f"              {reason}" for reason in report["reasons"]]
    if report["anomalies"]:
        lines.append("  seen        " + ", ".join(f"{code} {n}" for code, n in report["anomalies"].items()))
    lines += [
        f"  sessions    {report['sessions']['acknowledged']:,} acknowledged, "
        f"{report['sessions']['finished']:,} finished",
        f"  rows        {rows['expected']:,} expected, {rows['visible']:,} visible, {rows['lost']:,} lost, "
        f"{rows['duplicated']:,} duplicated",
        f"  throughput  {_number(report['throughput']['events_per_s'])} events/s",
        "  latency     "
        + "  ".join(f"{name} {_number(latency[name])}" for name in ("p50", "p95", "p99", "p999", "max"))
        + f" ms, n {latency['n']:,} (scheduled end event to a committed reader)",
        f"  batch       {_number(report['batches']['trigger_ms'])} ms, of which checkpoint "
        f"{_percent(report['checkpoint']['share_of_batch'])}, sink "
        + "  ".join(f"{name} {_number(ms)}" for name, ms in report["sink_ms"].items())
        + " ms",
        f"  CPU         {_number(report['cpu_s_per_million_events'])} s per million events (pipeline and broker)",
    ]
    for fault in report["faults"]:
        where = f"hit in batch {fault['batch']}" if fault["hit"] else "NOT hit"
        lines.append(f"  fault       {fault['fault']}: {where}")
    if report["faults"]:
        marks = report["recovery"]
        names = {"detect": "seen", "restart": "running again", "first_visible": "first row", "caught_up": "caught up"}
        told = "  ".join(f"{word} {_seconds(marks[name])}" for name, word in names.items())
        lines.append(f"  recovery    {told}  (longest gap {_seconds(marks['longest_gap'])})")
    lines.append(f"  reproduce   {report['reproduce']}")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _seconds(ms: float | None) -> str:
    return "-" if ms is None else f"{ms / 1000:.1f} s"
