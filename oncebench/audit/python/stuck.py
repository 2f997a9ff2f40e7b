"""Partitions whose last stable offset is stuck (STALL-LSO), and what holds it: a hanging transaction or a delayed one.

Promise: the rule of KIP-664's find-hanging over what partitions and coordinators said at the end of the run. What can
go wrong: a run that did not ask, or got no answer, does not say which of the two it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oncebench.audit.anomalies import EXAMPLES, Anomaly

HANGING, DELAYED, UNTOLD = "hanging", "delayed", "untold"
# States in which a coordinator still has to end a transaction.
RUNNING = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
# The broker looks for timed-out transactions every 10 s (transaction.abort.timed.out.transaction.cleanup.interval.ms).
CLEANUP_MS = 10_000


def judge_stuck(ends: Mapping[str, Mapping[str, int]], open_: Sequence[Mapping[str, Any]]) -> Anomaly:
    """STALL-LSO, per partition. `open_`: the transactions that are open in those partitions.

    A partition is `hanging` if one of its transactions is, `delayed` if there are some and none is, else `untold`.
    """
    split = dict.fromkeys((HANGING, DELAYED, UNTOLD), 0)
    stuck: list[dict[str, Any]] = []
    for partition, end in sorted(ends.items(), key=lambda item: int(item[0])):
        if end["lso"] >= end["hw"]:
            continue
        here = [each for each in open_ if each["partition"] == int(partition)]
        kind = UNTOLD if not here else HANGING if any(map(is_hanging, here)) else DELAYED
        split[kind] += 1
        stuck.append({"partition": int(partition), "lso": end["lso"], "hw": end["hw"], "kind": kind, "open": here})
    return Anomaly(len(stuck), tuple(stuck[:EXAMPLES]), split)


def is_hanging(transaction: Mapping[str, Any]) -> bool:
    """Whether nobody will end it: its coordinator knows none that runs in the partition, or should have ended it."""
    if transaction["state"] not in RUNNING or not transaction["here"]:
        return True
    age_ms = int(transaction["asked_ms"]) - int(transaction["started_ms"])
    return age_ms > int(transaction["timeout_ms"]) + CLEANUP_MS
