"""The Python audit: a pure function from a record to its anomalies and latencies.

Promise: it reads nothing but the record, changes nothing, and gives the same findings for any order of rows in the
files. Every count follows the rule of its code in `anomalies.CATALOGUE`. The `judge_*` functions count anomalies; only
`verdict.judge` gives a verdict.

What can go wrong: a read is incomplete. Then the audit uses the rows that are there. `Findings.complete` says which
reads were whole, and the verdict is `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oncebench.audit.anomalies import CATALOGUE, EXAMPLES, Anomaly
from oncebench.audit.python.batches import judge_lost_commits, judge_torn
from oncebench.audit.python.history.accepted import Accepted
from oncebench.audit.python.inputs import judge_quarantine, judge_source
from oncebench.audit.python.latency import Distribution
from oncebench.audit.python.log import Log, judge_aborted, judge_exposed, judge_stale, judge_stuck
from oncebench.audit.python.model import EVENTS_PER_ROW, Expected
from oncebench.audit.python.reads import EVERYWHERE, Reads, join_reads
from oncebench.audit.python.records import Bools, Ints
from oncebench.audit.python.visible import Explainer, Rows, explain_inconsistent, judge_rows
from oncebench.audit.python.workloads.answers import answer_of
from oncebench.record import Record, RecordError, events
from oncebench.record.schema import READ


@dataclass(frozen=True)
class Latency:
    """Times until the observer first saw each expected row, in ms.

    Attributes:
        visible: from the scheduled end event.
        gap: from the write of the row, which is the part that a commit adds; only for sinks with write times.
        torn_sessions: sessions that the observer saw in parts, or never saw whole.
        unseen: visible expected rows that the observer did not see.
    """

    visible: Distribution = field(default_factory=Distribution)
    gap: Distribution = field(default_factory=Distribution)
    torn_sessions: int = 0
    unseen: int = 0


@dataclass(frozen=True)
class Findings:
    """The findings of the audit.

    Attributes:
        anomalies: every code of the catalogue, also those with count 0.
        complete: which of the reads input, final, observed and quarantine were whole.
        drained: None if the timeline has neither event.
    """

    anomalies: Mapping[str, Anomaly]
    rows: Mapping[str, int]
    sessions: Mapping[str, int]
    events: Mapping[str, int]
    invalid: Mapping[str, int]
    latency: Latency
    complete: Mapping[str, bool]
    drained: bool | None

    def counts(self) -> dict[str, int]:
        """Returns the codes that occurred, with their counts."""
        return {code: anomaly.count for code, anomaly in self.anomalies.items() if anomaly.count}


@dataclass(frozen=True)
class Joined:
    """Both reads of the output, joined, and their rows."""

    reads: Reads
    rows: Rows

    @staticmethod
    def of(record: Record, expected: Expected) -> Joined:
        """Joins the reads of a record."""
        reads = join_reads(record.final, record.observed, _read_ends(record))
        return Joined(reads, Rows.of(reads, expected))


def audit(
    record: Record, *, expected: Expected | None = None, joined: Joined | None = None, warmup_s: float = 0.0
) -> Findings:
    """Counts the anomalies of a record, and computes its latencies.

    Args:
        expected: the model's rows, if the caller has them already.
        joined: the record's joined reads, if the caller has them already.
        warmup_s: the latencies leave out rows whose end event was scheduled earlier than this after the load's start.
    """
    expected = answer_of(record) if expected is None else expected
    joined = joined or Joined.of(record, expected)
    reads, rows = joined.reads, joined.rows
    final = rows.head(reads.finals)
    covered = covered_sessions(expected, committed_ends(record.progress.items))
    accepted = Accepted.of(record.progress.items)
    gap = accepted.sessions(expected, record.progress.items)
    visible = judge_rows(expected, final, covered, gap, is_log=bool(record.ends.get("output_is_log", True)))
    log = Log.of(record.log.table)
    input_rows = expected.records
    source = judge_source(record.ledger, record.plan, expected, input_rows, accepted)
    quarantine = judge_quarantine(record.quarantine, expected, record.input)
    drained = _drained(record.timeline.items)
    anomalies = {
        **visible.anomalies,
        **_stall(visible.anomalies["PEND"], drained),
        "STALL-LSO": judge_stuck(record.ends.get("output", {}), record.ends.get("open_transactions", [])),
        "SRC": source.faults,
        "GAP-EVENTS": source.accepted,
        "INCO": explain_inconsistent(reads, expected),
        "ORPH": _leftovers(record.ends.get("leftovers", [])),
        "QUAR": quarantine.faults if drained else Anomaly(),
        "LOSTC": judge_lost_commits(expected, visible, record.progress.items, Explainer(expected, final)),
        "TORNB": (
            judge_torn(expected, final, reads.seen_us[: reads.finals], record.progress.items)
            if record.ends.get("batches_at_once")
            else Anomaly()
        ),
        "G1a": judge_aborted(log, expected, rows, reads.finals if record.log.complete else 0),
        "EXPO": judge_exposed(log, final.position),
        "STALE": judge_stale(log, expected, final),
    }
    present = visible.multiplicity > 0
    per_session = present.sum(axis=1)
    return Findings(
        anomalies={code: anomalies[code] for code in CATALOGUE},
        rows={
            "expected": present.size,
            "visible": reads.finals,
            "visible_distinct": int(present.sum()),
            "lost": anomalies["LOSS"].count,
            "duplicated": anomalies["DUP"].count,
            "pending": visible.anomalies["PEND"].count,
            "corrupt": anomalies["CORR"].count,
            "phantom": anomalies["PHAN"].count,
        },
        sessions={
            "planned": record.plan.sessions,
            "acknowledged": _acknowledged_sessions(record),
            "finished": len(expected.session_keys),
            "unfinished": len(expected.unfinished),
            "visible": int((per_session == expected.rows).sum()),
            "torn": anomalies["TORN"].count,
            "lost": int(((per_session == 0) & visible.covered).sum()),
        },
        events={
            "in_topic": input_rows,
            "invalid": len(expected.invalid.reason),
            "foreign": source.foreign_events,
            "quarantined": record.quarantine.table.num_rows,
            "quarantined_for_another_reason": quarantine.wrong_reason,
            **({} if expected.parts is None or expected.parts.late is None else {"late": expected.parts.late}),
        },
        invalid=expected.invalid.counts(),
        latency=_latency(
            expected,
            reads,
            rows.expected_row,
            present,
            record.plan.started_us + round(warmup_s * 1e6),
            _stamped(record),
        ),
        complete={
            "input": record.input.complete,
            "final": record.final.complete and record.ends.get("final_complete") is True,
            "observed": record.observed.complete,
            "quarantine": record.quarantine.complete,
        },
        drained=drained,
    )


def committed_ends(progress: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Returns the committed end of each input partition, from the lines of a kind in `READ`."""
    ends: dict[int, int] = {}
    for line in progress:
        if line.get("kind") not in READ:
            continue
        try:
            for partition, offset in line["end_offsets"].items():
                ends[int(partition)] = max(int(offset), ends.get(int(partition), 0))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(
                f"progress.jsonl has a {line['kind']} line without usable end_offsets ({dict(line)!r}). A pipeline of "
                "another version wrote it: judge the run with that version"
            ) from error
    return ends


