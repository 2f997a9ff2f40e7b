"""The invariants after a power cut, and after a successor has done its work.

Promise: one code per anomaly with an example; empty if the guarantee is kept. The codes are those of the catalogue
(`oncebench.audit.anomalies`) and four more:

* PARTIAL: a reader sees some rows of a partition of a batch, but not all.
* EARLY: a reader sees a batch that is not decided on this disk.
* FAIL: the reader fails instead of reporting what it cannot read.
* STUCK: a successor cannot finish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from proofs.crash_states.spark import PARTITIONS, Row, rows_of

CORR, DUP, EARLY, FAIL, LOSS = "CORR", "DUP", "EARLY", "FAIL", "LOSS"
ORPH, PARTIAL, STUCK = "ORPH", "PARTIAL", "STUCK"
Wrong = dict[str, str]


@dataclass(frozen=True)
class Expected:
    """The rows that a reader may see.

    Attributes:
        rows: number of rows per partition, by batch.
        decided: batches that may be visible under exactly-once.
        done: batches that Spark will not run again.
    """

    rows: Mapping[int, int]
    decided: Collection[int]
    done: Collection[int]


def wrong(guarantee: str, visible: Counter[Row], expected: Expected) -> Wrong:
    """The anomalies in the visible rows that the guarantee forbids."""
    found: Wrong = {}
    left = Counter(visible)
    for batch, rows in expected.rows.items():
        for partition in range(PARTITIONS):
            counts = [left.pop(row, 0) for row in rows_of(batch, partition, rows)]
            which = f"batch {batch}, partition {partition}: {counts}"
            if min(counts) < max(counts):
                found.setdefault(PARTIAL, which)
            if max(counts) > 1 and guarantee != AT_LEAST_ONCE:
                found.setdefault(DUP, which)
            if min(counts) == 0 and batch in expected.done and guarantee != AT_MOST_ONCE:
                found.setdefault(LOSS, which)
            if max(counts) > 0 and batch not in expected.decided and guarantee == EXACTLY_ONCE:
                found.setdefault(EARLY, which)
    if +left:
        found[CORR] = str(next(iter(+left)))
    return found
