"""Anomalies of the input: generator faults (SRC), foreign events, and the quarantine (QUAR).

Promise: an acknowledged event must be in the input topic exactly once, at the acknowledged position. An invalid event
must be in quarantine at least once, with its bytes or, where the copy was cut, their beginning. Nothing else may be
there, except the events of an unfinished session whose timer fired; these come without a position. Events that the
generator never attempted are foreign. They are counted and no fault, because a user may add events of their own to the
topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebench.audit.anomalies import EXAMPLES, Anomaly
from oncebench.audit.python.events import REASONS, SEQS
from oncebench.audit.python.history.accepted import Accepted
from oncebench.audit.python.history.copies import Copy, Part, changed
from oncebench.audit.python.history.evidence import NEVER_ENDED, source_position, without_spaces
from oncebench.audit.python.model import Events, Expected
from oncebench.audit.python.records import (
    PIECE_ROWS,
    Ints,
    pieces,
    position_of,
    unpack,
)
from oncebench.record import Ledger, Plan
from oncebench.record.streams import Stream

STEP = 1_000_000  # events or ledger entries compared at a time: some 50 MB
_NONE: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class Source:
    """The generator's faults, how many events in the topic are not its own, and accepted losses."""

    faults: Anomaly
    foreign_events: int
    accepted: Anomaly = field(default_factory=Anomaly)


@dataclass(frozen=True)
class Quarantined:
    """Quarantine faults; `wrong_reason` counts records with another reason than the model's."""

    faults: Anomaly = field(default_factory=Anomaly)
    wrong_reason: int = 0


def judge_source(ledger: Ledger, plan: Plan, expected: Expected, input_rows: int, accepted: Accepted) -> Source:
    """Compares the ledger with the input topic, which has `input_rows` records, valid or not."""
    row_of = np.full(plan.sessions * SEQS, -1, dtype=np.int32)
    row_of[ledger.session.astype(np.int64) * SEQS + ledger.seq] = np.arange(len(ledger.seq), dtype=np.int32)
    copies, position = _own_events(ledger, row_of, _planned_sessions(expected.keys, plan), expected.events)
    found: dict[str, list[Ints]] = {"absent": [], "twice": [], "elsewhere": [], "accepted": []}
    for first in range(0, len(ledger.seq), STEP):
        rows = slice(first, first + STEP)
        acked = ledger.acked_us[rows] > 0
        known = ledger.offset[rows] >= 0  # an acknowledgement need not have a position
        elsewhere = acked & (copies[rows] == 1) & known
        at = np.flatnonzero(elsewhere)
        acknowledged_at = position_of(ledger.partition[rows][at], ledger.offset[rows][at])
        absent = acked & (copies[rows] == 0)
        gap = absent & known & accepted.records(ledger.partition[rows], ledger.offset[rows])
        found["absent"].append(first + np.flatnonzero(absent & ~gap))
        found["accepted"].append(first + np.flatnonzero(gap))
        found["twice"].append(first + np.flatnonzero(acked & (copies[rows] > 1)))
        found["elsewhere"].append(first + at[acknowledged_at != position[rows][at]])
        ledger.release()
    faults = {kind: np.concatenate(places) if places else _NONE for kind, places in found.items()}
    examples = {
        kind: [
            {
                "session_key": _key(plan, int(ledger.session[at])),
                "seq": int(ledger.seq[at]),
                "kind": kind,
                "acknowledged_at": [int(ledger.partition[at]), int(ledger.offset[at])],
            }
            for at in places[:EXAMPLES].tolist()
        ]
        for kind, places in faults.items()
    }
    gap = Anomaly(len(faults.pop("accepted")), tuple(examples.pop("accepted")))
    split = {kind: len(places) for kind, places in faults.items()}
    own = int(copies.sum(dtype=np.int64))
    shown = tuple(chain.from_iterable(examples.values()))[:EXAMPLES]
    return Source(Anomaly(sum(split.values()), shown, split), input_rows - own, gap)


def _own_events(
    ledger: Ledger, row_of: npt.NDArray[np.int32], session_of: Ints, events: Events
) -> tuple[npt.NDArray[np.int32], Ints]:
    """Returns the copies of each planned event in the topic, and the position of one of them.

    Args:
        row_of: the ledger's row of each planned event, session * 100 + seq.
        session_of: the planned session of each key, or -1.
    """
    copies, position = np.zeros(len(ledger.seq), np.int32), np.full(len(ledger.seq), -1, np.int64)
    for first in range(0, len(events.key) if len(row_of) else 0, STEP):
        piece = slice(first, first + STEP)
        session = session_of[events.key[piece]]
        row = np.where(session >= 0, row_of[np.maximum(session, 0) * SEQS + events.seq[piece]], -1)
        own = row >= 0
        sent = row[own]
        own[own] = (ledger.scheduled_us[sent] == events.scheduled_us[piece][own]) & (ledger.sent_us[sent] > 0)
        row = row[own]
        np.add.at(copies, row, 1)
        position[row] = events.position[piece][own]
        ledger.release()
    return copies, position


def _key(plan: Plan, session: int) -> str:
    return f"{plan.seed:x}-{session:08d}"


def _planned_sessions(keys: list[str], plan: Plan) -> Ints:
    """Returns the number of each session key in the plan; -1 if it is not planned."""
    planned = {_key(plan, session): session for session in range(plan.sessions)}
    return np.array([planned.get(key, -1) for key in keys], dtype=np.int64)


def judge_quarantine(quarantine: Stream, expected: Expected, source: Stream) -> Quarantined:
    """Compares the quarantine with the invalid events of the input `source`; copies are allowed."""
    invalid = expected.invalid
    wanted = dict(zip(invalid.position.tolist(), invalid.reason.tolist(), strict=True))
    found: dict[int, set[Copy]] = {}
    without_position: list[list[int]] = []
    wrong_reason = 0
    for item in _items(quarantine):
        partition, offset, key, value = (item[name] for name in ("source_partition", "source_offset", "key", "value"))
        timed_out = (partition, offset, item["reason"]) == (None, None, NEVER_ENDED)
        if timed_out and (key, without_spaces(value)) in expected.never_ended:
            continue
        position = source_position(partition, offset)
        if position is None:
            without_position.append([item["partition"], item["offset"]])
            continue
        parts = Part.of(key, item["key_bytes"]), Part.of(value, item["value_bytes"])
        found.setdefault(position, set()).add(parts)
        wrong_reason += position in wanted and item["reason"] != REASONS[wanted[position]]
    kinds = {
        "missing": sorted(wanted.keys() - found.keys()),
        "unasked": sorted(found.keys() - wanted.keys()),
        "changed": changed(found, sorted(found.keys() & wanted.keys()), source),
    }
    split = {kind: len(positions) for kind, positions in kinds.items()}
    split["unasked"] += len(without_position)
    examples: list[dict[str, Any]] = [
        {"kind": kind, "input": [list(unpack(position))], "reason": _reason(wanted.get(position))}
        for kind, positions in kinds.items()
        for position in positions[:EXAMPLES]
    ]
    examples += [{"kind": "unasked", "input": [], "row": row} for row in without_position[:EXAMPLES]]
    return Quarantined(Anomaly(sum(split.values()), tuple(examples[:EXAMPLES]), split), wrong_reason)


def _items(quarantine: Stream) -> Iterator[dict[str, Any]]:
    """Yields the records in quarantine; few are in memory at a time."""
    for _, batch in pieces(quarantine.table, PIECE_ROWS, quarantine.release):
        yield from batch.to_pylist()


def _reason(code: int | None) -> str | None:
    return None if code is None else REASONS[code]
