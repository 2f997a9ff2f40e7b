"""Symmetry reduction: one world stands for all that differ only in names.

The names are those of generations, transactional ids and the two partitions.

Promise: steps compare generations, distinguish ids and treat both partitions alike; no step uses their values. So one
world of each class of renamed worlds is searched.

What can go wrong: a step prefers a partition or the lower id, and its other choice is never searched. A test compares
this search with one that keeps all names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from proofs.protocol_model.world import HALVES, PARTITIONS, Driver, Ending, Id, Prepared, Producer, Txn, World

Key = tuple[int, int]
_OTHER = (1, 0)  # by partition, the other one


def canonical(world: World) -> World:
    """The world that stands for this world and all its renamings."""
    one, other = _named_by_use(world), _named_by_use(mirrored(world))
    # Any consistent choice will do. If the hashes are equal, both worlds are searched.
    return one if hash(one) <= hash(other) else other


def key(asked: Id) -> Key:
    """The id without its epoch."""
    return asked[:2]


def mirrored(world: World) -> World:
    """The world with its two partitions exchanged, and with them their workers."""
    size = PARTITIONS * HALVES
    visible = world.visible
    return world._replace(
        decisions=tuple(tuple(_turned(decision) for decision in made) for made in world.decisions),
        marks=world.marks[::-1],
        visible=tuple(
            count
            for at in range(0, len(visible), size)
            for count in (*visible[at + HALVES : at + size], *visible[at : at + HALVES])
        ),
        txns=tuple(txn._replace(halves=txn.halves[::-1], marked=txn.marked[::-1]) for txn in world.txns),
        drivers=tuple(_mirrored(driver) for driver in world.drivers),
    )


def _mirrored(driver: Driver) -> Driver:
    endings = (Ending(_exchanged(ending.prepared), *ending[1:]) for ending in driver.ending)
    return driver._replace(
        tasks=driver.tasks[::-1],
        producers=driver.producers[::-1],
        keep=_turned(driver.keep),
        marks=driver.marks[::-1],
        prepared=_turned(driver.prepared),
        ending=tuple(sorted(endings)),
    )


def _exchanged(entry: Prepared) -> Prepared:
    return Prepared(_OTHER[entry.partition], entry.id)


def _turned(entries: Iterable[Prepared]) -> tuple[Prepared, ...]:
    return tuple(sorted(_exchanged(entry) for entry in entries))


def _named_by_use(world: World) -> World:
    """Renumbers generations in their order and ids by their use.

    The next id is the first free number.
    """
    used = {0, world.generation, world.published, world.republished, *world.claims}
    used.update(driver.generation for driver in world.drivers)
    named = uses(world)
    used.update(generation for generation, _ in named)
    generations = {old: new for new, old in enumerate(sorted(used))}
    numbers: dict[Key, Key] = {}
    counts = dict.fromkeys(used, 0)
    for generation, number in sorted(named, key=lambda each: (each[0], named[each], each[1])):
        numbers[generation, number] = generations[generation], counts[generation]
        counts[generation] += 1
    drivers = tuple(driver._replace(made=counts[driver.generation]) for driver in world.drivers)
    return renamed(world._replace(drivers=drivers), generations, numbers)


def renamed(world: World, generations: Mapping[int, int], numbers: Mapping[Key, Key]) -> World:
    """The world with other numbers for generations and ids."""
    return world._replace(
        generation=generations[world.generation],
        published=generations[world.published],
        republished=generations[world.republished],
        claims=tuple(generations[claim] for claim in world.claims),
        txns=tuple(sorted(Txn(_id(txn.id, numbers), *txn[1:]) for txn in world.txns)),
        late=_ids(world.late, numbers),
        decisions=tuple(tuple(_entries(decision, numbers) for decision in made) for made in world.decisions),
        drivers=tuple(_driver(driver, generations, numbers) for driver in world.drivers),
    )


def uses(world: World) -> dict[Key, list[tuple[object, ...]]]:
    """Every id with its uses; a use contains no id number."""
    found: dict[Key, list[tuple[object, ...]]] = {}
    for use, asked in _mentions(world):
        found.setdefault(key(asked), []).append(use)
    return found


def _mentions(world: World) -> Iterator[tuple[tuple[object, ...], Id]]:
    for at, driver in enumerate(world.drivers):
        for slot, producer in enumerate(driver.producers):
            if producer is not None:
                yield ("a producer", at, slot), producer.id
    for txn in world.txns:
        yield ("b transaction", txn.id.epoch, *txn[1:]), txn.id
    for batch, made in enumerate(world.decisions):
        for attempt, decision in enumerate(made):
            for entry in decision:
                yield ("c decided", batch, attempt, entry.partition), entry.id
    for at, driver in enumerate(world.drivers):
        for entry in driver.keep:
            yield ("d kept", at, entry.partition), entry.id
        for entry in driver.prepared:
            yield ("e prepared", at, entry.partition), entry.id
        for ending in driver.ending:
            yield ("f ending", at, ending.prepared.partition), ending.prepared.id
        for asked in driver.done:
            yield ("g done", at), asked
        for asked in driver.todo:
            yield ("h to fence", at), asked
    for asked in world.late:
        yield ("i late", asked.epoch), asked


def _driver(driver: Driver, generations: Mapping[int, int], numbers: Mapping[Key, Key]) -> Driver:
    return driver._replace(
        generation=generations[driver.generation],
        producers=tuple(
            None if producer is None else Producer(_id(producer.id, numbers), *producer[1:])
            for producer in driver.producers
        ),
        keep=_entries(driver.keep, numbers),
        done=_ids(driver.done, numbers),
        todo=_ids(driver.todo, numbers),
        prepared=_entries(driver.prepared, numbers),
        ending=tuple(sorted(_ending(ending, numbers) for ending in driver.ending)),
    )


def _entries(entries: tuple[Prepared, ...], numbers: Mapping[Key, Key]) -> tuple[Prepared, ...]:
    return tuple(sorted(Prepared(entry.partition, _id(entry.id, numbers)) for entry in entries))


def _ending(ending: Ending, numbers: Mapping[Key, Key]) -> Ending:
    return Ending(Prepared(ending.prepared.partition, _id(ending.prepared.id, numbers)), *ending[1:])


def _ids(ids: tuple[Id, ...], numbers: Mapping[Key, Key]) -> tuple[Id, ...]:
    return tuple(sorted(_id(asked, numbers) for asked in ids))


def _id(asked: Id, numbers: Mapping[Key, Key]) -> Id:
    return Id(*numbers[key(asked)], asked.epoch)
