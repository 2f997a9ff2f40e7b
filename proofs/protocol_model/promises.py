"""The invariants: no duplicate in any world, and no loss at the end of a run.

Promise: the code of the anomaly (from the catalogue of anomalies), or None. A run has ended when Spark's commit log
holds every batch, no driver is alive and no commit is in progress. A request in flight may arrive later;
the worlds that follow judge its effect.
"""

from __future__ import annotations

from proofs.protocol_model.setting import AT_LEAST_ONCE, AT_MOST_ONCE, Setting
from proofs.protocol_model.world import COMMITTING, ONGOING, World

DUP, LOSS, STUCK = "DUP", "LOSS", "STUCK"


def at_its_end(world: World, setting: Setting) -> bool:
    """Whether the run has ended."""
    done = world.commits == setting.bounds.batches and not world.drivers
    return done and all(txn.state != COMMITTING for txn in world.txns)


def broken(world: World, setting: Setting) -> str | None:
    """The anomaly that a committed reader sees in this world, if it is forbidden."""
    if setting.protocol != AT_LEAST_ONCE and max(world.visible) > 1:
        return DUP
    if setting.protocol != AT_MOST_ONCE and min(world.visible) == 0 and at_its_end(world, setting):
        return LOSS
    return None


def left_open(world: World) -> bool:
    """Whether only a time-out will end some transaction; committed readers wait until then."""
    return any(txn.state == ONGOING for txn in world.txns)
