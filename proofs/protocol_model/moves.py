"""Every move that is possible in a world: the steps of drivers and tasks, and the faults.

Promise: `natural` moves happen by themselves: steps, the supervisor's restart, the writing of markers. `harmful` moves
are the faults that the bounds allow, each at any moment. Natural moves alone must be able to end every run well.
"""

from __future__ import annotations

from collections.abc import Iterator

from proofs.protocol_model import broker, delivery, startup
from proofs.protocol_model.setting import Setting
from proofs.protocol_model.startup import Move, id_name, name
from proofs.protocol_model.world import COMMITTING, HALVES, ONGOING, PARTITIONS, Driver, World, without


def first_world(setting: Setting) -> World:
    """The world before the first step, with all faults of the bounds still to come."""
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
    """The moves that happen by themselves."""
    for driver in world.drivers:
        starting = startup.steps(world, driver, setting)
        yield from delivery.steps(world, driver, setting) if starting is None else starting
    if not _has_newest(world) and world.commits < setting.bounds.batches:
        yield f"driver {world.generation + 1} is started", startup.take_over(world, setting)
    for txn in world.txns:
        if txn.state == COMMITTING:
            yield f"the commit of {id_name(txn.id)} becomes visible", broker.write_markers(world, txn)


def harmful(world: World, setting: Setting) -> Iterator[Move]:
    """The faults that the bounds allow now."""
    if world.kills:
        for driver in world.drivers:
            text = f"KILL of {name(driver)} at {_where(driver)}"
            yield text, world._replace(kills=world.kills - 1, drivers=without(world, driver))
    if world.zombies and _has_newest(world) and world.commits < setting.bounds.batches:
        text = f"ZOMBIE: driver {world.generation} is presumed dead at {_where(world.drivers[-1])}, another is started"
        yield text, startup.take_over(world._replace(zombies=world.zombies - 1), setting)
    if world.timeouts:
        for txn in world.txns:
            if txn.state == ONGOING:
                text = f"TIME-OUT: the coordinator aborts {id_name(txn.id)}"
                yield text, broker.time_out(world, txn)._replace(timeouts=world.timeouts - 1)
    for at, asked in enumerate(world.late):
        answer, after = broker.end(world, asked, setting)
        text = f"LATE: an EndTxn for {id_name(asked)} arrives; answer: {answer}"
        yield text, after._replace(late=world.late[:at] + world.late[at + 1 :])
    if world.republished:
        text = f"LATE: the publication of generation {world.republished} arrives again"
        yield text, world._replace(published=world.republished, republished=0)


def _has_newest(world: World) -> bool:
    return bool(world.drivers) and world.drivers[-1].generation == world.generation


def _where(driver: Driver) -> str:
    return " / ".join(driver.tasks) if driver.at == "running" else driver.at
