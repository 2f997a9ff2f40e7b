"""One world for all that differ only in what no later step can tell: the search visits it once.

Promise: a world and its normal form allow the same futures. Left out are drivers that can only end, ids that nobody
names any more, requests that can only be refused, decisions that nobody will look up, the contents of a transaction
that nobody can commit; generations are numbered anew in their order, since steps compare them and never count. What can
go wrong: something is forgotten that mattered, and the search proves too much; a test compares both searches.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncebench.protocol_model.doomed import doomed
from oncebench.protocol_model.setting import Setting
from oncebench.protocol_model.world import COMMITTING, ONGOING, Driver, Ending, Id, Prepared, Producer, World

_Key = tuple[int, int]


def normal(world: World, setting: Setting) -> World:
    """The world that stands for this one."""
    if any(doomed(world, driver, setting) for driver in world.drivers):
        world = world._replace(drivers=tuple(each for each in world.drivers if not doomed(world, each, setting)))
    decisions = _looked_up(world)
    named = {_key(entry.id) for made in decisions for decision in made for entry in decision}
    living: set[_Key] = set()
    for driver in world.drivers:
        living.update(_key(producer.id) for producer in driver.producers if producer is not None)
        named.update(_key(entry.id) for entry in driver.keep)
        named.update(_key(ending.prepared.id) for ending in driver.ending)
        named.update(_key(asked) for asked in driver.todo)
    epochs = {_key(txn.id): txn.id.epoch for txn in world.txns}
    late = tuple(asked for asked in world.late if epochs.get(_key(asked)) == asked.epoch)
    named.update(_key(asked) for asked in late)
    txns = []
    for txn in world.txns:
        key = _key(txn.id)
        if key in living or key in named:
            txns.append(txn)
        elif txn.state == ONGOING:
            txns.append(txn._replace(batch=-1, halves=0))
        elif txn.state == COMMITTING:
            txns.append(txn)
    published = world.published
    if all(driver.generation >= published for driver in world.drivers):
        published = 0
    claims = tuple(
        claim if any(driver.batch <= batch for driver in world.drivers) or batch >= world.commits else 0
        for batch, claim in enumerate(world.claims)
    )
    world = world._replace(decisions=decisions, txns=tuple(txns), late=late, published=published, claims=claims)
    return _numbered_anew(world)


def _looked_up(world: World) -> tuple[tuple[tuple[Prepared, ...], ...], ...]:
    """The decisions that a driver may still look up: of batches not committed, of the newest, of zombies' batches."""
    newest = max((batch for batch, made in enumerate(world.decisions) if made), default=-1)
    oldest = min((driver.batch for driver in world.drivers if driver.batch >= 0), default=newest)
    first = min(newest, oldest, world.commits)
    if first <= 0:
        return world.decisions
    return ((),) * first + world.decisions[first:]


def _numbered_anew(world: World) -> World:
    used = {world.generation, world.published, world.republished, *world.claims}
    used.update(driver.generation for driver in world.drivers)
    used.update(txn.id.generation for txn in world.txns)
    used.update(asked.generation for asked in world.late)
    for driver in world.drivers:
        used.update(asked.generation for asked in (*driver.done, *driver.todo))
        used.update(entry.id.generation for entry in (*driver.keep, *driver.prepared))
        used.update(ending.prepared.id.generation for ending in driver.ending)
    used.update(entry.id.generation for made in world.decisions for decision in made for entry in decision)
    used.discard(0)
    if len(used) == max(used, default=0):
        return world
    number = {0: 0, **{old: new for new, old in enumerate(sorted(used), 1)}}
    return world._replace(
        generation=number[world.generation],
        published=number[world.published],
        republished=number[world.republished],
        claims=tuple(number[claim] for claim in world.claims),
        txns=tuple(txn._replace(id=_id(txn.id, number)) for txn in world.txns),
        late=tuple(_id(asked, number) for asked in world.late),
        decisions=tuple(tuple(_entries(decision, number) for decision in made) for made in world.decisions),
        drivers=tuple(_driver(driver, number) for driver in world.drivers),
    )


def _driver(driver: Driver, number: Mapping[int, int]) -> Driver:
    return driver._replace(
        generation=number[driver.generation],
        producers=tuple(_producer(producer, number) for producer in driver.producers),
        keep=_entries(driver.keep, number),
        done=tuple(_id(asked, number) for asked in driver.done),
        todo=tuple(_id(asked, number) for asked in driver.todo),
        prepared=_entries(driver.prepared, number),
        ending=tuple(_ending(ending, number) for ending in driver.ending),
    )


def _producer(producer: Producer | None, number: Mapping[int, int]) -> Producer | None:
    return None if producer is None else producer._replace(id=_id(producer.id, number))


def _entries(entries: tuple[Prepared, ...], number: Mapping[int, int]) -> tuple[Prepared, ...]:
    return tuple(entry._replace(id=_id(entry.id, number)) for entry in entries)


def _ending(ending: Ending, number: Mapping[int, int]) -> Ending:
    return ending._replace(prepared=ending.prepared._replace(id=_id(ending.prepared.id, number)))


def _id(asked: Id, number: Mapping[int, int]) -> Id:
    return asked._replace(generation=number[asked.generation])


def _key(asked: Id) -> _Key:
    return asked.generation, asked.number
