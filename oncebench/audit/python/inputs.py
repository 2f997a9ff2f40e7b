"""Anomalies of the input: generator faults (SRC), foreign events, and the quarantine (QUAR).

Promise: an acknowledged event must be in the input topic exactly once, at the acknowledged position. An invalid event
must be in quarantine at least once, with its bytes or, where the copy was cut, their beginning. Nothing else may be
there, except the events of an unfinished session whose timer fired; these come without a position. Events that the
generator never attempted are foreign. They are counted and no fault, because a user may add events of their own to the
topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncebench.audit.anomalies import EXAMPLES, Anomaly
from oncebench.audit.python.events import REASONS, SEQS
from oncebench.audit.python.model import Events, Expected
from oncebench.audit.python.records import (
    OFFSET_BITS,
    PARTITION_BITS,
    Ints,
    contents,
    in_position_order,
    position_of,
    unpack,
)
from oncebench.record import Ledger, Plan

STEP = 1_000_000  # events or ledger entries compared at a time: some 50 MB
_NONE: Ints = np.empty(0, np.int64)
Bytes = tuple[bytes | None, bytes | None]
_COPY = ("key", "key_bytes", "value", "value_bytes")  # what of a copy must fit its original
Copy = tuple[Any, ...]
NEVER_ENDED = "never-ended"  # quarantine reason of a session that left the state unfinished


@dataclass(frozen=True)
class Source:
    """The generator's faults, and how many events in the topic are not its own."""

    faults: Anomaly
    foreign_events: int


@dataclass(frozen=True)
class Quarantined:
    """Quarantine faults; `wrong_reason` counts records with another reason than the model's."""

    faults: Anomaly = field(default_factory=Anomaly)
    wrong_reason: int = 0


def judge_source(ledger: Ledger, plan: Plan, expected: Expected, input_rows: int) -> Source:
    """Compares the ledger with the input topic, which has `input_rows` records, valid or not."""
    row_of = np.full(plan.sessions * SEQS, -1, dtype=np.int32)
    row_of[ledger.session.astype(np.int64) * SEQS + ledger.seq] = np.arange(len(ledger.seq), dtype=np.int32)
    copies, position = _own_events(ledger, row_of, _planned_sessions(expected.keys, plan), expected.events)
    found: dict[str, list[Ints]] = {"absent": [], "twice": [], "elsewhere": []}
    for first in range(0, len(ledger.seq), STEP):
        rows = slice(first, first + STEP)
        acked = ledger.acked_us[rows] > 0
        known = ledger.offset[rows] >= 0  # an acknowledgement need not have a position
        elsewhere = acked & (copies[rows] == 1) & known
        at = np.flatnonzero(elsewhere)
        acknowledged_at = position_of(ledger.partition[rows][at], ledger.offset[rows][at])
        found["absent"].append(first + np.flatnonzero(acked & (copies[rows] == 0)))
        found["twice"].append(first + np.flatnonzero(acked & (copies[rows] > 1)))
        found["elsewhere"].append(first + at[acknowledged_at != position[rows][at]])
        ledger.release()
    faults = {kind: np.concatenate(places) if places else _NONE for kind, places in found.items()}
    examples = [
        {
            "session_key": _key(plan, int(ledger.session[at])),
            "seq": int(ledger.seq[at]),
            "kind": kind,
            "acknowledged_at": [int(ledger.partition[at]), int(ledger.offset[at])],
        }
        for kind, places in faults.items()
        for at in places[:EXAMPLES].tolist()
    ]
    split = {kind: len(places) for kind, places in faults.items()}
    own = int(copies.sum(dtype=np.int64))
    return Source(Anomaly(sum(split.values()), tuple(examples[:EXAMPLES]), split), input_rows - own)


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


def judge_quarantine(quarantine: pa.Table, expected: Expected, source: pa.Table) -> Quarantined:
    """Compares the quarantine with the invalid events of the input `source`; copies are allowed."""
    invalid = expected.invalid
    wanted = dict(zip(invalid.position.tolist(), invalid.reason.tolist(), strict=True))
    found: dict[int, set[Copy]] = {}
    without_position: list[list[int]] = []
    wrong_reason = 0
    unfinished = {key.encode() for key in expected.unfinished}
    for item in quarantine.to_pylist():
        partition, offset = item["source_partition"], item["source_offset"]
        if (partition, offset, item["reason"]) == (None, None, NEVER_ENDED) and item["key"] in unfinished:
            continue
        if (
            partition is None
            or offset is None
            or not (0 <= partition < 2**PARTITION_BITS and 0 <= offset < 2**OFFSET_BITS)
        ):
            without_position.append([item["partition"], item["offset"]])
            continue
        position = (partition << OFFSET_BITS) | offset
        found.setdefault(position, set()).add(tuple(item[name] for name in _COPY))
        wrong_reason += position in wanted and item["reason"] != REASONS[wanted[position]]
    original = _records_at(source, sorted(found.keys() & wanted.keys()))
    kinds = {
        "missing": sorted(wanted.keys() - found.keys()),
        "unasked": sorted(found.keys() - wanted.keys()),
        "changed": [
            position
            for position, record in original.items()
            if not all(_is_copy(copy, record) for copy in found[position])
        ],
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


def _is_copy(copy: Copy, original: Bytes) -> bool:
    key, key_bytes, value, value_bytes = copy
    return _is_part(key, key_bytes, original[0]) and _is_part(value, value_bytes, original[1])


def _is_part(copy: bytes | None, length: int | None, original: bytes | None) -> bool:
    """Whether a copy is the original, or, if it has the original's length, the original's beginning."""
    if length is None or copy is None or original is None:
        return length is None and copy == original
    return len(copy) < length == len(original) and original.startswith(copy)


def _reason(code: int | None) -> str | None:
    return None if code is None else REASONS[code]


def _records_at(source: pa.Table, positions: list[int]) -> dict[int, Bytes]:
    """Returns key and value of the input records at packed positions; all of them exist."""
    if not positions:
        return {}
    position, order = in_position_order(source)
    rows = order[np.searchsorted(position, positions)]
    keys, values = (contents(source[name], rows).to_pylist() for name in ("key", "value"))
    return dict(zip(positions, zip(keys, values, strict=True), strict=True))
