"""Two-phase commit in the driver: decision, EndTxn for each, what is lost, what is in doubt (`KafkaSink.commit`).

Promise: between the last task and `after-commit` the same steps as the code, each a place to die: still ours?, the
decision, still ours?, an EndTxn per partition in any order, markers where an answer does not tell, the fencing of ids
in doubt. A partition whose transaction is gone without a marker is lost: the first run ends for it, a replay writes it
again under a further decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proofs.protocol_model import broker, tasks
from proofs.protocol_model.setting import Setting
from proofs.protocol_model.startup import Move, dies, id_name, name, succeeded
from proofs.protocol_model.world import PARTITIONS, Driver, Ending, Prepared, Producer, World, replaced

POINTS = frozenset({"before-decision", "allowed", "decided", "after-decision", "mid-commit", "ended", "settled"})


def collect(world: World, driver: Driver, setting: Setting) -> Move:
    """Every task has prepared."""
    prepared = tuple(
        Prepared(partition, producer.id)
        for partition in range(PARTITIONS)
        if driver.tasks[partition] == "after-prepare"
        and (producer := driver.producers[tasks.slot(driver, partition)]) is not None
    )
    after = driver._replace(at="before-decision", tasks=(), prepared=prepared)
    if not setting.defences.decision:
        after = to_end(after, prepared, setting)
    told = f"{name(driver)}, batch {driver.batch}: {after.at}"
    return told, world._replace(drivers=replaced(world, driver, after))


def to_end(driver: Driver, entries: Iterable[Prepared], setting: Setting) -> Driver:
    """The driver with what it has to commit; what was committed before it started is left alone."""
    done = driver.done
    if setting.defences.knows_batches and driver.batch != driver.keep_batch:
        done = ()
    ending = tuple(Ending(entry) for entry in sorted(entries) if entry.id not in done)
    return driver._replace(at="after-decision" if ending else "after-commit", ending=ending)


def steps(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    """What the driver can do next."""
    if driver.at in ("after-decision", "mid-commit"):
        yield from _end(world, driver, setting)
    else:
        step = {"before-decision": _ours, "allowed": _decide, "decided": _ours, "ended": _settle, "settled": _go_on}
        yield from step[driver.at](world, driver, setting)


def _ours(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    if succeeded(world, driver, setting):
        yield dies(world, driver, "another was started")
    elif driver.at == "before-decision":
        yield _to(world, driver, driver._replace(at="allowed"), "is still the newest, and may decide")
    else:
        yield _to(world, driver, to_end(driver, driver.prepared, setting), "after-decision")


def _decide(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    made = world.decisions[driver.batch]
    if len(made) > driver.attempt and setting.defences.exclusive:
        yield dies(world, driver, f"batch {driver.batch} was decided by another")
        return
    made = (*made[: driver.attempt], driver.prepared)
    decisions = tuple(made if at == driver.batch else each for at, each in enumerate(world.decisions))
    yield _to(world._replace(decisions=decisions), driver, driver._replace(at="decided"), "decides", world)


def _end(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    """One EndTxn: answered, or not: then it is asked again, or the driver gives up."""
    for at, ending in enumerate(driver.ending):
        if ending.answer:
            continue
        told = f"sends EndTxn for partition {ending.prepared.partition}"
        if world.unanswered:
            late = tuple(sorted((*world.late, ending.prepared.id)))
            lost = world._replace(late=late, unanswered=world.unanswered - 1)
            if setting.defences.hears:
                doubted = driver._replace(ending=_with(driver, at, ending._replace(doubtful=True)))
                yield _to(lost, driver, doubted, f"{told}, no answer", world)
            else:
                yield _answered(lost, driver, at, broker.DONE, f"{told}, no answer, taken for", world)
        if ending.doubtful:
            yield dies(world, driver, f"partition {ending.prepared.partition}'s commit is uncertain")
        answer, after = broker.end(world, ending.prepared.id, setting)
        if answer == broker.BUSY:
            continue
        yield _answered(after, driver, at, answer, f"{told}:", world)


def _answered(world: World, driver: Driver, at: int, answer: str, told: str, was: World) -> Move:
    answered = _with(driver, at, driver.ending[at]._replace(answer=answer))
    point = "mid-commit" if any(not each.answer for each in answered) else "ended"
    return _to(world, driver, driver._replace(at=point, ending=answered), f"{told} {answer}; {point}", was)


def _settle(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    """Which partitions are lost, which ids must never be used again."""
    unclear = {ending.prepared.partition for ending in driver.ending if ending.answer == broker.ELSEWHERE}
    if unclear and setting.defences.marker and any(broker.unstable(world, p) for p in range(PARTITIONS)):
        yield dies(world, driver, "a marker stayed unstable")
        return
    marked = {p for p in unclear if setting.defences.marker and world.marks[p] >= driver.batch}
    lost = tuple(ending for ending in driver.ending if ending.prepared.partition in unclear - marked)
    ids = {ending.prepared.id: ending for ending in driver.ending}
    doubtful = {at for at, ending in ids.items() if ending.doubtful or ending.answer == broker.ELSEWHERE}
    retired = doubtful if setting.defences.retires else set()
    producers = tuple(_told_of(producer, ids.keys(), retired) for producer in driver.producers)
    after = driver._replace(producers=producers, ending=lost, todo=tuple(sorted(retired)))
    if not after.todo and not lost:
        yield _to(world, driver, after._replace(at="after-commit"), "after-commit")
        return
    told = f"finds partitions {sorted(unclear - marked)} lost, {len(retired)} ids to retire"
    yield _to(world, driver, after._replace(at="settled"), told)


def _go_on(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    for asked in driver.todo:
        fenced = broker.fence(world, asked)
        if fenced is not None:
            left = tuple(each for each in driver.todo if each != asked)
            told = f"fences {id_name(asked)}, which is in doubt"
            yield _to(fenced, driver, driver._replace(todo=left), told, world)
    if driver.todo:
        return
    lost = frozenset(ending.prepared.partition for ending in driver.ending)
    if not lost or not setting.defences.rewrites:
        yield _to(world, driver, driver._replace(at="after-commit", ending=()), "after-commit")
    elif driver.prepared:
        yield dies(world, driver, f"what partitions {sorted(lost)} had prepared is lost")
    else:
        again = driver._replace(at="running", tasks=tasks.run(lost), ending=())
        yield _to(world, driver, again, f"writes partitions {sorted(lost)} again")


def _told_of(producer: Producer | None, ended: Iterable[object], retired: Iterable[object]) -> Producer | None:
    """A worker's producer once it is told, with the next batch, which ids are committed and which are retired."""
    if producer is None or producer.id in retired:
        return None
    return producer._replace(ended=True) if producer.id in ended else producer


def _with(driver: Driver, at: int, ending: Ending) -> tuple[Ending, ...]:
    return (*driver.ending[:at], ending, *driver.ending[at + 1 :])


def _to(world: World, driver: Driver, after: Driver, told: str, was: World | None = None) -> Move:
    drivers = replaced(was or world, driver, after)
    return f"{name(driver)}, batch {driver.batch}: {told}", world._replace(drivers=drivers)
