"""What must hold: in every world (nothing twice), and where a run has come to its end (nothing lost).

Promise: a word of the catalogue of anomalies for what is wrong, or None. A run has come to its end when Spark's commit
log holds every batch, no driver lives and no commit is under way; what is still on its way to the broker may arrive
later, and is judged by the worlds that follow.
"""

from __future__ import annotations

from proofs.protocol_model.setting import AT_LEAST_ONCE, AT_MOST_ONCE, Setting
from proofs.protocol_model.world import COMMITTING, ONGOING, World

DUP, LOSS, STUCK = "DUP", "LOSS", "STUCK"


def at_its_end(world: World, setting: Setting) -> bool:
    """Whether nothing more is to happen."""
    done = world.commits == setting.bounds.batches and not world.drivers
    return done and all(txn.state != COMMITTING for txn in world.txns)


def broken(world: World, setting: Setting) -> str | None:
    """The anomaly that a committed reader is shown in this world, if the guarantee forbids it."""
    if setting.protocol != AT_LEAST_ONCE and max(world.visible) > 1:
        return DUP
    if setting.protocol != AT_MOST_ONCE and min(world.visible) == 0 and at_its_end(world, setting):
        return LOSS
    return None


def left_open(world: World) -> bool:
    """Whether a transaction is open that only its time-out will end: readers wait for it until then."""
    return any(txn.state == ONGOING for txn in world.txns)