def covered_sessions(expected: Expected, ends: Mapping[int, int]) -> Bools:
    """[sessions] Whether all events of the session lie below the committed ends."""
    covered = np.zeros(len(expected.session_keys), dtype=bool)
    for partition, end in ends.items():
        covered |= (expected.last_partition == partition) & (expected.last_offset < end)
    for session, bounds in expected.earlier.items():
        covered[session] &= all(offset < ends.get(partition, 0) for partition, offset in bounds)
    return covered


def _drained(timeline: Iterable[Mapping[str, Any]]) -> bool | None:
    """Whether the last of the supervisor's end events is `drained`; None without such an event."""
    ends = [line["event"] for line in timeline if line.get("event") in (events.DRAINED, events.STALLED)]
    return ends[-1] == events.DRAINED if ends else None


def _stall(pending: Anomaly, drained: bool | None) -> dict[str, Anomaly]:
    """In a run that timed out, pending rows are stalled; the count is at least 1."""
    if drained is not False:
        return {"STALL": Anomaly()}
    return {"PEND": Anomaly(), "STALL": Anomaly(max(1, pending.count), pending.examples)}


def _leftovers(found: Sequence[str]) -> Anomaly:
    return Anomaly(len(found), tuple({"what": each} for each in sorted(found)[:EXAMPLES]))


