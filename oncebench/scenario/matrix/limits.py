"""Anomalies that cells may show beyond their guarantee, and kills that must be harmless.

The cells are those of the fault matrix.

Promise: each exception has its reason. What a guarantee allows everywhere is in the verdict's `RULES`.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE

# Anomalies that a cell may show beyond its guarantee, with the reason. Keys: (fault, guarantee, variant).
_CLAIMS_GONE = (
    "The checkpoint holds the claims. With an older checkpoint, or none, the pipeline writes claimed rows again"
)
_NOT_ON_DISK = (
    "Its COMMIT does not wait for the disk. A killed PostgreSQL loses rows that were read, and gives their positions "
    "to other rows"
)
_QUERY_GONE = "Delta identifies a batch by the query id in the checkpoint. A new query writes all rows again"
_KAFKA_LOSES = (
    "Kafka loses rows that it has acknowledged, and no sink can prevent that. Its default does: "
    "unclean.leader.election.enable=false"
)
# Rows that readers had seen are gone: whole batches, or parts of sessions.
_KAFKA_LOST = dict.fromkeys(("LOSS", "LOSTC", "TORN", "INCO"), _KAFKA_LOSES)
LIMITS: Mapping[tuple[str, str, str], Mapping[str, str]] = {
    ("kill-postgres", AT_MOST_ONCE, "claim"): {"INCO": _NOT_ON_DISK},
    ("kill-session", AT_MOST_ONCE, "claim"): {"INCO": _NOT_ON_DISK},
    ("roll-back", AT_MOST_ONCE, "claim"): {"DUP": _CLAIMS_GONE},
    ("lose-checkpoint", AT_MOST_ONCE, "claim"): {"DUP": _CLAIMS_GONE},
    ("lose-checkpoint", EXACTLY_ONCE, "native"): {"DUP": _QUERY_GONE},
    ("unclean-election", AT_LEAST_ONCE, "acknowledged"): _KAFKA_LOST,
    ("unclean-election", AT_LEAST_ONCE, "native"): _KAFKA_LOST,
    ("unclean-election", EXACTLY_ONCE, "idempotent"): _KAFKA_LOST,
    ("unclean-election", EXACTLY_ONCE, "two-phase"): _KAFKA_LOST,
}
# Kills that must be harmless even under a weaker guarantee, so an anomaly that it allows elsewhere is a finding here.
# Nothing is written or claimed yet, or Spark has recorded the batch as done. Under at-most-once also: all is written.
HARMLESS_POINTS: Mapping[str, frozenset[str]] = {
    AT_MOST_ONCE: frozenset({"batch-start:kill", "after-commit:kill", "after-commit-log:kill"}),
    AT_LEAST_ONCE: frozenset({"batch-start:kill", "after-commit-log:kill"}),
}
# Faults that repeat batches which were already done, or whose loss is in later batches. Rows of those batches are not
# charged to another fault.
RETROACTIVE_FAULTS = frozenset({"roll-back", "lose-checkpoint", "unclean-election"})
