"""A report in a few lines for a person: the promise first, then the cost, then the files.

Promise: a run that fell behind its load says so in its second line. A run that was not `kept`, or has no meaningful
speed, has its counts and the reason, as in the tables. Its report keeps the figures. A latency that includes an outage
is marked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from oncebench.audit.anomalies import CATALOGUE
from oncebench.audit.exits import UnintendedExit
from oncebench.audit.verdict import Verdict
from oncebench.report.comparisons.sustained import backlog_in_latency, growth
from oncebench.report.configuration import run_kind_of
from oncebench.report.measures.generators import slowest
from oncebench.report.measures.metrics import (
    BY_NAME,
    Quantile,
    cpu_ms_of_a_batch,
    flat_out,
    has_batches,
    latency,
    lateness_in_latency,
    why_no_speed,
)
from oncebench.report.measures.recovery import CALM_S
from oncebench.report.outcome import is_healthy
from oncebench.report.replication import replication_lines
from oncebench.report.schema import Fault, RecoveryMarks, Report
from oncebench.report.tables.notes import OUTAGE
from oncebench.scenario.matrix.families import RANDOM_KILL
from pipeline.config import RECORDS, SESSIONS, WINDOWS

_MEANING = {
    "kept": "the promise was kept",
    "broken": "the promise was BROKEN",
    "unknown": "this run cannot decide",
    "vacuous": "nothing was tested",
}
# From when on the latency of a row counts.
_LATENCY_FROM = {
    SESSIONS: "scheduled end event", WINDOWS: "end of the window", RECORDS: "scheduled time of the record",
}  # fmt: skip
# What has a latency after the warm-up.
_ENDED = {SESSIONS: "session ended", WINDOWS: "window ended", RECORDS: "record was sent"}
# What a row is made of, and how many there were.
_UNITS = {
    SESSIONS: "  sessions    {of_load:,} of {acknowledged:,} finished",
    WINDOWS: "  windows     {of_load:,} of {acknowledged:,} sessions, {late:,} late events left out",
    RECORDS: "  records     {of_load:,} in the input topic",
}
_QUANTILES: tuple[Quantile, ...] = ("p50", "p95", "p99", "p999")


def summary(report: Report, files: Path | None = None) -> str:
    """The text that `oncebench run` and `oncebench audit` print.

    Args:
        report: the report of one run.
        files: the run's work folder, if it is known.
    """
    no_speed = _why_no_speed(report)
    untested = report["verdict"] == Verdict.VACUOUS and report["faults"]
    lines = [
        *_head(report),
        *(_fell_behind(report, latencies_below=not no_speed) if backlog_in_latency(report) else ()),
        f"  verdict     {report['verdict']}: {_MEANING[report['verdict']]}",
        *(f"              {reason}" for reason in report["reasons"]),
        *(["              run it again; if the fault was not hit, with a longer --duration"] if untested else ()),
        *_weaknesses(report),
        *_auditors(report),
        *_anomalies(report),
        *_counts(report),
        *([f"  speed       left out: {'; '.join(no_speed)}"] if no_speed else _speed(report)),
        *(f"  fault       {fault['fault']}: {_place(fault, report)}" for fault in report["faults"]),
        *(f"  died        1 x unasked ({one}); see logs/pipeline.log" for one in _unintended(report)),
    ]
    if report["faults"] and not no_speed:
        lines += [*_recovery(report["recovery"]), *_all_recoveries(report["faults"])]
    lines.append(f"  reproduce   {report['reproduce']}")
    if files is not None:
        lines.append(f"  files       {files}")
    return "\n".join(lines)


def _head(report: Report) -> list[str]:
    cell = report["cell"]
    faults = [*cell["faults"], *([f"{cell['random_kills']} random kills"] if cell["random_kills"] else [])]
    state = f", {cell['open_sessions']:,} open sessions" if cell.get("open_sessions") else ""
    lines = [f"{cell['sink']}  {cell['guarantee']}  {cell['variant']}  {', '.join(faults) or 'healthy'}{state}"]
    lines[0] += run_kind_of(report).text
    lines += [f"  replicas    {line.removesuffix('.')}" for line in replication_lines([report])]
    return [*lines, *_several(report)]


def _several(report: Report) -> list[str]:
    """How many processes made the load and observed it, if they were several."""
    config, lines = report.get("config", {}), []
    if (generators := config.get("generators", 1)) > 1:
        found = slowest(report.get("generator", {}))
        late = "" if found is None else f", number {found[0]} the slowest: at most {_number(found[1])} ms late"
        lines.append(f"  generators  {generators}{late}")
    if (observers := config.get("observers", 1)) > 1:
        lines.append(f"  observers   {observers}, which share the partitions of the output")
    return lines


def _weaknesses(report: Report) -> list[str]:
    """What the user has switched off in the security of Kafka's connections."""
    kafka = (report.get("environment") or {}).get("kafka") or {}
    return [f"  INSECURE    {each}" for each in (kafka.get("security") or {}).get("weaknesses", ())]


