"""Finds partitions whose last stable offset is stuck (STALL-LSO).

A hanging or delayed transaction keeps the offset in its place.

Promise: the rule of KIP-664's find-hanging, applied to the reports of partitions and coordinators at the end of a run.

What can go wrong: the run recorded no transactions. Then the kind is `untold`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oncebench.audit.anomalies import EXAMPLES, Anomaly

HANGING, DELAYED, UNKNOWN = "hanging", "delayed", "untold"
# States in which a coordinator still has to end a transaction.
RUNNING = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
# The broker checks for timed-out transactions every 10 s (transaction.abort.timed.out.transaction.cleanup.interval.ms).
CLEANUP_MS = 10_000


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
