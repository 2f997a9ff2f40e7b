"""The start of a driver: generation, fencing, markers.

The code is `oncebench.jobs.start.start_sink` and `KafkaSink.start`.

Promise: the steps have the order of the code:

1. take a generation in the journal;
2. read the newest decision;
3. publish the generation;
4. read the markers;
5. list the ids and fence each;
6. read the markers again and check that no newer driver exists;
7. open Spark's logs.

Between any two steps another driver may act, or this driver may die.
"""

from __future__ import annotations

from collections.abc import Iterator

from proofs.protocol_model import broker
from proofs.protocol_model.setting import TWO_PHASE, Setting
from proofs.protocol_model.world import PARTITIONS, Driver, Id, World, replaced, without

Move = tuple[str, World]


def take_over(world: World, setting: Setting) -> World:
    """A new driver takes the next generation; a driver that is still alive becomes a zombie."""
    newest = world.generation + 1
    fresh = Driver(newest, "started", producers=(None,) * setting.workers)
    return world._replace(generation=newest, drivers=(*world.drivers, fresh))


def superseded(world: World, driver: Driver, setting: Setting) -> bool:
    """`Journal.check_still_ours`: whether a newer driver was started."""
    return setting.defences.owner and world.generation > driver.generation


def steps(world: World, driver: Driver, setting: Setting) -> Iterator[Move] | None:
    """The possible next steps of a starting driver; None if it has started."""
    step = _STEPS.get(driver.at)
    return None if step is None else step(world, driver, setting)


def dies(world: World, driver: Driver, why: str) -> Move:
    """The driver ends by itself, with its tasks and workers."""
    return f"{name(driver)} ends: {why}", world._replace(drivers=without(world, driver))


def name(driver: Driver) -> str:
    """The name of a driver in a trace."""
    return f"driver {driver.generation}"


def _read_kept(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    if superseded(world, driver, setting):
        yield dies(world, driver, "a newer driver was started")
        return
    if not setting.transactional:
        ready = replaced(world, driver, driver._replace(at="ready"))
        yield f"{name(driver)} has started", world._replace(drivers=ready)
        return
    newest = max((batch for batch, made in enumerate(world.decisions) if made), default=-1)
    keep = tuple(sorted({entry for made in world.decisions[newest] for entry in made})) if newest >= 0 else ()
    after = driver._replace(at="kept-read", keep=keep, keep_batch=newest)
    text = f"finds batch {newest} decided" if newest >= 0 else "finds no decision"
    yield f"{name(driver)} {text}", world._replace(drivers=replaced(world, driver, after))


def _publish(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    published = world._replace(drivers=replaced(world, driver, driver._replace(at="published")))
    if not setting.defences.fencing:
        yield f"{name(driver)} publishes nothing", published
        return
    published = published._replace(published=driver.generation)
    yield f"{name(driver)} publishes its generation", published
    if world.republish:
        text = f"{name(driver)} publishes its generation, sent twice by its client"
        yield text, published._replace(republished=driver.generation, republish=world.republish - 1)


def _read_marks(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    """Reads the markers without waiting. Decided transactions without a marker are kept."""
    seen = world.marks if setting.defences.marker else (-1,) * PARTITIONS
    marked = {entry.id for entry in driver.keep if seen[entry.partition] >= driver.keep_batch}
    open_ = [entry for entry in driver.keep if entry.id not in marked]
    done = tuple(entry.id for entry in driver.keep if entry not in open_)
    spared = open_ if setting.defences.fences_finished else list(driver.keep)
    kept = tuple(entry for entry in spared if setting.defences.spares_decided)
    after = driver._replace(at="marks-read", done=done, keep=kept)
    yield f"{name(driver)} reads the markers: {_listed(seen)}", world._replace(drivers=replaced(world, driver, after))


def _list(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    named = {(entry.id.generation, entry.id.number) for entry in driver.keep}
    found = (txn.id for txn in world.txns if (txn.id.generation, txn.id.number) not in named)
    todo = tuple(found) if setting.defences.fencing else ()
    after = driver._replace(at="listed", todo=todo)
    text = f"{name(driver)} lists ids: {len(todo)} to fence"
    yield text, world._replace(drivers=replaced(world, driver, after))


def _fence(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    if driver.todo:
        # No other driver observes the fencing of dead drivers' ids, so all of it is one step.
        living = {each.generation for each in world.drivers}
        dead = tuple(asked for asked in driver.todo if asked.generation not in living)
        for next_ in (dead,) if dead else tuple((asked,) for asked in driver.todo):
            fenced: World | None = world
            for asked in next_:
                fenced = fenced and broker.fence(fenced, asked)
            if fenced is not None:
                after = driver._replace(todo=tuple(asked for asked in driver.todo if asked not in next_))
                text = f"{name(driver)} fences {', '.join(map(id_name, next_))}"
                yield text, fenced._replace(drivers=replaced(world, driver, after))
        return
    stable = setting.defences.fencing and not driver.keep
    if stable and any(broker.unstable(world, partition) for partition in range(PARTITIONS)):
        yield dies(world, driver, "a marker stayed unstable")
        return
    if superseded(world, driver, setting):
        yield dies(world, driver, "a newer driver was started")
        return
    marks = world.marks if setting.defences.marker else (-1,) * PARTITIONS
    # Only the idempotent protocol uses these markers again; two-phase uses its decisions.
    seen = (-1,) * PARTITIONS if setting.protocol == TWO_PHASE else marks
    after = driver._replace(at="ready", keep=(), keep_batch=driver.keep_batch if driver.done else -1, marks=seen)
    yield (
        f"{name(driver)} has started: markers {_listed(marks)}",
        world._replace(drivers=replaced(world, driver, after)),
    )


def id_name(asked: Id) -> str:
    """The name of a transactional id in a trace."""
    return f"id {asked.generation}.{asked.number}"


def _listed(marks: tuple[int, ...]) -> str:
    return " ".join("none" if mark < 0 else str(mark) for mark in marks)


_STEPS = {
    "started": _read_kept,
    "kept-read": _publish,
    "published": _read_marks,
    "marks-read": _list,
    "listed": _fence,
}