def _fell_behind(report: Report, latencies_below: bool) -> list[str]:
    consequence = ": the latencies below include the backlog" if latencies_below else ""
    return [
        f"  LOAD        the pipeline fell behind its load{consequence}",
        f"              its {growth(report)}; lower the --rate to measure latency",
    ]


def _auditors(report: Report) -> list[str]:
    """Whether both auditors agree; where they do not, the reasons name the counts.

    Older reports were made by one auditor.
    """
    auditors = report.get("auditors")
    if auditors is None:
        return []
    if auditors["agree"]:
        return [f"  auditors    two, which agree on all {auditors['compared']} counts"]
    return [f"  auditors    two, {'and the second could not count' if auditors['trouble'] else 'which DISAGREE'}"]


def _anomalies(report: Report) -> list[str]:
    """Returns a line for each code: its count, the counts by kind, and the meaning.

    The last line names the page with the exact rules.
    Older reports have no counts by kind.
    """
    if not report["anomalies"]:
        return []
    lines = []
    for code, n in report["anomalies"].items():
        kinds = ", ".join(f"{kind} {of}" for kind, of in report.get("splits", {}).get(code, {}).items() if of)
        means = f": {CATALOGUE[code].means}" if code in CATALOGUE else ""  # a report of another version
        lines.append(f"              {code} {n:,}{f' ({kinds})' if kinds else ''}{means}")
    lines[0] = f"  seen      {lines[0][12:]}"
    return [*lines, "              exact rules: docs/anomalies.md"]


def _counts(report: Report) -> list[str]:
    """Sessions and rows, with those of the warm-up counted separately."""
    sessions, rows = report["sessions"], report["rows"]
    # Older reports do not count them. Every session that Kafka acknowledged is finished, so the others are priming.
    primed = sessions.get("primed", max(0, sessions["finished"] - sessions["acknowledged"]))
    of_load, before = sessions["finished"] - primed, primed * rows["expected"] // max(1, sessions["finished"])
    return [
        _units(report, of_load) + (f", after {primed:,} for warm-up" if primed else ""),
        f"  rows        {rows['expected'] - before:,} expected"
        + (f" + {before:,} from warm-up" if primed else "")
        + f", {rows['visible']:,} visible{' in all' if primed else ''}, "
        f"{rows['lost']:,} lost, {rows['duplicated']:,} duplicated",
    ]


def _units(report: Report, of_load: int) -> str:
    """How many sessions of the load finished, or what the workload has in their place."""
    late = report.get("events", {}).get("late", 0)
    form = _UNITS.get(run_kind_of(report).workload, _UNITS[SESSIONS])
    return form.format(of_load=of_load, acknowledged=report["sessions"]["acknowledged"], late=late)


def _why_no_speed(report: Report) -> list[str]:
    if report["verdict"] != Verdict.KEPT:
        return ["the promise was not seen to be kept"]
    return list(why_no_speed(report))


def _speed(report: Report) -> list[str]:
    return [*_throughput(report), *_latency(report), *_batch(report), *_cpu(report), *_limit(report)]


def _throughput(report: Report) -> list[str]:
    rate = report["throughput"]["events_per_s"]
    return [] if rate is None else [f"  throughput  {_number(rate)} events/s"]


def _latency(report: Report) -> list[str]:
    n, longest = report["latency_ms"]["n"], report["latency_ms"]["max"]
    if flat_out(report):
        return []
    if not n:
        warmup_s = report.get("config", {}).get("warmup_s")  # older reports have none
        what = _ENDED.get(run_kind_of(report).workload, "session ended")
        late = f"no {what} after the warm-up of {warmup_s:g} s (give more load, or --warmup 0)"
        return [] if warmup_s is None else [f"  latency     not measured: {late}"]
    found = {name: latency(name)(report) for name in _QUANTILES}
    figures = [f"{name} {_number(ms)}" for name, ms in found.items() if ms is not None]
    figures += [] if longest is None else [f"max {_number(longest)}"]
    began = _LATENCY_FROM.get(run_kind_of(report).workload, "end")
    unseen = report["latency_ms"].get("unseen", 0)  # older reports have none
    rows = f"{n:,} rows after the warm-up" + (f", and {unseen:,} never seen" if unseen else "")
    lines = [f"  latency     {'  '.join(figures)} ms, {rows} ({began} to a committed reader)"]
    if (worst := lateness_in_latency(report)) is not None:
        lines.append(
            f"              includes that {worst.name} was {_number(worst.p99_ms)} ms late for one event in a hundred"
        )
    if not is_healthy(report):
        lines.append(f"              {OUTAGE}; the same command without a fault measures the latency of the cell")
    return lines


