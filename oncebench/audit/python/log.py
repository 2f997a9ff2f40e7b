"""What the log beneath an output tells: who wrote each stretch of it, and how its transaction ended.

Promise: arithmetic on the positions of stretches and of visible rows, never on totals. A sink whose log tells nothing
has no stretches, and nothing is counted. What can go wrong: a log that was read in part is judged on what there is; the
verdict is then `unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncebench.audit.anomalies import EXAMPLES, Anomaly
from oncebench.audit.python.model import Expected, Ints
from oncebench.audit.python.reads import position_of, unpack
from oncebench.audit.python.visible import Explainer, Rows

COMMITTED, ABORTED, OPEN, PLAIN = "committed", "aborted", "open", "plain"
_ENDS = {"commit": COMMITTED, "abort": ABORTED}


@dataclass(frozen=True)
class Log:
    """Stretches with records, in the order of their positions (see `reads.position_of`).

    `fate`: how the transaction of each ended: COMMITTED, ABORTED, OPEN, or PLAIN if it is of none. `generation`: -1
    where it is not known.
    """

    first: Ints
    last: Ints
    records: Ints
    producer: Ints
    generation: Ints
    fate: tuple[str, ...]

    @staticmethod
    def of(table: pa.Table) -> Log:
        """The log as it was recorded."""
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
        """The number of the stretch that holds each position; -1 where none does."""
        at = np.searchsorted(self.first, position, side="right") - 1
        inside = at >= 0
        inside[inside] = position[inside] <= self.last[at[inside]]
        return np.where(inside, at, -1)

    def told(self, at: int) -> dict[str, Any]:
        """A stretch, for an example."""
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
    """EXPO: what an uncommitted reader is shown at the end, and a committed one (at the positions `visible`) is not."""
    held = log.holding(visible)
    hidden = log.records - np.bincount(held[held >= 0], minlength=len(log.records))
    split = dict.fromkeys((COMMITTED, ABORTED, OPEN, PLAIN), 0)
    for at in np.flatnonzero(hidden).tolist():
        split[log.fate[at]] += int(hidden[at])
    examples = tuple(log.told(at) for at in np.flatnonzero(hidden)[:EXAMPLES].tolist())
    return Anomaly(int(hidden.sum()), examples, split)


def judge_stale(log: Log, expected: Expected, rows: Rows) -> Anomaly:
    """STALE: visible rows of an older driver's that stand behind a record of a younger one in the same partition.

    By offsets, where a row was written, and not by markers: a younger driver may commit what an older one has prepared.
    The younger one's record need not be visible. A row of unknown generation is neither older nor younger.
    """
    held = log.holding(rows.position)
    younger = np.full(len(log.first), -1, dtype=np.int64)  # the youngest stretch before each one, in its partition
    newest: dict[int, int] = {}
    for at, (first, generation) in enumerate(zip(log.first.tolist(), log.generation.tolist(), strict=True)):
        partition, _ = unpack(first)
        best = younger[at] = newest.get(partition, -1)
        if generation >= 0 and (best < 0 or generation > log.generation[best]):
            newest[partition] = at
    late = (log.generation >= 0) & (younger >= 0)
    late[late] = log.generation[late] < log.generation[younger[late]]
    stale = np.flatnonzero(np.r_[late, False][held])  # -1, in no stretch, is not late
    stretches = [log.told(at) | {"after": log.told(int(younger[at]))} for at in held[stale[:EXAMPLES]].tolist()]
    told = Explainer(expected, rows).positions(stale)
    return Anomaly(len(stale), tuple({**row, "in": where} for row, where in zip(told, stretches, strict=True)))


def judge_aborted(log: Log, expected: Expected, rows: Rows, ended: int) -> Anomaly:
    """G1a: positions that a committed reader was shown, of a transaction that the log does not say was committed.

    Kafka's clients leave out what was aborted by a list that the broker sends; this goes by the markers in the log
    alone. `rows`: of the final read, then those that only the observer saw. Of the first `ended` the log must say how
    their transactions ended: all of the final read, 0 if the log was not read to its end; others may end later.
    """
    held = log.holding(rows.position)
    aborted, still_open = (np.array([fate == word for fate in log.fate], dtype=bool) for word in (ABORTED, OPEN))
    inside = np.flatnonzero(held >= 0)
    shown = inside[aborted[held[inside]] | (still_open[held[inside]] & (inside < ended))]
    split = dict.fromkeys((ABORTED, OPEN), 0)
    for at in held[shown].tolist():
        split[log.fate[at]] += 1
    told = Explainer(expected, rows).positions(shown)
    stretches = [log.told(at) for at in held[shown[:EXAMPLES]].tolist()]
    examples = tuple({**row, "in": where} for row, where in zip(told, stretches, strict=True))
    return Anomaly(len(shown), examples, split)


def _fates(table: pa.Table) -> tuple[str, ...]:
    """Of each stretch with records: what the next marker of its producer in its partition says."""
    fates: list[str] = []
    ends: dict[tuple[int, int], str] = {}
    columns = (table[name].to_pylist() for name in ("partition", "producer", "transactional", "marker"))
    for partition, producer, transactional, marker in reversed(list(zip(*columns, strict=True))):
        if marker is not None:
            ends[partition, producer] = _ENDS[marker]
        else:
            fates.append(ends.get((partition, producer), OPEN) if transactional else PLAIN)
    return tuple(reversed(fates))
