"""The verdict: whether a run kept the promise it was made to keep, and whether it could tell at all.

Promise: a pure function over what the audit found and the run recorded. `kept` is said only if every promise was
tested and held; what is allowed stands in the table `RULES`, not in code. A run that was not watched from outside to
its end, whose pipeline shows no committed batch, or whose faults were not those asked for, is never `kept`.

The order of the questions: evidence that can't be trusted, or that two auditors count differently, makes a run
`unknown`, whatever was counted; then a forbidden anomaly makes it `broken`, even if the run was weak, for what was seen
was seen; then a run too weak to tell is `unknown`; then one that tested nothing is `vacuous`. A death that nobody asked
for changes none of this, for what the audit counted stands; it is told beside the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Protocol

from oncebench.audit import not_exercised
from oncebench.audit.exits import deaths
from oncebench.audit.python.audit import Findings
from oncebench.record import Record
from oncebench.record.traits import traits_of

KEPT, BROKEN, UNKNOWN, VACUOUS = "kept", "broken", "unknown", "vacuous"
AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE = "at-most-once", "at-least-once", "exactly-once"
GUARANTEES = (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)

INTERRUPTED = "interrupted"  # timeline event: somebody asked for a gentle stop

MIN_SENT_SHARE = 0.95  # below it the load was not the one planned (as Spark's own real-time benchmark has it)
# The observer outlives the final read, so it sees every row that is there then; a few may slip through as it stops.
MAX_UNSEEN_SHARE = 0.01

ALLOWED = "allowed"
FORBIDDEN = "forbidden"
AFTER_FAILURE = "allowed to a run in which something failed, forbidden to a healthy one"
IF_ORDERED = "forbidden where the sink keeps the order of a key"
UNLESS_SWEPT = "forbidden where no housekeeping of the sink's own removes it"
NO_ANSWER = "says nothing about the promise: the run is unknown"

_NEVER = dict.fromkeys(GUARANTEES, FORBIDDEN)
RULES: Mapping[str, Mapping[str, str]] = {
    "LOSS": {AT_MOST_ONCE: AFTER_FAILURE, AT_LEAST_ONCE: FORBIDDEN, EXACTLY_ONCE: FORBIDDEN},
    "TORN": {AT_MOST_ONCE: AFTER_FAILURE, AT_LEAST_ONCE: FORBIDDEN, EXACTLY_ONCE: FORBIDDEN},
    "DUP": {AT_MOST_ONCE: FORBIDDEN, AT_LEAST_ONCE: AFTER_FAILURE, EXACTLY_ONCE: FORBIDDEN},
    "REORD": dict.fromkeys(GUARANTEES, IF_ORDERED),  # only first occurrences count, so a replay may repeat
    "SCAT": dict.fromkeys(GUARANTEES, IF_ORDERED),
    "CORR": _NEVER,
    "DIV": _NEVER,
    "PHAN": _NEVER,
    "INCO": _NEVER,
    "ORPH": {AT_MOST_ONCE: ALLOWED, AT_LEAST_ONCE: ALLOWED, EXACTLY_ONCE: UNLESS_SWEPT},
    "TORNB": _NEVER,
    "LOSTC": {AT_MOST_ONCE: AFTER_FAILURE, AT_LEAST_ONCE: FORBIDDEN, EXACTLY_ONCE: FORBIDDEN},
    "G1a": _NEVER,
    "STALE": {AT_MOST_ONCE: AFTER_FAILURE, AT_LEAST_ONCE: AFTER_FAILURE, EXACTLY_ONCE: FORBIDDEN},
    "EXPO": dict.fromkeys(GUARANTEES, ALLOWED),  # it shows that an abort really had something to hide
    "QUAR": _NEVER,
    "STALL": _NEVER,
    "STALL-LSO": _NEVER,
    "PEND": dict.fromkeys(GUARANTEES, NO_ANSWER),
    "SRC": dict.fromkeys(GUARANTEES, NO_ANSWER),
}

# Timeline events that say that the pipeline died.
DEATHS = frozenset({"pipeline-killed", "pipeline-failed", "random-kill"})


class Asked(Protocol):
    """What the verdict needs to know of a cell; `faults` are specifications `POINT:ACTION...` in their order."""

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
    """What a verdict rests on, beside the counts.

    `failed`: a fault was asked for, or acted, or the pipeline died. `before`: codes that were seen of batches which
    were done before anything failed and were not run again, so that no failure explains them. `swept`: leftovers are
    removed by the sink itself, or by a start that an interruption did not let come. `untrusted`: why the evidence can't
    be trusted. `weak`: why the run can't tell. `untested`: why it tested nothing. `notes`: what to know beside the
    verdict, whatever it is. Sentences for people.
    """

    guarantee: str
    failed: bool = False
    before: frozenset[str] = frozenset()
    ordered: bool = True
    swept: bool = False
    untrusted: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """`word` is one of kept, broken, unknown, vacuous; `codes` the forbidden anomalies with their counts."""

    word: str
    codes: Mapping[str, int] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


def decide(counts: Mapping[str, int], facts: Facts) -> Verdict:
    """The verdict over anomaly counts. Raises ValueError for a guarantee or a code that is not in the table."""
    if facts.guarantee not in GUARANTEES:
        raise ValueError(f"unknown guarantee {facts.guarantee!r}; they are: {', '.join(GUARANTEES)}")
    if strange := counts.keys() - RULES.keys():
        raise ValueError(f"no rule for the anomaly codes {sorted(strange)}; add them to RULES")
    rules = {code: RULES[code][facts.guarantee] for code, count in counts.items() if count}
    conditions = {AFTER_FAILURE: not facts.failed, IF_ORDERED: facts.ordered, UNLESS_SWEPT: not facts.swept}
    forbidden = {FORBIDDEN, *(rule for rule, holds in conditions.items() if holds)}
    broken = {
        code: counts[code] for code, rule in rules.items()
        if rule in forbidden or (rule == AFTER_FAILURE and code in facts.before)
    }  # fmt: skip
    if facts.untrusted:
        return Verdict(UNKNOWN, {}, facts.untrusted + facts.notes)
    if broken:
        return Verdict(BROKEN, broken, tuple(f"{code}: {count}" for code, count in broken.items()) + facts.notes)
    open_questions = tuple(f"{code}: {counts[code]}, {rule}" for code, rule in rules.items() if rule == NO_ANSWER)
    if open_questions or facts.weak:
        return Verdict(UNKNOWN, {}, facts.weak + open_questions + facts.notes)
    if facts.untested:
        return Verdict(VACUOUS, {}, facts.untested + facts.notes)
    return Verdict(KEPT, {}, facts.notes)


def judge(
    findings: Findings,
    record: Record,
    cell: Asked,
    disagreements: Sequence[str] = (),
    rows_of_batches: Mapping[int, tuple[int, int]] | None = None,
) -> Verdict:
    """The verdict on a run.

    Args:
        disagreements: where a second auditor counted otherwise, in sentences.
        rows_of_batches: (lost, duplicated) rows by batch (`oncebench.audit.python.attribution.by_batch`).
    """
    return decide(findings.counts(), facts_of(findings, record, cell, disagreements, rows_of_batches or {}))


def facts_of(
    findings: Findings,
    record: Record,
    cell: Asked,
    disagreements: Sequence[str] = (),
    rows_of_batches: Mapping[int, tuple[int, int]] = MappingProxyType({}),
) -> Facts:
    """What the record says about how far its evidence goes."""
    traits = traits_of(record.cell, cell.sink)
    return Facts(
        guarantee=cell.guarantee,
        failed=_failed(record, cell),
        before=_before(record, rows_of_batches),
        ordered=traits.ordered,
        swept=traits.self_cleaning or (findings.drained is None and _interrupted(findings, record) is not None),
        untrusted=(*_untrusted(findings, record), *disagreements),
        weak=_weak(findings, record),
        untested=_untested(findings, record, cell),
        notes=_notes(record),
    )


def _failed(record: Record, cell: Asked) -> bool:
    died = any(line.get("event") in DEATHS for line in record.timeline.items)
    return bool(cell.faults or cell.random_kills or record.hits.items or died)


def _before(record: Record, rows_of_batches: Mapping[int, tuple[int, int]]) -> frozenset[str]:
    """What batches lost and doubled that were done before anything failed, and were not run again. Where nothing did,
    for the faults that were asked for were not hit, that is every batch."""
    if not rows_of_batches:
        return frozenset()
    failed_us = [line["t_us"] for line in record.timeline.items if line.get("event") in DEATHS]
    first_us = min([*failed_us, *(hit["t_us"] for hit in record.hits.items)], default=math.inf)
    told = [line for line in record.progress.items if line.get("kind") == "batch" and not line.get("recovered")]
    done = {line["batch"] for line in told} - {line["batch"] for line in told if line["t_us"] >= first_us}
    early = [rows for batch, rows in rows_of_batches.items() if batch in done]
    return frozenset(code for code, at in (("LOSS", 0), ("DUP", 1)) if any(rows[at] for rows in early))


def _untrusted(findings: Findings, record: Record) -> tuple[str, ...]:
    streams = {"input": record.input, "final": record.final, "quarantine": record.quarantine}
    needed = ["input", "final", *(["quarantine"] if findings.events["invalid"] else [])]
    reasons = [
        f"the {name} read is incomplete{': ' + streams[name].note if streams[name].note else ''}"
        for name in needed
        if not findings.complete[name]
    ]
    faults = findings.anomalies["SRC"].count
    return (*reasons, *([f"the load is at fault: SRC {faults}"] if faults else []))


def _weak(findings: Findings, record: Record) -> tuple[str, ...]:
    share = record.ledger.sent_share
    reasons = []
    if interrupted := _interrupted(findings, record):
        reasons.append(interrupted)
    elif share < MIN_SENT_SHARE:
        reasons.append(f"only {share:.1%} of the planned events were sent, less than {MIN_SENT_SHARE:.0%}")
    if findings.drained is None and not interrupted:
        reasons.append("the run was not watched to its end: it says neither drained nor stalled")
    died = deaths(record.timeline.items, record.hits.items).by_failpoint
    kills = sum(hit["action"] == "kill" for hit in record.hits.items)
    if died < kills:
        reasons.append(f"contradiction: failpoints noted {kills} kills, and the pipeline died of {died}")
    if record.ends.get("log_complete") is False:
        reasons.append("the output's log was not read to its end: who wrote what is not known")
    if not any(line.get("kind") == "batch" for line in record.progress.items):
        reasons.append("nothing shows that Spark committed a batch: progress.jsonl has no batch line")
    return (*reasons, *_unobserved(findings, record))


def _unobserved(findings: Findings, record: Record) -> tuple[str, ...]:
    """Why the observer can't say when rows became visible, and whether what it saw vanished or changed."""
    if not record.observed.complete:
        note = f": {record.observed.note}" if record.observed.note else ""
        return (f"the observer did not watch to the end{note}",)
    unseen, visible = findings.latency.unseen, findings.rows["visible_distinct"]
    if unseen > MAX_UNSEEN_SHARE * visible:
        return (f"the observer never saw {unseen} of {visible} visible rows",)
    return ()


