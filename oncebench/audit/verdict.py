"""The verdict: whether a run kept its guarantee, and whether the evidence suffices.

Promise: a pure function of the findings and the record. The verdict is `kept` only if the guarantee was exercised and
held. The table `RULES` has what each guarantee allows. Some runs are never `kept`: the observer did not watch to the
end, no batch was committed, or the faults were not the requested ones.

The questions, in their order:

1. Evidence that cannot be trusted, or that the two auditors count differently: `unknown`, whatever was counted.
2. A forbidden anomaly: `broken`, even if the run was weak or not finished.
3. A run too weak to decide, or not finished because the machine was too slow: `unknown`.
4. A run that exercised nothing: `vacuous`.
5. Otherwise: `kept`.

At-most-once may lose rows, and at-least-once may duplicate rows, only where a failure touched them
(`oncebench.audit.failures`). If one such row was not touched, the run is broken. If the clock was moved during the run
(`oncebench.audit.clock`), nobody knows which rows a failure touched. Such a run is broken by other anomalies only, and
never kept.

An unintended exit of the pipeline is a failure too. It is reported with the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Protocol

from oncebench.audit import not_exercised
from oncebench.audit.clock import why_no_times
from oncebench.audit.exits import EXIT_EVENTS, exits_of
from oncebench.audit.python.attribution import Excuses
from oncebench.audit.python.audit import Findings
from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, GUARANTEES
from oncebench.delivery.failpoints import KILL
from oncebench.record import Record, events
from oncebench.record.schema import GAP, READ
from oncebench.record.traits import traits_of


class Verdict(StrEnum):
    """The outcome of a run, as reports store it. `oncebench.errors` has the exit codes."""

    KEPT = "kept"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    VACUOUS = "vacuous"


# Why a run that did not end is no stalled one.
NOT_FINISHED = (
    "not finished: the machine was too slow. The pipeline was alive and still starting when the time of the run was "
    "over. Run it again on a less busy machine, or with a longer --start-timeout where the command has it. If a start "
    "hangs, see the end of logs/pipeline.log"
)

MIN_SENT_SHARE = 0.95  # with less, the load was not the planned one; Spark's own real-time benchmark has the same limit
# The observer outlives the final read, so it sees every row of that read; a few may escape it as it stops.
MAX_UNSEEN_SHARE = 0.01

ALLOWED = "allowed"
FORBIDDEN = "forbidden"
AFTER_FAILURE = "allowed after a failure, forbidden in a healthy run"
IF_ORDERED = "forbidden if the sink keeps the order of a key"
UNLESS_REMOVED = "forbidden unless the sink removes its leftovers itself"
NO_ANSWER = "does not show whether the guarantee holds: the run is unknown"

_NEVER = dict.fromkeys(GUARANTEES, FORBIDDEN)
RULES: Mapping[str, Mapping[str, str]] = {
    "LOSS": {AT_MOST_ONCE: AFTER_FAILURE, AT_LEAST_ONCE: FORBIDDEN, EXACTLY_ONCE: FORBIDDEN},
    "TORN": {AT_MOST_ONCE: AFTER_FAILURE, AT_LEAST_ONCE: FORBIDDEN, EXACTLY_ONCE: FORBIDDEN},
    "DUP": {AT_MOST_ONCE: FORBIDDEN, AT_LEAST_ONCE: AFTER_FAILURE, EXACTLY_ONCE: FORBIDDEN},
    "REORD": dict.fromkeys(GUARANTEES, IF_ORDERED),  # only first copies count, so a replay may repeat rows
    "SCAT": dict.fromkeys(GUARANTEES, IF_ORDERED),
    "CORR": _NEVER,
    "DIV": _NEVER,
    "PHAN": _NEVER,
    "INCO": _NEVER,
    "ORPH": {AT_MOST_ONCE: ALLOWED, AT_LEAST_ONCE: ALLOWED, EXACTLY_ONCE: UNLESS_REMOVED},
    "TORNB": _NEVER,
    "LOSTC": {AT_MOST_ONCE: AFTER_FAILURE, AT_LEAST_ONCE: FORBIDDEN, EXACTLY_ONCE: FORBIDDEN},
    "G1a": _NEVER,
    "STALE": {AT_MOST_ONCE: AFTER_FAILURE, AT_LEAST_ONCE: AFTER_FAILURE, EXACTLY_ONCE: FORBIDDEN},
    "EXPO": dict.fromkeys(GUARANTEES, ALLOWED),  # it shows that an abort really hid something
    "GAP-ROWS": dict.fromkeys(GUARANTEES, ALLOWED),
    "GAP-EVENTS": dict.fromkeys(GUARANTEES, ALLOWED),
    "QUAR": _NEVER,
    "STALL": _NEVER,
    "STALL-LSO": _NEVER,
    "PEND": dict.fromkeys(GUARANTEES, NO_ANSWER),
    "SRC": dict.fromkeys(GUARANTEES, NO_ANSWER),
}


NO_EXCUSES = Excuses()


class JudgedCell(Protocol):
    """The fields of a cell that the verdict reads; `faults` are `POINT:ACTION...`, in order."""

    @property
    def sink(self) -> str: ...
    @property
    def guarantee(self) -> str: ...
    @property
    def faults(self) -> tuple[str, ...]: ...
    @property
    def random_kills(self) -> int: ...


@dataclass(frozen=True)
class Facts:
    """The basis of a verdict, besides the counts. Reasons and notes are sentences for people.

    Attributes:
        failed: a fault was requested or acted, or the pipeline exited.
        excuses: which lost and duplicated rows a failure may explain.
        ordered: the sink keeps the order of a key.
        leftovers_allowed: leftovers are no violation. Either the sink removes them itself, or the run ended before the
            start that removes them.
        untrusted: why the evidence cannot be trusted.
        weak: why the evidence does not suffice.
        undecided: why the run ended too early, or has no times. Reported with every verdict, and such a run is never
            kept.
        not_exercised: why the guarantee was not exercised.
        notes: reported with every verdict.
    """

    guarantee: str
    failed: bool = False
    excuses: Excuses = NO_EXCUSES
    ordered: bool = True
    leftovers_allowed: bool = False
    untrusted: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    not_exercised: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """A verdict with the counts of the forbidden anomalies, and the reasons."""

    verdict: Verdict
    codes: Mapping[str, int] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


def decide(counts: Mapping[str, int], facts: Facts) -> Judgement:
    """Decides over anomaly counts; ValueError for a guarantee or a code without a rule."""
    if facts.guarantee not in GUARANTEES:
        raise ValueError(f"unknown guarantee {facts.guarantee!r}; they are: {', '.join(GUARANTEES)}")
    if without_rule := counts.keys() - RULES.keys():
        raise ValueError(f"no rule for the anomaly codes {sorted(without_rule)}; add them to RULES")
    rules = {code: RULES[code][facts.guarantee] for code, count in counts.items() if count}
    conditions = {
        AFTER_FAILURE: not facts.failed,
        IF_ORDERED: facts.ordered,
        UNLESS_REMOVED: not facts.leftovers_allowed,
    }
    forbidden = {FORBIDDEN, *(rule for rule, holds in conditions.items() if holds)}
    broken = {
        code: counts[code] for code, rule in rules.items()
        if rule in forbidden or (rule == AFTER_FAILURE and code in facts.excuses.missing)
    }  # fmt: skip
    notes = facts.undecided + facts.notes
    if facts.untrusted:
        return Judgement(Verdict.UNKNOWN, {}, facts.untrusted + notes)
    if broken:
        missing = {
            code: f", and no failure touched {rows} of these rows"
            for code, rows in facts.excuses.missing.items()
            if facts.failed and rules.get(code) == AFTER_FAILURE
        }
        reasons = tuple(f"{code}: {count}{missing.get(code, '')}" for code, count in broken.items())
        return Judgement(Verdict.BROKEN, broken, reasons + notes)
    notes += tuple(
        f"{code}: {rows} rows are of no batch or position in progress.jsonl, so a failure may have touched them"
        for code, rows in facts.excuses.unknown.items()
        if rules.get(code) == AFTER_FAILURE
    )
    open_questions = tuple(f"{code}: {counts[code]}, {rule}" for code, rule in rules.items() if rule == NO_ANSWER)
    if open_questions or facts.weak or facts.undecided:
        return Judgement(Verdict.UNKNOWN, {}, facts.weak + open_questions + notes)
    if facts.not_exercised:
        return Judgement(Verdict.VACUOUS, {}, facts.not_exercised + notes)
    return Judgement(Verdict.KEPT, {}, notes)


def judge(
    findings: Findings,
    record: Record,
    cell: JudgedCell,
    disagreements: Sequence[str] = (),
    excuses: Excuses = NO_EXCUSES,
) -> Judgement:
    """Judges a run.

    Args:
        disagreements: where the other auditor counts differently, in sentences.
        excuses: which lost and duplicated rows a failure may explain (`oncebench.audit.python.attribution.excuses`).
    """
    return decide(findings.counts(), facts_of(findings, record, cell, disagreements, excuses))


def facts_of(
    findings: Findings,
    record: Record,
    cell: JudgedCell,
    disagreements: Sequence[str] = (),
    excuses: Excuses = NO_EXCUSES,
) -> Facts:
    """Collects from the record what a verdict rests on; for the arguments see `judge`."""
    traits = traits_of(record.cell, cell.sink)
    unfinished, no_times = not_finished(record), why_no_times(record.facts.get("clock_moved_us"))
    cut_short = findings.drained is None and (unfinished or _interrupted(findings, record))
    return Facts(
        guarantee=cell.guarantee,
        failed=_failed(record, cell),
        excuses=NO_EXCUSES if no_times else excuses,
        ordered=traits.ordered,
        leftovers_allowed=traits.self_cleaning or bool(cut_short),
        untrusted=(*_untrusted(findings, record), *disagreements),
        weak=_weak(findings, record),
        undecided=tuple(filter(None, (unfinished, no_times))),
        not_exercised=_not_exercised(findings, record, cell),
        notes=(*_notes(record), *(_unseen(findings) if _few_unseen(findings) else ())),
    )


def _failed(record: Record, cell: JudgedCell) -> bool:
    exited = any(line.get("event") in EXIT_EVENTS for line in record.timeline.items)
    return bool(cell.faults or cell.random_kills or record.hits.items or exited)


def _untrusted(findings: Findings, record: Record) -> tuple[str, ...]:
    streams = {"input": record.input, "final": record.final, "quarantine": record.quarantine}
    needed = ["input", "final", *(["quarantine"] if findings.events["invalid"] else [])]
    reasons = [
        f"the {name} read is incomplete{': ' + streams[name].note if streams[name].note else ''}"
        for name in needed
        if not findings.complete[name]
    ]
    faults = findings.anomalies["SRC"].count
    return (*record.altered, *reasons, *([f"the load is wrong: SRC {faults}"] if faults else []))


def _weak(findings: Findings, record: Record) -> tuple[str, ...]:
    share = record.ledger.sent_share
    died = [line for line in record.timeline.items if line.get("event") == events.PROCESS_DIED]
    reasons = [f"{line.get('name')} died during the run: {line.get('why')}" for line in died]
    if interrupted := _interrupted(findings, record):
        reasons.append(interrupted)
    elif share < MIN_SENT_SHARE:
        reasons.append(f"only {share:.1%} of the planned events were sent, less than {MIN_SENT_SHARE:.0%}")
    elif unanswered := record.ledger.unanswered:  # they may be in the topic, but this is not the planned load
        reasons.append(f"{unanswered} events of the load have no answer from Kafka: the generator did not wait for it")
    if findings.drained is None and not interrupted and not not_finished(record):
        reasons.append("the run was not watched to its end: its timeline has neither drained nor stalled")
    exited = exits_of(record.timeline.items, record.hits.items).by_failpoint
    kills = sum(hit["action"] == KILL for hit in record.hits.items)
    if exited < kills:
        reasons.append(f"contradiction: failpoints recorded {kills} kills, but the pipeline exited {exited} times")
    if record.ends.get("log_complete") is False:
        reasons.append("the output's log was not read to its end: the writers of some rows are not known")
    if not any(line.get("kind") in READ for line in record.progress.items):
        reasons.append("no sign that the pipeline committed anything: progress.jsonl has no batch or position line")
    return (*reasons, *_unobserved(findings, record))


def _unobserved(findings: Findings, record: Record) -> tuple[str, ...]:
    """Why the observer's rows do not suffice: visibility times, and rows that vanish or change."""
    if not record.observed.complete:
        note = f": {record.observed.note}" if record.observed.note else ""
        return (f"the observer did not watch to the end{note}",)
    return () if _few_unseen(findings) else _unseen(findings)


