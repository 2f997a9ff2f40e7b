"""The audit: a pure function from what a run recorded to what is wrong with it, and how late each row was.

Promise: it reads nothing but the record, changes nothing, and gives the same findings whatever the order of
rows in the files; every count follows the rule of its code in `anomalies.CATALOGUE`. It does not say what is
allowed: that is `verdict`.

What can go wrong: a record whose reads are incomplete is judged all the same, on what there is; the findings
say which reads were whole (`Findings.complete`), and the verdict is then `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from oncebench.audit.anomalies import CATALOGUE, EXAMPLES, Anomaly
from oncebench.audit.python.batches import judge_lost_commits, judge_torn
from oncebench.audit.python.inputs import judge_quarantine, judge_source
from oncebench.audit.python.latency import Distribution
from oncebench.audit.python.log import Log, judge_aborted, judge_exposed, judge_stale
from oncebench.audit.python.model import ROWS, Expected, Ints, expected_output
from oncebench.audit.python.outputs import Bools, read_outputs
from oncebench.audit.python.reads import EVERYWHERE, Reads, bring_together
from oncebench.audit.python.stuck import judge_stuck
from oncebench.audit.python.visible import Explainer, Rows, expected_row_of, explain_inconsistent, judge_rows
from oncebench.record import Record, RecordError

DRAINED = "drained"  # timeline event: everything the load sent was processed and committed
STALLED = "stalled"  # timeline event: the supervisor's patience ended before that


@dataclass(frozen=True)
class Latency:
    """Times of the first sighting of each expected row, in ms.

    `visible`: from the scheduled end event; `gap`: from when the row was written (the part a commit adds), of a sink
    that tells it.
    `torn_sessions`: sessions a reader saw in part before it saw the rest, or never saw whole; `torn_span`:
    from their first row to their last. `unseen`: visible expected rows that the observer did not see.
    """

    visible: Distribution = field(default_factory=Distribution)
    gap: Distribution = field(default_factory=Distribution)
    torn_sessions: int = 0
    torn_span: Distribution = field(default_factory=Distribution)
    unseen: int = 0


@dataclass(frozen=True)
class Findings:
    """What the audit found. `anomalies` has every code of the catalogue, also those with count 0.

    `complete`: which of the reads input, final, observed, quarantine were whole. `drained`: None if the run
    does not say.
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
        """The codes that occurred, with their counts."""
        return {code: anomaly.count for code, anomaly in self.anomalies.items() if anomaly.count}

    def to_json(self) -> dict[str, Any]:
        """Plain objects, for a report."""
        return asdict(self)


