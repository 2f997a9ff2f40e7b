"""What must hold in a state that a power cut left, and once a successor has done its work there.

Promise: a word for each thing that is wrong, with an example; empty where a guarantee is kept. The words are those of
the catalogue (`oncebench.audit.anomalies`), and four more:

* TORN: a reader is shown some rows of a partition of a batch, and not the others.
* EARLY: a reader is shown a batch that is not decided on this disk.
* FAIL: the reader fails, in place of telling what it could not read.
* STUCK: a successor does not get through, whatever it says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from proofs.crash_states.spark import PARTITIONS, Row, rows_of

CORR, DUP, EARLY, FAIL, LOSS = "CORR", "DUP", "EARLY", "FAIL", "LOSS"
ORPH, STUCK, TORN = "ORPH", "STUCK", "TORN"
Wrong = dict[str, str]


@dataclass(frozen=True)
class Owed:
    """What a reader may be shown.

    Attributes:
        rows: per partition, by batch.
        decided: batches that may be shown, under exactly-once.
        done: batches that Spark will not run again.
    """

    rows: Mapping[int, int]
    decided: Collection[int]
    done: Collection[int]


def wrong(guarantee: str, shown: Counter[Row], owed: Owed) -> Wrong:
    """What a reader is shown that the guarantee forbids."""
    found: Wrong = {}
    left = Counter(shown)
    for batch, rows in owed.rows.items():
        for partition in range(PARTITIONS):
            counts = [left.pop(row, 0) for row in rows_of(batch, partition, rows)]
            which = f"batch {batch}, partition {partition}: {counts}"
            if min(counts) < max(counts):
                found.setdefault(TORN, which)
            if max(counts) > 1 and guarantee != AT_LEAST_ONCE:
                found.setdefault(DUP, which)
            if min(counts) == 0 and batch in owed.done and guarantee != AT_MOST_ONCE:
                found.setdefault(LOSS, which)
            if max(counts) > 0 and batch not in owed.decided and guarantee == EXACTLY_ONCE:
                found.setdefault(EARLY, which)
    if +left:
        found[CORR] = str(next(iter(+left)))
    return found