def _few_unseen(findings: Findings) -> bool:
    return findings.latency.unseen <= MAX_UNSEEN_SHARE * findings.rows["visible_distinct"]


def _unseen(findings: Findings) -> tuple[str, ...]:
    unseen, visible = findings.latency.unseen, findings.rows["visible_distinct"]
    return (
        (f"the observer never saw {unseen} of {visible} visible rows. They count as the latest ones",) if unseen else ()
    )


def not_finished(record: Record) -> str:
    """Returns why the run ended before its pipeline had finished; empty if it had finished."""
    timed_out = any(line.get("event") == events.START_TIMED_OUT for line in record.timeline.items)
    return NOT_FINISHED if timed_out else ""


def _interrupted(findings: Findings, record: Record) -> str | None:
    """Returns what an interruption left undone; None if nothing, or without an interruption."""
    times: dict[str, int] = {}
    for line in record.timeline.items:
        if line.get("event") in (events.LOAD_STARTED, events.INTERRUPTED, events.LOAD_DONE) and "t_us" in line:
            times.setdefault(line["event"], line["t_us"])
    if events.INTERRUPTED not in times or events.LOAD_STARTED not in times:
        return None
    sent = f"with {record.ledger.sent_share:.1%} of the planned events sent"
    done_us = times.get(events.LOAD_DONE)
    if done_us is not None and times[events.INTERRUPTED] >= done_us:
        after_s = (times[events.INTERRUPTED] - done_us) / 1e6
        return f"interrupted {after_s:.1f} s after the load, {sent}" if findings.drained is None else None
    load_s = max(0, times[events.INTERRUPTED] - max(times[events.LOAD_STARTED], record.plan.started_us)) / 1e6
    return f"interrupted after {load_s:.1f} s of the load, {sent}"


def _notes(record: Record) -> tuple[str, ...]:
    unintended = exits_of(record.timeline.items, record.hits.items).unintended
    accepted = [line["text"] for line in record.progress.items if line.get("kind") == GAP]
    failed = record.ledger.failed
    return (
        *([f"{failed} events of the load failed, so the load was smaller than planned"] if failed else []),
        *(f"the pipeline exited without a fault ({one})" for one in unintended),
        *(f"an operator accepted a loss: {text}" for text in accepted),
    )


def _not_exercised(findings: Findings, record: Record, cell: JudgedCell) -> tuple[str, ...]:
    reasons = []
    if not findings.sessions["finished"]:
        reasons.append("no session was finished")
    elif not findings.rows["visible"]:
        reasons.append(f"no row is visible, of {findings.rows['expected']} expected rows")
    reasons += not_exercised.of_random_kills(cell.random_kills, record.timeline.items)
    of_faults = not_exercised.by_fault(record.hits.items, cell.faults, record.timeline.items, record.progress.items)
    without_a_hit = not_exercised.without_a_hit(record.hits.items, record.timeline.items)
    return (*reasons, *without_a_hit, *chain.from_iterable(of_faults))
