"""Finds the batch of each lost or duplicated row, and charges the fault of that batch.

Promise: a row belongs to the batch that read the last event of its session. That batch makes the session's rows.
Batches and their input ranges are those of the pipeline's `batch` lines. A fault is charged with the lost and the
duplicated rows of its batch. No row is charged twice. Rows of batches without a fault are `uncharged`.

What can go wrong: two faults act in one batch, for example one in its replay. Then the first is charged with both.

`excuses` does not depend on batches: it compares the times of failures and of the work on each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebench.audit.failures import failures_of
from oncebench.audit.python.audit import Joined, committed_ends, covered_sessions, multiplicity
from oncebench.audit.python.batches import Batch
from oncebench.audit.python.history.accepted import Accepted
from oncebench.audit.python.history.writing_times import writing_times
from oncebench.audit.python.model import Expected
from oncebench.record import Record
from oncebench.record.schema import BATCH

Ints = npt.NDArray[np.int64]


def batch_of_session(expected: Expected, progress: Sequence[Mapping[str, Any]]) -> Ints:
    """[sessions] The batch that read each session's last event; -1 without a batch line for it."""
    batches = np.full(len(expected.session_keys), -1, dtype=np.int64)
    for line in progress:
        if line["kind"] != BATCH or line.get("recovered"):
            continue
        batch = Batch.of(line["batch"], line["start_offsets"], line["end_offsets"])
        batches[batch.sessions(expected)] = batch.number
    return batches


def by_batch(record: Record, expected: Expected, joined: Joined | None = None) -> dict[int, tuple[int, int]]:
    """Returns (lost, duplicated) rows of each batch that has any; accepted losses do not count."""
    batches = batch_of_session(expected, record.progress.items)
    lost, duplicated = _by_session(record, expected, joined)
    found = {}
    for batch in np.unique(batches[(lost > 0) | (duplicated > 0)]).tolist():
        of_batch = batches == batch
        found[batch] = (int(lost[of_batch].sum()), int(duplicated[of_batch].sum()))
    return found


def _by_session(record: Record, expected: Expected, joined: Joined | None) -> tuple[Ints, Ints]:
    copies = multiplicity(record, expected, joined)
    accepted = Accepted.of(record.progress.items).sessions(expected, record.progress.items)
    return ((copies == 0) & ~accepted[:, None]).sum(axis=1), np.maximum(copies - 1, 0).sum(axis=1)


@dataclass(frozen=True)
class Excuses:
    """Which lost and duplicated rows a failure may explain.

    Rows are counted by code, LOSS and DUP. A code without rows is left out.

    Attributes:
        missing: rows that no failure of the run has touched.
        unknown: rows without a time; a failure may have touched them.
    """

    missing: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)


def excuses(record: Record, expected: Expected, guarantee: str, joined: Joined | None = None) -> Excuses:
    """Compares a run's lost and duplicated rows with its failures (`oncebench.audit.failures`)."""
    lost, duplicated = _by_session(record, expected, joined)
    lost = np.where(covered_sessions(expected, committed_ends(record.progress.items)), lost, 0)
    from_us, until_us = writing_times(expected, record.progress.items)
    touched = np.zeros(len(from_us), dtype=bool)
    for failure in failures_of(record, guarantee):
        touched |= (failure.from_us <= until_us) & (from_us <= failure.until_us)
    timed = until_us < np.inf

    def rows(which: npt.NDArray[np.bool_]) -> dict[str, int]:
        counts = {"LOSS": int(lost[which].sum()), "DUP": int(duplicated[which].sum())}
        return {code: count for code, count in counts.items() if count}

    return Excuses(rows(timed & ~touched), rows(~timed))


def charged(
    faults: Sequence[Mapping[str, Any]], found: Mapping[int, tuple[int, int]], has_batches: bool = True
) -> list[dict[str, Any]]:
    """Returns the faults, each with the lost and duplicated rows of its batch.

    Both numbers are None if the engine has no batches.
    """
    if not has_batches:
        return [{**fault, "lost": None, "duplicated": None} for fault in faults]
    left = dict(found)
    charged_faults = []
    for fault in faults:
        lost, duplicated = left.pop(fault["batch"], (0, 0)) if fault["hit"] else (0, 0)
        charged_faults.append({**fault, "lost": lost, "duplicated": duplicated})
    return charged_faults


def uncharged(faults: Sequence[Mapping[str, Any]], found: Mapping[int, tuple[int, int]]) -> dict[str, int]:
    """Returns the `lost` and `duplicated` rows of batches without a fault."""
    with_fault = {fault["batch"] for fault in faults if fault["hit"]}
    left = [rows for batch, rows in found.items() if batch not in with_fault]
    return {"lost": sum(lost for lost, _ in left), "duplicated": sum(duplicated for _, duplicated in left)}
