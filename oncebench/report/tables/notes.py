"""Writes the notes below a table.

They explain why a latency is missing, which latencies include a backlog, an outage or a late generator, the
replication, how many generators and observers there were, and that several versions of oncebench made the runs.

Promise: pure functions of the reports in the table. A note appears only where it applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from oncebench.report.comparisons.sustained import backlog_in_latency
from oncebench.report.configuration import run_kind_of
from oncebench.report.measures.generators import process_lines
from oncebench.report.measures.metrics import (
    LATE_SHARE,
    Quantile,
    flat_out,
    has_speed,
    latencies_needed,
    lateness_in_latency,
    too_few_latencies,
)
from oncebench.report.replication import replication_lines
from oncebench.report.schema import Report
from pipeline.config import RECORDS, SESSIONS, WINDOWS

FELL_BEHIND = "fell behind"
# Follows each latency of a row with a fault: its rows waited while the pipeline or a server was down or stopped.
OUTAGE_MARK = "*"
OUTAGE = "includes the outage of each fault"
# By heading of a latency column, its quantile.
QUANTILES: Mapping[str, Quantile] = {"p50 ms": "p50", "p95 ms": "p95", "p99 ms": "p99", "p99.9 ms": "p999"}
# What has a latency of its own in each workload.
_UNITS = {SESSIONS: "sessions", WINDOWS: "windows", RECORDS: "records"}


def fell_behind(reports: Iterable[Report]) -> bool:
    """Whether most of a cell's runs fell behind their load.

    Chance alone makes a single run seem so.
    """
    behind = [backlog_in_latency(report) for report in reports]
    return 2 * sum(behind) > len(behind)


def notes(reports: Sequence[Report], headings: Iterable[str], behind: bool, outage: bool = False) -> str:
    """The notes below a table, each a line, after an empty line; empty text without notes.

    Args:
        reports: the runs in the table.
        headings: the table's columns; notes are about latency columns only.
        behind: whether the table marks a row with FELL_BEHIND.
        outage: whether the table marks a latency with OUTAGE_MARK.
    """
    lines = [
        *_missing(reports, headings),
        *_late(reports, headings),
        *(_behind() if behind else ()),
        *(_outage() if outage else ()),
    ]
    lines += [*replication_lines(reports), *process_lines(reports), *_versions(reports)]
    return "\n" + "\n".join(lines) + "\n" if lines else ""


def _late(reports: Sequence[Report], headings: Iterable[str]) -> Iterator[str]:
    found = [late for report in reports if has_speed(report) and (late := lateness_in_latency(report)) is not None]
    if found and QUANTILES.keys() & set(headings):
        runs, late_ms = f"{len(found)} run{'' if len(found) == 1 else 's'}", max(late.p99_ms for late in found)
        yield (
            f"The latencies of {runs} include a late generator: up to {late_ms:,.0f} ms for one event in a hundred, "
            f"above {LATE_SHARE:.0%} of the p99."
        )


def _behind() -> Iterator[str]:
    yield f"{FELL_BEHIND}: the pipeline fell behind its load, so the latencies of this row include the backlog."


def _outage() -> Iterator[str]:
    yield f"{OUTAGE_MARK}: the latency {OUTAGE}. Compare guarantees by the rows without a fault."


def _versions(reports: Iterable[Report]) -> Iterator[str]:
    commits = [report.get("environment", {}).get("commit") for report in reports]
    known = dict.fromkeys(filter(None, commits))
    if len(known) > 1:
        unknown = ", and some that no report names" if None in commits else ""
        yield f"Runs of {len(known)} versions of oncebench, by commit: {', '.join(known)}{unknown}."


def _missing(reports: Sequence[Report], headings: Iterable[str]) -> Iterator[str]:
    timed = [report for report in reports if has_speed(report)]
    measured = [report for report in timed if not flat_out(report)]
    for heading, quantile in QUANTILES.items():
        few = [report for report in measured if too_few_latencies(report, quantile)]
        if heading in headings and few:
            units = " or ".join(dict.fromkeys(_UNITS[run_kind_of(report).workload] for report in few))
            yield (
                f"{heading.removesuffix(' ms')} is missing for {len(few)} run{'' if len(few) == 1 else 's'}: it needs "
                f"{latencies_needed(quantile):,} {units} after the warm-up (give more load)."
            )
    if len(measured) < len(timed):
        yield "latency is missing with --rate max: the load is complete before the pipeline starts."
