"""The searches: our protocols, each defence left out, and faults beyond the guarantees.

Promise: every variant states its expected result. A search with another result is a finding about the protocol or
about the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from proofs.protocol_model.promises import DUP, LOSS
from proofs.protocol_model.setting import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    IDEMPOTENT,
    TWO_PHASE,
    Bounds,
    Defences,
    Setting,
)


@dataclass(frozen=True)
class Variant:
    """A search and its expected result.

    Attributes:
        name: the name in tables.
        setting: protocol, defences and bounds.
        expected: the anomaly that must be found; None if the guarantee is kept.
    """

    name: str
    setting: Setting
    expected: str | None = None


def _one(
    name: str, protocol: str, bounds: Bounds, expected: str | None = None, workers: int = 2, **left_out: bool
) -> Variant:
    return Variant(name, Setting(protocol, Defences(**left_out), bounds, workers), expected)


KILLED, SUCCEEDED = Bounds(2, kills=1, zombies=0), Bounds(2, kills=0, zombies=1)
DOUBTED = Bounds(2, kills=1, zombies=0, unanswered=1)
UNANSWERED = Bounds(1, kills=0, zombies=0, unanswered=1)
OUTAGE = Bounds(2, kills=1, zombies=0, timeouts=1)
FULL = Bounds(3, kills=2, zombies=1)

SOUND = (
    _one("at-most-once", AT_MOST_ONCE, FULL),
    _one("at-least-once", AT_LEAST_ONCE, FULL),
    _one("idempotent", IDEMPOTENT, FULL),
    _one("idempotent, commits in doubt", IDEMPOTENT, Bounds(2, 1, 1, timeouts=1, unanswered=1)),
    _one("idempotent, slow markers", IDEMPOTENT, Bounds(2, 1, 1, slow_markers=True)),
    _one("two-phase", TWO_PHASE, FULL),
    _one("two-phase, outages", TWO_PHASE, Bounds(2, 2, 0, timeouts=2)),
    _one("two-phase, commits in doubt", TWO_PHASE, Bounds(2, 1, 0, timeouts=1, unanswered=1)),
    _one("two-phase, slow markers", TWO_PHASE, Bounds(2, 0, 1, slow_markers=True)),
    _one("two-phase, one worker", TWO_PHASE, FULL, workers=1),
    _one("two-phase, one worker, outages", TWO_PHASE, Bounds(2, 2, 0, timeouts=2), workers=1),
    _one("two-phase, one worker, commits in doubt", TWO_PHASE, Bounds(2, 1, 0, timeouts=1, unanswered=1), workers=1),
    _one("two-phase, one worker, slow markers", TWO_PHASE, Bounds(2, 0, 1, slow_markers=True), workers=1),
)
BROKEN = (
    _one("at-most-once, claimed after the write", AT_MOST_ONCE, KILLED, DUP, claim_first=False),
    _one("idempotent, no marker", IDEMPOTENT, KILLED, DUP, marker=False),
    _one("idempotent, a replay has another batch number", IDEMPOTENT, KILLED, DUP, numbers=False),
    _one("idempotent, Spark's commit log comes first", IDEMPOTENT, KILLED, LOSS, logs_last=False),
    _one("idempotent, no fencing", IDEMPOTENT, Bounds(1, 0, 1), DUP, fencing=False),
    _one(
        "idempotent, workers do not check for a newer generation", IDEMPOTENT, Bounds(1, 0, 1), DUP, worker_check=False
    ),
    _one("two-phase, Spark's commit log comes first", TWO_PHASE, KILLED, LOSS, logs_last=False),
    _one("two-phase, an unanswered commit counts as done", TWO_PHASE, UNANSWERED, LOSS, awaits_answer=False),
    _one("two-phase, no journal", TWO_PHASE, KILLED, DUP, decision=False),
    _one("two-phase, no marker", TWO_PHASE, DOUBTED, DUP, marker=False),
    _one(
        "two-phase, no fencing, no check for a newer driver, no exclusion",
        TWO_PHASE,
        Bounds(1, 0, 1),
        DUP,
        fencing=False,
        owner=False,
        exclusive=False,
    ),
    _one("two-phase, no check for a newer driver", TWO_PHASE, SUCCEEDED, DUP, owner=False),
    _one("two-phase, abort after the decision", TWO_PHASE, KILLED, LOSS, spares_decided=False, finishes=False),
    _one("two-phase, finished commits are matched by id alone", TWO_PHASE, SUCCEEDED, LOSS, done_by_batch=False),
    _one("two-phase, a newer driver's decision is finished", TWO_PHASE, SUCCEEDED, DUP, refuses_newer=False),
    _one("two-phase, lost transactions are dropped", TWO_PHASE, OUTAGE, LOSS, rewrites=False),
    _one("two-phase, ids in doubt are used again", TWO_PHASE, DOUBTED, DUP, retires=False),
    _one("two-phase, one worker, no marker", TWO_PHASE, DOUBTED, DUP, workers=1, marker=False),
    _one("two-phase, one worker, ids in doubt are used again", TWO_PHASE, DOUBTED, DUP, workers=1, retires=False),
)
UNDEFENDED = (
    _one("two-phase, a worker's EndTxn is sent twice", TWO_PHASE, Bounds(2, 1, 0, resent=1), DUP),
    _one("idempotent, a task's EndTxn is sent twice", IDEMPOTENT, Bounds(2, 0, 0, resent=1), DUP),
    _one("idempotent, a publication is sent twice", IDEMPOTENT, Bounds(1, 0, 1, republished=1), DUP),
)
REDUNDANT = (
    _one("two-phase, decided transactions are aborted and rewritten", TWO_PHASE, KILLED, spares_decided=False),
    _one("two-phase, a decision can be replaced", TWO_PHASE, SUCCEEDED, exclusive=False),
    _one("two-phase, no fencing", TWO_PHASE, SUCCEEDED, fencing=False),
    _one("two-phase, workers do not check for a newer generation", TWO_PHASE, SUCCEEDED, worker_check=False),
    _one("two-phase, ids of finished decisions are not fenced", TWO_PHASE, KILLED, fences_finished=False),
)
GROUPS = {
    "ours": SOUND,
    "one defence left out": BROKEN,
    "faults without a defence": UNDEFENDED,
    "redundant defence left out": REDUNDANT,
}