def _read_ends(record: Record) -> Mapping[int, int]:
    """Returns the end of the final read per partition: the recorded last stable offset."""
    if not record.ends.get("output_is_log", True):
        return EVERYWHERE
    return {int(partition): end["lso"] for partition, end in record.ends.get("output", {}).items()}


def _acknowledged_sessions(record: Record) -> int:
    acknowledged = record.ledger.session[record.ledger.acked_us > 0]
    planned = np.bincount(record.ledger.session)
    return int(((planned > 0) & (np.bincount(acknowledged, minlength=len(planned)) == planned)).sum())


@dataclass(frozen=True)
class Sightings:
    """Each expected row that the observer saw, once, by row id; times are in epoch µs.

    Attributes:
        ended_us: when the session's end event was scheduled.
        written_us: when the row was written; None for a sink without write times.
        seen_us: when the observer first saw the row.
        events: of the row; a number that all rows have, or one for each.
    """

    ended_us: Ints
    written_us: Ints | None
    seen_us: Ints
    events: Ints | int = EVENTS_PER_ROW

    @property
    def latency_us(self) -> Ints:
        """From the scheduled end event to the first sighting; may be negative."""
        return self.seen_us - self.ended_us


def first_sightings(record: Record, expected: Expected, joined: Joined | None = None) -> Sightings:
    """Returns when each expected row was due, written, and first seen."""
    joined = joined or Joined.of(record, expected)
    reads = joined.reads
    place, rows = _first_seen(reads, joined.rows.expected_row)
    written_us = _middle_us(reads.append_ms[rows]) if _stamped(record) else None
    ended_us = expected.ended_at.reshape(-1)[place]
    return Sightings(ended_us, written_us, reads.seen_us[rows], expected.events_of_rows(place))


def multiplicity(record: Record, expected: Expected, joined: Joined | None = None) -> Ints:
    """[sessions, 20] How often each expected row is visible at the end."""
    joined = joined or Joined.of(record, expected)
    rows = joined.rows.expected_row[: joined.reads.finals]
    counts = np.bincount(rows[rows >= 0], minlength=expected.ended_at.size)
    return counts.reshape(-1, expected.rows)


def _first_seen(reads: Reads, expected_row: Ints) -> tuple[Ints, Ints]:
    """Returns places (session * rows + j) of expected rows seen, and the first row of `reads`."""
    rows = np.flatnonzero((reads.seen_us > 0) & (expected_row >= 0))
    rows = rows[np.argsort(reads.seen_us[rows], kind="stable")]
    place, first = np.unique(expected_row[rows], return_index=True)
    return place, rows[first]


def _middle_us(stamp_ms: Ints) -> Ints:
    """Converts to µs. Stamps are cut off to whole ms, so the mean true time is 0.5 ms later."""
    return stamp_ms * 1000 + 500


def _stamped(record: Record) -> bool:
    # Older runs do not record `stamped`. For sinks without a log they recorded the time of a look instead.
    return bool(record.ends.get("stamped", record.ends.get("output_is_log", True)))


def _latency(
    expected: Expected, reads: Reads, expected_row: Ints, present: Bools, from_us: int, stamped: bool
) -> Latency:
    """Measures first sightings; the latencies take rows due at `from_us` or later."""
    place, rows = _first_seen(reads, expected_row)
    seen = np.zeros(present.size, dtype=np.int64)
    seen[place] = reads.seen_us[rows]
    ended_at = expected.ended_at.reshape(-1)[place]
    counted = ended_at >= from_us
    seen_us = reads.seen_us[rows]
    unseen = present.reshape(-1) & (seen == 0)
    later = int((unseen & (expected.ended_at.reshape(-1) >= from_us)).sum())
    sessions = seen.reshape(-1, expected.rows)
    torn = sessions.min(axis=1) < sessions.max(axis=1)  # 0: not seen
    return Latency(
        visible=Distribution.of((seen_us - ended_at)[counted] / 1e3, later),
        gap=Distribution.of((seen_us - _middle_us(reads.append_ms[rows]))[counted & stamped] / 1e3, later * stamped),
        torn_sessions=int(torn.sum()),
        unseen=int(unseen.sum()),
    )
