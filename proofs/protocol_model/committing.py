"""Two-phase commit in the driver: decision, EndTxn per transaction, lost partitions.

The code is `KafkaSink.commit`.

Promise: between the last task and `after-commit` these are the steps of the code, and a driver can die at each:

1. check that no newer driver exists, write the decision, check again;
2. send an EndTxn per transaction, in any order; tasks of one worker share a transaction;
3. read the markers where an answer leaves the outcome open;
4. fence the ids in doubt.

A partition is lost if its transaction is gone and left no marker. In the first run the driver then ends; a replay
writes the partition again under a further decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from proofs.protocol_model import broker, tasks
from proofs.protocol_model.setting import Setting
from proofs.protocol_model.startup import Move, dies, id_name, name, superseded
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
    text = f"{name(driver)}, batch {driver.batch}: {after.at}"
    return text, world._replace(drivers=replaced(world, driver, after))


def to_end(driver: Driver, entries: Iterable[Prepared], setting: Setting) -> Driver:
    """The driver with the transactions that it must commit.

    Those that were committed before its start are left out.
    """
    done = driver.done
    if setting.defences.done_by_batch and driver.batch != driver.keep_batch:
        done = ()
    ending = tuple(Ending(entry) for entry in sorted(entries) if entry.id not in done)
    return driver._replace(at="after-decision" if ending else "after-commit", ending=ending)


def steps(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    """The driver's possible next steps."""
    if driver.at in ("after-decision", "mid-commit"):
        yield from _end(world, driver, setting)
    else:
        step = {"before-decision": _ours, "allowed": _decide, "decided": _ours, "ended": _settle, "settled": _go_on}
        yield from step[driver.at](world, driver, setting)


def _ours(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    if superseded(world, driver, setting):
        yield dies(world, driver, "a newer driver was started")
    elif driver.at == "before-decision":
        yield _to(world, driver, driver._replace(at="allowed"), "is still the newest and may decide")
    else:
        yield _to(world, driver, to_end(driver, driver.prepared, setting), "after-decision")


def _decide(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    made = world.decisions[driver.batch]
    if len(made) > driver.attempt and setting.defences.exclusive:
        yield dies(world, driver, f"batch {driver.batch} was decided by another driver")
        return
    made = (*made[: driver.attempt], driver.prepared)
    decisions = tuple(made if at == driver.batch else each for at, each in enumerate(world.decisions))
    yield _to(world._replace(decisions=decisions), driver, driver._replace(at="decided"), "decides", world)


def _end(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    """Sends one EndTxn. Without an answer the driver sends it again or gives up."""
    for at, ending in enumerate(driver.ending):
        if ending.answer:
            continue
        text = f"sends EndTxn for partition {ending.prepared.partition}"
        if world.unanswered:
            late = tuple(sorted((*world.late, ending.prepared.id)))
            lost = world._replace(late=late, unanswered=world.unanswered - 1)
            if setting.defences.awaits_answer:
                doubted = driver._replace(ending=_with(driver, at, doubtful=True))
                yield _to(lost, driver, doubted, f"{text}, no answer", world)
            else:
                yield _answered(lost, driver, at, broker.DONE, f"{text}, no answer, taken as", world)
        if ending.doubtful:
            yield dies(world, driver, f"partition {ending.prepared.partition}'s commit is uncertain")
        answer, after = broker.end(world, ending.prepared.id, setting)
        if answer == broker.BUSY:
            continue
        yield _answered(after, driver, at, answer, f"{text}:", world)


def _answered(world: World, driver: Driver, at: int, answer: str, text: str, was: World) -> Move:
    answered = _with(driver, at, answer=answer)
    point = "mid-commit" if any(not each.answer for each in answered) else "ended"
    return _to(world, driver, driver._replace(at=point, ending=answered), f"{text} {answer}; {point}", was)


def _settle(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    """Finds the lost partitions and the ids that must not be used again."""
    unclear = {ending.prepared.partition for ending in driver.ending if ending.answer == broker.ELSEWHERE}
    if unclear and setting.defences.marker and any(broker.unstable(world, p) for p in range(PARTITIONS)):
        yield dies(world, driver, "a marker stayed unstable")
        return
    marked = {p for p in unclear if setting.defences.marker and world.marks[p] >= driver.batch}
    lost = tuple(ending for ending in driver.ending if ending.prepared.partition in unclear - marked)
    ids = {ending.prepared.id: ending for ending in driver.ending}
    doubtful = {at for at, ending in ids.items() if ending.doubtful or ending.answer == broker.ELSEWHERE}
    retired = doubtful if setting.defences.retires else set()
    producers = tuple(_after_end(producer, ids.keys(), retired) for producer in driver.producers)
    after = driver._replace(producers=producers, ending=lost, todo=tuple(sorted(retired)))
    if not after.todo and not lost:
        yield _to(world, driver, after._replace(at="after-commit"), "after-commit")
        return
    text = f"finds partitions {sorted(unclear - marked)} lost and {len(retired)} ids to retire"
    yield _to(world, driver, after._replace(at="settled"), text)


def _go_on(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    for asked in driver.todo:
        fenced = broker.fence(world, asked)
        if fenced is not None:
            left = tuple(each for each in driver.todo if each != asked)
            text = f"fences {id_name(asked)}, which is in doubt"
            yield _to(fenced, driver, driver._replace(todo=left), text, world)
    if driver.todo:
        return
    lost = frozenset(ending.prepared.partition for ending in driver.ending)
    if not lost or not setting.defences.rewrites:
        yield _to(world, driver, driver._replace(at="after-commit", ending=()), "after-commit")
    elif driver.prepared:
        yield dies(world, driver, f"the prepared rows of partitions {sorted(lost)} are lost")
    else:
        again = driver._replace(at="running", tasks=tasks.run(lost), ending=())
        yield _to(world, driver, again, f"writes partitions {sorted(lost)} again")


def _after_end(producer: Producer | None, ended: Iterable[object], retired: Iterable[object]) -> Producer | None:
    """A worker's producer after the next batch has brought it the committed and retired ids."""
    if producer is None or producer.id in retired:
        return None
    return producer._replace(ended=True) if producer.id in ended else producer


def _with(driver: Driver, at: int, **changes: Any) -> tuple[Ending, ...]:
    """The endings after a change of one, and of all that have the same transaction."""
    asked = driver.ending[at].prepared.id
    return tuple(each._replace(**changes) if each.prepared.id == asked else each for each in driver.ending)


def _to(world: World, driver: Driver, after: Driver, text: str, was: World | None = None) -> Move:
    drivers = replaced(was or world, driver, after)
    return f"{name(driver)}, batch {driver.batch}: {text}", world._replace(drivers=drivers)