def _interrupted(findings: Findings, record: Record) -> str | None:
    """What an interruption left undone; None if there was none, or nothing was left."""
    times: dict[str, int] = {}
    for line in record.timeline.items:
        if line.get("event") in ("load-started", INTERRUPTED, "load-done") and "t_us" in line:
            times.setdefault(line["event"], line["t_us"])
    if INTERRUPTED not in times or "load-started" not in times:
        return None
    sent = f"with {record.ledger.sent_share:.1%} of the planned events sent"
    done_us = times.get("load-done")
    if done_us is not None and times[INTERRUPTED] >= done_us:
        after_s = (times[INTERRUPTED] - done_us) / 1e6
        return f"interrupted {after_s:.1f} s after the load, {sent}" if findings.drained is None else None
    load_s = max(0, times[INTERRUPTED] - max(times["load-started"], record.plan.started_us)) / 1e6
    return f"interrupted after {load_s:.1f} s of the load, {sent}"


def _notes(record: Record) -> tuple[str, ...]:
    died = deaths(record.timeline.items, record.hits.items)
    return tuple(f"the pipeline died unasked ({death})" for death in died.unasked)


def _untested(findings: Findings, record: Record, cell: Asked) -> tuple[str, ...]:
    reasons = []
    if not findings.sessions["finished"]:
        reasons.append("no session was finished")
    elif not findings.rows["visible"]:
        reasons.append(f"no row is visible, of {findings.rows['expected']} that were owed")
    killed = sum(line.get("event") == "random-kill" for line in record.timeline.items)
    if killed < cell.random_kills:
        reasons.append(f"{killed} of {cell.random_kills} random kills happened")
    of_faults = not_exercised.by_fault(record.hits.items, cell.faults, record.timeline.items, record.progress.items)
    nowhere = not_exercised.of_no_hit(record.hits.items, record.timeline.items)
    return (*reasons, *nowhere, *chain.from_iterable(of_faults))