def audit(record: Record, *, expected: Expected | None = None, warmup_s: float = 0.0) -> Findings:
    """Judge a record.

    `expected`: the model's rows, if the caller has them already. `warmup_s`: rows whose end event was
    scheduled less than this after the start of the load are left out of the latencies (of nothing else).
    """
    expected = expected_output(record.input.table) if expected is None else expected
    reads = bring_together(record.final, record.observed, _read_ends(record))
    outputs = read_outputs(reads.key, reads.value)
    expected_row = expected_row_of(expected, outputs)
    rows = Rows(reads.partition, reads.offset, reads.value, outputs, expected_row)
    final = rows.head(reads.finals)
    covered = _covered(expected, committed_ends(record.progress.items))
    visible = judge_rows(expected, final, covered, is_log=bool(record.ends.get("output_is_log", True)))
    log = Log.of(record.log.table)
    input_rows = _distinct_positions(record)
    source = judge_source(record.ledger, record.plan, expected, input_rows)
    quarantine = judge_quarantine(record.quarantine.table, expected, record.input.table)
    drained = _drained(record.timeline.items)
    anomalies = {
        **visible.anomalies,
        **_stall(visible.anomalies["PEND"], drained),
        "STALL-LSO": judge_stuck(record.ends.get("output", {}), record.ends.get("open_transactions", [])),
        "SRC": source.faults,
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
            "visible": int((per_session == ROWS).sum()),
            "torn": anomalies["TORN"].count,
            "lost": int(((per_session == 0) & covered).sum()),
        },
        events={
            "in_topic": input_rows,
            "invalid": len(expected.invalid.reason),
            "foreign": source.foreign_events,
            "quarantined": record.quarantine.table.num_rows,
            "quarantined_for_another_reason": quarantine.wrong_reason,
        },
        invalid=expected.invalid.counts(),
        latency=_latency(
            expected, reads, expected_row, present, record.plan.started_us + round(warmup_s * 1e6), _stamped(record)
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
    """Per input partition, the end of the batches that are in Spark's commit log (lines of kind `batch`)."""
    ends: dict[int, int] = {}
    for line in progress:
        if line.get("kind") != "batch":
            continue
        try:
            for partition, offset in line["end_offsets"].items():
                ends[int(partition)] = max(int(offset), ends.get(int(partition), 0))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(
                f"progress.jsonl has a batch line without usable end_offsets ({dict(line)!r}); the pipeline "
                "that wrote it is of another version: judge the run with that version"
            ) from error
    return ends


def _covered(expected: Expected, ends: Mapping[int, int]) -> Bools:
    """[sessions] whether the session's last event lies below the committed end of its partition."""
    covered = np.zeros(len(expected.session_keys), dtype=bool)
    for partition, end in ends.items():
        covered |= (expected.last_partition == partition) & (expected.last_offset < end)
    for session, bounds in expected.earlier.items():
        covered[session] &= all(offset < ends.get(partition, 0) for partition, offset in bounds)
    return covered


def _drained(timeline: Iterable[Mapping[str, Any]]) -> bool | None:
    """What the supervisor said last about the end of the run."""
    said = [line["event"] for line in timeline if line.get("event") in (DRAINED, STALLED)]
    return said[-1] == DRAINED if said else None


def _stall(pending: Anomaly, drained: bool | None) -> dict[str, Anomaly]:
    """After the run's patience ended, what is pending is stalled; at least one, since the run did stall."""
    if drained is not False:
        return {"STALL": Anomaly()}
    return {"PEND": Anomaly(), "STALL": Anomaly(max(1, pending.count), pending.examples)}


def _leftovers(found: Sequence[str]) -> Anomaly:
    return Anomaly(len(found), tuple({"what": each} for each in sorted(found)[:EXAMPLES]))


def _read_ends(record: Record) -> Mapping[int, int]:
    """End of the final read per partition: the recorded last stable offset."""
    if not record.ends.get("output_is_log", True):
        return EVERYWHERE
    return {int(partition): end["lso"] for partition, end in record.ends.get("output", {}).items()}


def _distinct_positions(record: Record) -> int:
    table = record.input.table.select(["partition", "offset"])
    return int(table.group_by(["partition", "offset"]).aggregate([]).num_rows)


def _acknowledged_sessions(record: Record) -> int:
    acknowledged = record.ledger.session[record.ledger.acked_us > 0]
    planned = np.bincount(record.ledger.session, minlength=1)
    return int(((planned > 0) & (np.bincount(acknowledged, minlength=len(planned)) == planned)).sum())


@dataclass(frozen=True)
class Sightings:
    """Each expected row that the observer saw, once, in the order of row ids; epoch µs.

    `ended_us`: when its session's end event was scheduled. `written_us`: when the row was written, if the sink tells,
    else None. `seen_us`: when the observer was first shown it.
    """

    ended_us: Ints
    written_us: Ints | None
    seen_us: Ints

    @property
    def latency_us(self) -> Ints:
        """From the scheduled end event to the first sighting; may be negative."""
        return self.seen_us - self.ended_us


def first_sightings(record: Record, expected: Expected) -> Sightings:
    """When each expected row was due, written, and first seen."""
    reads = bring_together(record.final, record.observed, _read_ends(record))
    place, rows = _first_seen(reads, expected_row_of(expected, read_outputs(reads.key, reads.value)))
    written_us = _middle_us(reads.append_ms[rows]) if _stamped(record) else None
    return Sightings(expected.ended_at.reshape(-1)[place], written_us, reads.seen_us[rows])


def multiplicity(record: Record, expected: Expected) -> Ints:
    """[sessions, 20] how often each expected row is visible at the end."""
    reads = bring_together(record.final, record.observed, _read_ends(record))
    rows = expected_row_of(expected, read_outputs(reads.key, reads.value))[: reads.finals]
    counts = np.bincount(rows[rows >= 0], minlength=expected.ended_at.size)
    return counts.reshape(-1, ROWS)


def _first_seen(reads: Reads, expected_row: Ints) -> tuple[Ints, Ints]:
    """Places (session * 20 + j) of the expected rows that were seen, and the row of `reads` that was seen first."""
    rows = np.flatnonzero((reads.seen_us > 0) & (expected_row >= 0))
    rows = rows[np.argsort(reads.seen_us[rows], kind="stable")]
    place, first = np.unique(expected_row[rows], return_index=True)
    return place, rows[first]


def _middle_us(stamp_ms: Ints) -> Ints:
    """Brokers and file systems cut stamps off to whole milliseconds: what was meant lies half of one later, in the
    mean."""
    return stamp_ms * 1000 + 500


def _stamped(record: Record) -> bool:
    # Older runs do not say; of those that are none, what was kept was the time of a look.
    return bool(record.ends.get("stamped", record.ends.get("output_is_log", True)))


def _latency(
    expected: Expected, reads: Reads, expected_row: Ints, present: Bools, from_us: int, stamped: bool
) -> Latency:
    """First sightings of expected rows; in the latencies, of those scheduled to end at `from_us` or later."""
    place, rows = _first_seen(reads, expected_row)
    seen = np.zeros(present.size, dtype=np.int64)
    seen[place] = reads.seen_us[rows]
    ended_at = expected.ended_at.reshape(-1)[place]
    counted = ended_at >= from_us
    seen_us = reads.seen_us[rows]
    sessions = seen.reshape(-1, ROWS)
    any_seen = (sessions > 0).any(axis=1)
    low = np.where(sessions > 0, sessions, np.iinfo(np.int64).max).min(axis=1)
    high = sessions.max(axis=1)
    torn = any_seen & ((low < high) | (sessions == 0).any(axis=1))
    return Latency(
        visible=Distribution.of((seen_us - ended_at)[counted] / 1e3),
        gap=Distribution.of((seen_us - _middle_us(reads.append_ms[rows]))[counted & stamped] / 1e3),
        torn_sessions=int(torn.sum()),
        torn_span=Distribution.of((high - low)[torn] / 1e3),
        unseen=int((present.reshape(-1) & (seen == 0)).sum()),
    )
