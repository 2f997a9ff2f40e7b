"""Anomalies of the output's log, from each stretch's writer and its transaction's outcome.

STALL-LSO is found by the rule of KIP-664's find-hanging, from the reports of partitions and coordinators at the end of
a run. A hanging or delayed transaction keeps the last stable offset in its place.

Promise: arithmetic on the positions of stretches and of visible rows, never on totals. A sink without such a log has no
stretches, and nothing is counted.

What can go wrong: the log was not read to its end. Then the stretches that are there are judged, and the verdict is
`unknown`. The run recorded no open transactions. Then the kind of STALL-LSO is `untold`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncebench.audit.anomalies import EXAMPLES, Anomaly
from oncebench.audit.python.model import Expected
from oncebench.audit.python.records import Ints, position_of, unpack
from oncebench.audit.python.visible import Explainer, Rows

COMMITTED, ABORTED, OPEN, PLAIN = "committed", "aborted", "open", "plain"
_ENDS = {"commit": COMMITTED, "abort": ABORTED}
HANGING, DELAYED, UNKNOWN = "hanging", "delayed", "untold"
# States in which a coordinator still has to end a transaction.
RUNNING = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
# The broker checks for timed-out transactions every 10 s (transaction.abort.timed.out.transaction.cleanup.interval.ms).
CLEANUP_MS = 10_000


@dataclass(frozen=True)
class Log:
    """Stretches with records, in the order of their positions (see `reads.position_of`).

    Attributes:
        fate: how the transaction of each ended: COMMITTED, ABORTED, OPEN, or PLAIN for a stretch without one.
        generation: -1 if it is not known.
    """

    first: Ints
    last: Ints
    records: Ints
    producer: Ints
    generation: Ints
    fate: tuple[str, ...]

    @staticmethod
    def of(table: pa.Table) -> Log:
        """Converts the recorded log."""
        first = position_of(table["partition"].to_numpy(), table["offset"].to_numpy())
        order = np.argsort(first, kind="stable")
        table = table.take(pa.array(order))
        kept = pc.is_null(table["marker"]).to_numpy()
        return Log(
            first=first[order][kept],
            last=position_of(table["partition"].to_numpy(), table["last_offset"].to_numpy())[kept],
            records=table["records"].to_numpy().astype(np.int64)[kept],
            producer=table["producer"].to_numpy()[kept],
            generation=pc.fill_null(table["generation"], -1).to_numpy()[kept],
            fate=_fates(table),
        )

    def holding(self, position: Ints) -> Ints:
        """Returns the number of the stretch that holds each position; -1 if none does."""
        at = np.searchsorted(self.first, position, side="right") - 1
        inside = at >= 0
        inside[inside] = position[inside] <= self.last[at[inside]]
        return np.where(inside, at, -1)

    def describe(self, at: int) -> dict[str, Any]:
        """Returns a stretch, for an example."""
        partition, offset = unpack(int(self.first[at]))
        generation = int(self.generation[at])
        return {
            "rows": [partition, offset, unpack(int(self.last[at]))[1]],
            "records": int(self.records[at]),
            "producer": int(self.producer[at]),
            "generation": None if generation < 0 else generation,
            "transaction": self.fate[at],
        }


def judge_exposed(log: Log, visible: Ints) -> Anomaly:
    """EXPO: records that a committed reader, at the positions `visible`, does not get."""
    held = log.holding(visible)
    hidden = log.records - np.bincount(held[held >= 0], minlength=len(log.records))
    split = dict.fromkeys((COMMITTED, ABORTED, OPEN, PLAIN), 0)
    for at in np.flatnonzero(hidden).tolist():
        split[log.fate[at]] += int(hidden[at])
    examples = tuple(log.describe(at) for at in np.flatnonzero(hidden)[:EXAMPLES].tolist())
    return Anomaly(int(hidden.sum()), examples, split)


def judge_stale(log: Log, expected: Expected, rows: Rows) -> Anomaly:
    """STALE: visible rows of an older driver behind a record of a newer one, in one partition.

    The offsets of the rows count, and not the markers: a newer driver may commit what an older one has prepared. The
    newer driver's record need not be visible. A row of unknown generation is neither older nor newer.
    """
    held = log.holding(rows.position)
    newer = np.empty(len(log.first), np.int64)  # the newest stretch before each one, in its partition, or -1
    newest: dict[int, int] = {}
    for at, (first, generation) in enumerate(zip(log.first.tolist(), log.generation.tolist(), strict=True)):
        partition, _ = unpack(first)
        best = newer[at] = newest.get(partition, -1)
        if generation >= 0 and (best < 0 or generation > log.generation[best]):
            newest[partition] = at
    late = (log.generation >= 0) & (newer >= 0)
    late[late] = log.generation[late] < log.generation[newer[late]]
    stale = np.flatnonzero(np.r_[late, False][held])  # -1, in no stretch, is not late
    stretches = [log.describe(at) | {"after": log.describe(int(newer[at]))} for at in held[stale[:EXAMPLES]].tolist()]
    examples = Explainer(expected, rows).positions(stale)
    return Anomaly(len(stale), tuple({**row, "in": where} for row, where in zip(examples, stretches, strict=True)))


def judge_aborted(log: Log, expected: Expected, rows: Rows, ended: int) -> Anomaly:
    """G1a: positions that a committed reader got, of a transaction that was not committed.

    Kafka's clients skip aborted records by a list that the broker sends. This check uses only the markers in the log.

    Args:
        rows: the rows of the final read, then those that only the observer saw.
        ended: for how many of the rows the log must have the end of the transaction: all rows of the final read, or 0
            if the log was not read to its end. The transactions of the other rows may end later.
    """
    held = log.holding(rows.position)
    aborted, still_open = (np.array([fate == end for fate in log.fate], dtype=bool) for end in (ABORTED, OPEN))
    inside = np.flatnonzero(held >= 0)
    wrong = inside[aborted[held[inside]] | (still_open[held[inside]] & (inside < ended))]
    split = dict.fromkeys((ABORTED, OPEN), 0)
    for at in held[wrong].tolist():
        split[log.fate[at]] += 1
    stretches = [log.describe(at) for at in held[wrong[:EXAMPLES]].tolist()]
    positions = Explainer(expected, rows).positions(wrong)
    examples = tuple({**row, "in": where} for row, where in zip(positions, stretches, strict=True))
    return Anomaly(len(wrong), examples, split)


def judge_stuck(ends: Mapping[str, Mapping[str, int]], open_: Sequence[Mapping[str, Any]]) -> Anomaly:
    """STALL-LSO, per partition. `open_`: the transactions that are open in these partitions.

    A partition is HANGING if one of its transactions hangs, DELAYED if it has transactions and none hangs, and UNKNOWN
    without a recorded transaction.
    """
    split = dict.fromkeys((HANGING, DELAYED, UNKNOWN), 0)
    stuck: list[dict[str, Any]] = []
    for partition, end in sorted(ends.items(), key=lambda item: int(item[0])):
        if end["lso"] >= end["hw"]:
            continue
        here = [each for each in open_ if each["partition"] == int(partition)]
        kind = UNKNOWN if not here else HANGING if any(map(is_hanging, here)) else DELAYED
        split[kind] += 1
        stuck.append({"partition": int(partition), "lso": end["lso"], "hw": end["hw"], "kind": kind, "open": here})
    return Anomaly(len(stuck), tuple(stuck[:EXAMPLES]), split)


def is_hanging(transaction: Mapping[str, Any]) -> bool:
    """Whether no coordinator will end it: none runs it in the partition, or it is overdue."""
    if transaction["state"] not in RUNNING or not transaction["here"]:
        return True
    age_ms = int(transaction["asked_ms"]) - int(transaction["started_ms"])
    return age_ms > int(transaction["timeout_ms"]) + CLEANUP_MS


def _fates(table: pa.Table) -> tuple[str, ...]:
    """Returns each stretch's fate: the next marker of its producer in its partition."""
    fates: list[str] = []
    ends: dict[tuple[int, int], str] = {}
    columns = (table[name].to_pylist() for name in ("partition", "producer", "transactional", "marker"))
    for partition, producer, transactional, marker in reversed(list(zip(*columns, strict=True))):
        if marker is not None:
            ends[partition, producer] = _ENDS[marker]
        else:
            fates.append(ends.get((partition, producer), OPEN) if transactional else PLAIN)
    return tuple(reversed(fates))
