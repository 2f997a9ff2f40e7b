"""A driver's start: the journal's generation, fencing, markers (`pipeline.job.Job.run`, `KafkaSink.start`).

Promise: the same order as the code: generation in the journal, the newest decision read, generation published, markers
read, ids listed, each fenced, markers read again, still ours?, and only then Spark's logs. Every arrow between two of
these is a place where another driver may act or this one may die.
"""

from __future__ import annotations

from collections.abc import Iterator

from proofs.protocol_model import broker
from proofs.protocol_model.setting import TWO_PHASE, Setting
from proofs.protocol_model.world import PARTITIONS, Driver, Id, World, replaced, without

Move = tuple[str, World]


def take_over(world: World) -> World:
    """A new driver takes the next generation; whoever was there is a zombie from now on."""
    newest = world.generation + 1
    return world._replace(generation=newest, drivers=(*world.drivers, Driver(newest, "started")))


def succeeded(world: World, driver: Driver, setting: Setting) -> bool:
    """`Journal.check_still_ours`: whether a younger driver was started."""
    return setting.defences.owner and world.generation > driver.generation


def steps(world: World, driver: Driver, setting: Setting) -> Iterator[Move] | None:
    """What a driver that is starting can do next; None: it has started."""
    step = _STEPS.get(driver.at)
    return None if step is None else step(world, driver, setting)


def dies(world: World, driver: Driver, why: str) -> Move:
    """The driver ends by itself, with its tasks and workers."""
    return f"{name(driver)} ends: {why}", world._replace(drivers=without(world, driver))


def name(driver: Driver) -> str:
    """How a trace calls a driver."""
    return f"driver {driver.generation}"


def _read_kept(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    if succeeded(world, driver, setting):
        yield dies(world, driver, "another was started")
        return
    if not setting.transactional:
        ready = replaced(world, driver, driver._replace(at="ready"))
        yield f"{name(driver)} has started", world._replace(drivers=ready)
        return
    newest = max((batch for batch, made in enumerate(world.decisions) if made), default=-1)
    keep = tuple(sorted({entry for made in world.decisions[newest] for entry in made})) if newest >= 0 else ()
    after = driver._replace(at="kept-read", keep=keep, keep_batch=newest)
    told = f"finds batch {newest} decided" if newest >= 0 else "finds no decision"
    yield f"{name(driver)} {told}", world._replace(drivers=replaced(world, driver, after))


def _publish(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    published = world._replace(drivers=replaced(world, driver, driver._replace(at="published")))
    if not setting.defences.fencing:
        yield f"{name(driver)} publishes nothing", published
        return
    published = published._replace(published=driver.generation)
    yield f"{name(driver)} publishes its generation", published
    if world.republish:
        told = f"{name(driver)} publishes its generation, sent twice by its client"
        yield told, published._replace(republished=driver.generation, republish=world.republish - 1)


def _read_marks(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    """Markers are not waited for here; what the newest decision named and is not marked is to be left alone."""
    seen = world.marks if setting.defences.marker else (-1,) * PARTITIONS
    open_ = [entry for entry in driver.keep if seen[entry.partition] < driver.keep_batch]
    done = tuple(entry.id for entry in driver.keep if entry not in open_)
    spared = open_ if setting.defences.fences_finished else list(driver.keep)
    kept = tuple(entry for entry in spared if setting.defences.spares_decided)
    after = driver._replace(at="marks-read", done=done, keep=kept)
    yield f"{name(driver)} reads the markers: {_told(seen)}", world._replace(drivers=replaced(world, driver, after))


def _list(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    named = {(entry.id.generation, entry.id.number) for entry in driver.keep}
    found = (txn.id for txn in world.txns if (txn.id.generation, txn.id.number) not in named)
    todo = tuple(found) if setting.defences.fencing else ()
    after = driver._replace(at="listed", todo=todo)
    told = f"{name(driver)} lists ids: {len(todo)} to fence"
    yield told, world._replace(drivers=replaced(world, driver, after))


def _fence(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    if driver.todo:
        # What the dead have left changes for nobody while it is fenced: all of it is one step.
        living = {each.generation for each in world.drivers}
        dead = tuple(asked for asked in driver.todo if asked.generation not in living)
        for next_ in (dead,) if dead else tuple((asked,) for asked in driver.todo):
            fenced: World | None = world
            for asked in next_:
                fenced = fenced and broker.fence(fenced, asked)
            if fenced is not None:
                after = driver._replace(todo=tuple(asked for asked in driver.todo if asked not in next_))
                told = f"{name(driver)} fences {', '.join(map(id_name, next_))}"
                yield told, fenced._replace(drivers=replaced(world, driver, after))
        return
    stable = setting.defences.fencing and not driver.keep
    if stable and any(broker.unstable(world, partition) for partition in range(PARTITIONS)):
        yield dies(world, driver, "a marker stayed unstable")
        return
    if succeeded(world, driver, setting):
        yield dies(world, driver, "another was started")
        return
    marks = world.marks if setting.defences.marker else (-1,) * PARTITIONS
    # Two-phase finds out by its decisions; only idempotent looks at these again.
    seen = (-1,) * PARTITIONS if setting.protocol == TWO_PHASE else marks
    after = driver._replace(at="ready", keep=(), keep_batch=driver.keep_batch if driver.done else -1, marks=seen)
    yield f"{name(driver)} has started: markers {_told(marks)}", world._replace(drivers=replaced(world, driver, after))


def id_name(asked: Id) -> str:
    """How a trace calls a transactional id."""
    return f"id {asked.generation}.{asked.number}"


def _told(marks: tuple[int, ...]) -> str:
    return " ".join("none" if mark < 0 else str(mark) for mark in marks)


_STEPS = {
    "started": _read_kept,
    "kept-read": _publish,
    "published": _read_marks,
    "marks-read": _list,
    "listed": _fence,
}
