"""Every move that is possible in a world: the steps of its drivers and tasks, and what is done to them.

Promise: `natural` is what happens by itself (steps, the supervisor's restart, markers being written), `harmful` what
the bounds allow to go wrong, each at any moment. From `natural` alone every run must be able to end well.
"""

from __future__ import annotations

from collections.abc import Iterator

from proofs.protocol_model import broker, delivery, startup
from proofs.protocol_model.setting import Setting
from proofs.protocol_model.startup import Move, id_name, name
from proofs.protocol_model.world import COMMITTING, HALVES, ONGOING, PARTITIONS, Driver, World, without


def first_world(setting: Setting) -> World:
    """Nothing has happened; all that may go wrong is still ahead."""
    bounds = setting.bounds
    return World(
        decisions=((),) * bounds.batches,
        claims=(0,) * bounds.batches,
        visible=(0,) * (bounds.batches * PARTITIONS * HALVES),
        kills=bounds.kills,
        zombies=bounds.zombies,
        timeouts=bounds.timeouts,
        unanswered=bounds.unanswered,
        resent=bounds.resent,
        republish=bounds.republished,
    )


def natural(world: World, setting: Setting) -> Iterator[Move]:
    """What happens by itself."""
    for driver in world.drivers:
        starting = startup.steps(world, driver, setting)
        yield from delivery.steps(world, driver, setting) if starting is None else starting
    if not _has_newest(world) and world.commits < setting.bounds.batches:
        yield f"driver {world.generation + 1} is started", startup.take_over(world)
    for txn in world.txns:
        if txn.state == COMMITTING:
            yield f"the commit of {id_name(txn.id)} becomes visible", broker.write_markers(world, txn)


def harmful(world: World, setting: Setting) -> Iterator[Move]:
    """What the bounds allow to go wrong now."""
    if world.kills:
        for driver in world.drivers:
            told = f"KILL of {name(driver)} at {_where(driver)}"
            yield told, world._replace(kills=world.kills - 1, drivers=without(world, driver))
    if world.zombies and _has_newest(world) and world.commits < setting.bounds.batches:
        told = f"ZOMBIE: driver {world.generation} is taken for dead at {_where(world.drivers[-1])}, another is started"
        yield told, startup.take_over(world._replace(zombies=world.zombies - 1))
    if world.timeouts:
        for txn in world.txns:
            if txn.state == ONGOING:
                told = f"TIME-OUT: the coordinator aborts {id_name(txn.id)}"
                yield told, broker.time_out(world, txn)._replace(timeouts=world.timeouts - 1)
    for at, asked in enumerate(world.late):
        answer, after = broker.end(world, asked, setting)
        told = f"LATE: an EndTxn for {id_name(asked)} arrives, and comes to: {answer}"
        yield told, after._replace(late=world.late[:at] + world.late[at + 1 :])
    if world.republished:
        told = f"LATE: the publication of generation {world.republished} arrives again"
        yield told, world._replace(published=world.republished, republished=0)


def _has_newest(world: World) -> bool:
    return bool(world.drivers) and world.drivers[-1].generation == world.generation


def _where(driver: Driver) -> str:
    return " / ".join(driver.tasks) if driver.at == "running" else driver.at
