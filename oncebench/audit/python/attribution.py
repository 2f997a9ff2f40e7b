"""Which batch lost or doubled rows: how a run with several faults tells what each of them did.

Promise: a row belongs to the batch that read the last event of its session, because that is the batch in which the
session's rows come out. Batches and their input ranges are the pipeline's own (`batch` lines); a fault is charged with
what its batch lost and doubled, and nothing is charged twice; what quiet batches lost and doubled is `uncharged`.
What can go wrong: two faults in one batch (a death in
its replay) cannot be told apart; the first of them is charged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebench.audit.python.audit import multiplicity
from oncebench.audit.python.batches import Batch
from oncebench.audit.python.model import Expected
from oncebench.record import Record

Ints = npt.NDArray[np.int64]


def batch_of_session(expected: Expected, progress: Sequence[Mapping[str, Any]]) -> Ints:
    """[sessions] the batch that read each session's last event; -1 where no batch line covers it."""
    batches = np.full(len(expected.session_keys), -1, dtype=np.int64)
    for line in progress:
        if line["kind"] != "batch" or line.get("recovered"):
            continue
        batch = Batch.of(line["batch"], line["start_offsets"], line["end_offsets"])
        batches[batch.sessions(expected)] = batch.number
    return batches


def by_batch(record: Record, expected: Expected) -> dict[int, tuple[int, int]]:
    """(lost, duplicated) rows of each batch that has any."""
    seen = multiplicity(record, expected)
    batches = batch_of_session(expected, record.progress.items)
    lost, doubled = (seen == 0).sum(axis=1), np.maximum(seen - 1, 0).sum(axis=1)
    found = {}
    for batch in np.unique(batches[(lost > 0) | (doubled > 0)]).tolist():
        of_batch = batches == batch
        found[batch] = (int(lost[of_batch].sum()), int(doubled[of_batch].sum()))
    return found


def charged(faults: Sequence[Mapping[str, Any]], found: Mapping[int, tuple[int, int]]) -> list[dict[str, Any]]:
    """The faults, each with the rows that its batch lost and doubled."""
    left = dict(found)
    told = []
    for fault in faults:
        lost, doubled = left.pop(fault["batch"], (0, 0)) if fault["hit"] else (0, 0)
        told.append({**fault, "lost": lost, "duplicated": doubled})
    return told


def uncharged(faults: Sequence[Mapping[str, Any]], found: Mapping[int, tuple[int, int]]) -> dict[str, int]:
    """`lost` and `duplicated` rows of batches that no fault acted in."""
    acted = {fault["batch"] for fault in faults if fault["hit"]}
    left = [rows for batch, rows in found.items() if batch not in acted]
    return {"lost": sum(lost for lost, _ in left), "duplicated": sum(doubled for _, doubled in left)}
