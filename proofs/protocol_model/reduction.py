"""State reduction: removes details of a world that no later step can observe.

The search then visits fewer worlds.

Promise: a world and its reduced form have the same futures. Removed are:

* inert drivers (`inert.py`), which can only end;
* transactional ids that nothing refers to;
* requests that can only be refused;
* decisions that no driver will read;
* the contents of a transaction that no driver can commit.

What can go wrong: a removed detail mattered, and the search claims too much. A test compares the reduced search with
the full one.
"""

from __future__ import annotations

from proofs.protocol_model.inert import is_inert
from proofs.protocol_model.setting import Setting
from proofs.protocol_model.symmetry import Key, key
from proofs.protocol_model.world import COMMITTING, ONGOING, PARTITIONS, Prepared, World


def reduced(world: World, setting: Setting) -> World:
    """The world without the details that no later step can observe."""
    if any(is_inert(world, driver, setting) for driver in world.drivers):
        world = world._replace(drivers=tuple(each for each in world.drivers if not is_inert(world, each, setting)))
    decisions = _looked_up(world)
    named = {key(entry.id) for made in decisions for decision in made for entry in decision}
    living: set[Key] = set()
    for driver in world.drivers:
        living.update(key(producer.id) for producer in driver.producers if producer is not None)
        named.update(key(entry.id) for entry in driver.keep)
        named.update(key(ending.prepared.id) for ending in driver.ending)
        named.update(key(asked) for asked in driver.todo)
    epochs = {key(txn.id): txn.id.epoch for txn in world.txns}
    late = tuple(asked for asked in world.late if epochs.get(key(asked)) == asked.epoch)
    named.update(key(asked) for asked in late)
    txns = []
    for txn in world.txns:
        named_by = key(txn.id)
        if named_by in living or named_by in named:
            txns.append(txn)
        elif txn.state == ONGOING:
            txns.append(txn._replace(batch=-1, halves=(0,) * PARTITIONS))
        elif txn.state == COMMITTING:
            txns.append(txn)
    published = world.published
    if all(driver.generation >= published for driver in world.drivers):
        published = 0
    claims = tuple(
        claim if any(driver.batch <= batch for driver in world.drivers) or batch >= world.commits else 0
        for batch, claim in enumerate(world.claims)
    )
    return world._replace(decisions=decisions, txns=tuple(txns), late=late, published=published, claims=claims)


def _looked_up(world: World) -> tuple[tuple[tuple[Prepared, ...], ...], ...]:
    """The decisions that a driver may still read.

    These are the newest one, those of open batches and those of zombies' batches.
    """
    newest = max((batch for batch, made in enumerate(world.decisions) if made), default=-1)
    oldest = min((driver.batch for driver in world.drivers if driver.batch >= 0), default=newest)
    first = min(newest, oldest, world.commits)
    if first <= 0:
        return world.decisions
    return ((),) * first + world.decisions[first:]
