"""What is searched: our protocols, each with a defence left out, and harms that they do not promise to survive.

Promise: every variant says what its search must come to, so that a search which comes to anything else is a finding:
about the protocol, or about the model.
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
    """A search and what it must find.

    Attributes:
        name: what a table calls it.
        setting: what is searched.
        shows: the anomaly that must be found; None: the promise is kept.
    """

    name: str
    setting: Setting
    shows: str | None = None


def _one(name: str, protocol: str, bounds: Bounds, shows: str | None = None, **left_out: bool) -> Variant:
    return Variant(name, Setting(protocol, Defences(**left_out), bounds), shows)


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
)
BROKEN = (
    _one("at-most-once, claimed after the write", AT_MOST_ONCE, KILLED, DUP, claim_first=False),
    _one("idempotent, no marker", IDEMPOTENT, KILLED, DUP, marker=False),
    _one("idempotent, a batch that is run again has another number", IDEMPOTENT, KILLED, DUP, numbers=False),
    _one("idempotent, Spark's commit log comes first", IDEMPOTENT, KILLED, LOSS, logs_last=False),
    _one("idempotent, no fencing", IDEMPOTENT, Bounds(1, 0, 1), DUP, fencing=False),
    _one("idempotent, workers look for no younger generation", IDEMPOTENT, Bounds(1, 0, 1), DUP, worker_check=False),
    _one("two-phase, Spark's commit log comes first", TWO_PHASE, KILLED, LOSS, logs_last=False),
    _one("two-phase, a commit without an answer is taken for made", TWO_PHASE, UNANSWERED, LOSS, hears=False),
    _one("two-phase, no journal", TWO_PHASE, KILLED, DUP, decision=False),
    _one("two-phase, no marker", TWO_PHASE, DOUBTED, DUP, marker=False),
    _one(
        "two-phase, no fencing, no look, no exclusion",
        TWO_PHASE,
        Bounds(1, 0, 1),
        DUP,
        fencing=False,
        owner=False,
        exclusive=False,
    ),
    _one("two-phase, no look for a younger driver", TWO_PHASE, SUCCEEDED, DUP, owner=False),
    _one("two-phase, abort after the decision", TWO_PHASE, KILLED, LOSS, spares_decided=False, finishes=False),
    _one("two-phase, what is committed is known by id alone", TWO_PHASE, SUCCEEDED, LOSS, knows_batches=False),
    _one("two-phase, a younger driver's decision is finished", TWO_PHASE, SUCCEEDED, DUP, refuses_younger=False),
    _one("two-phase, lost transactions are dropped", TWO_PHASE, OUTAGE, LOSS, rewrites=False),
    _one("two-phase, ids in doubt are used again", TWO_PHASE, DOUBTED, DUP, retires=False),
)
HARSHER = (
    _one("two-phase, a worker's EndTxn is sent twice", TWO_PHASE, Bounds(2, 1, 0, resent=1), DUP),
    _one("idempotent, a task's EndTxn is sent twice", IDEMPOTENT, Bounds(2, 0, 0, resent=1), DUP),
    _one("idempotent, a publication is sent twice", IDEMPOTENT, Bounds(1, 0, 1, republished=1), DUP),
)
SPARE = (
    _one("two-phase, decided transactions are aborted and rewritten", TWO_PHASE, KILLED, spares_decided=False),
    _one("two-phase, a decision can be replaced", TWO_PHASE, SUCCEEDED, exclusive=False),
    _one("two-phase, no fencing but all the rest", TWO_PHASE, SUCCEEDED, fencing=False),
    _one("two-phase, workers look for no younger generation", TWO_PHASE, SUCCEEDED, worker_check=False),
    _one("two-phase, ids of finished decisions are left alone", TWO_PHASE, KILLED, fences_finished=False),
)
GROUPS = {
    "ours": SOUND,
    "one defence left out": BROKEN,
    "harms that are not defended against": HARSHER,
    "kept by other defences too": SPARE,
}