def _batch(report: Report) -> list[str]:
    batch, share = report["batches"]["trigger_ms"], report["checkpoint"]["share_of_batch"]
    if batch is None:
        return []
    steps = "  ".join(f"{name} {_number(ms)}" for name, ms in report["sink_ms"].items() if ms is not None)
    parts = [*([f"checkpoint {share:.1%}"] if share is not None else []), *([f"sink {steps} ms"] if steps else [])]
    return [f"  batch       {_number(batch)} ms{': ' if parts else ''}{', '.join(parts)}"]


def _cpu(report: Report) -> list[str]:
    per_batch, per_million = cpu_ms_of_a_batch(report), BY_NAME["cpu_s"].of(report)
    used = [] if per_batch is None else [f"{_number(per_batch)} ms a batch"]
    used += [] if per_million is None else [f"{_number(per_million)} s per million events"]
    restarts = ", with restarts" if report["faults"] else ""
    return [f"  CPU         {', '.join(used)} (pipeline and servers{restarts})"] if used else []


# What limited a run, in words; `part` and `share` are in `oncebench.report.measures.bottleneck`.
_LIMITS: Mapping[str, str] = {
    "generator": "{part}, which did not keep its rate",
    "acknowledgements": "Kafka's acknowledgements: {part} waited for them",
    "trigger": "the trigger: a batch is done before the next one is due",
    "cores": "the cores of this machine; {part} takes {share:.0%} of the time that is used",
    "batch": "the {part}: {share:.0%} of a batch",
}


def _limit(report: Report) -> list[str]:
    found = report.get("bottleneck")  # older reports have none
    if not found:
        return []
    text = _LIMITS[found["limit"]].format(part=found["part"] or "the generator", share=found["share"] or 0.0)
    busy = found["cores_busy"]
    return [f"  bottleneck  {text}" + ("" if busy is None else f"; cores {busy:.0%} busy")]


def _place(fault: Fault, report: Report) -> str:
    if not fault["hit"]:
        return "NOT hit"
    if fault["fault"] != RANDOM_KILL:
        recovery = fault.get("recovery")  # older reports have none
        gap = None if recovery is None else recovery.get("longest_gap")
        of_run = report["recovery"]["longest_gap"] or 0.0  # in the line on recovery
        said = gap is None or (len(report["faults"]) == 1 and gap <= of_run)
        return f"hit in batch {fault['batch']}" + ("" if said else f", {_seconds(gap)} without a row")
    if fault["point"] is None and not has_batches(report):
        return "at a random time"
    if fault["point"] is None:
        return "landed before the first step of a batch"
    return f"landed in batch {fault['batch']}, past {fault['point']}"


def _recovery(marks: RecoveryMarks) -> list[str]:
    if all(ms is None for ms in marks.values()):
        return []
    figures = "  ".join([
        f"seen {_seconds(marks['detect'])}",
        f"process back {_seconds(marks['restart'])}",
        f"first row {_seconds(marks['first_visible'])}",
        f"caught up {_seconds(marks['caught_up'])}",
    ])  # fmt: skip
    replayed = marks.get("replayed_rows")  # older reports have no count
    rows = "" if replayed is None else f", {replayed:,} replayed rows"
    lines = [f"  recovery    {figures}  (from the first fault; longest gap {_seconds(marks['longest_gap'])}{rows})"]
    if marks["first_visible"] is None:
        lines.append("              no new row came after the fault: the load was too short (give a longer --duration)")
    elif marks["caught_up"] is None:
        lines.append(
            f"              caught up is unknown: it needs {CALM_S:g} s of load and no fault after the recovery"
        )
    return lines


def _all_recoveries(faults: Sequence[Fault]) -> list[str]:
    """The time to the first new row over several faults.

    Older reports have the recovery from the first only.
    """
    marks = [recovery for fault in faults if (recovery := fault.get("recovery"))]
    visible = [each["first_visible"] for each in marks if each["first_visible"] is not None]
    if len(marks) < 2 or not visible:
        return []
    times = f"first row {_seconds(median(visible))} (median), {_seconds(max(visible))} (longest)"
    if len(visible) == len(marks):
        return [f"              after each of {len(marks)} faults: {times}"]
    return [
        f"              after {len(visible)} of {len(marks)} faults: {times}; after the others no new row came before "
        "the next fault or the end"
    ]


def _unintended(report: Report) -> list[UnintendedExit]:
    return [UnintendedExit.of(each) for each in report.get("deaths", {}).get("each_unasked", [])]  # older: none


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def _seconds(ms: float | None) -> str:
    return "-" if ms is None else f"{ms / 1000:.1f} s"
