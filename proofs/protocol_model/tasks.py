"""The tasks of a batch, and their workers (`oncebench/sinks/kafka/rows/writers.py`).

Promise: the steps of a batch's tasks interleave in any order. A single worker runs them one after the other, in any
order; under two-phase they then share a transaction. A worker's producer is used from batch to batch with one id and
epoch. In the next batch each partition moves to the other worker. A failed task ends its driver, because there are no
retries. At `mid-write` the transaction holds half of a partition's rows, at `before-prepare` all of them.
Without transactions the same rows are visible at these points.
"""

from __future__ import annotations

from collections.abc import Iterator

from proofs.protocol_model import broker
from proofs.protocol_model.setting import IDEMPOTENT, TWO_PHASE, Setting
from proofs.protocol_model.startup import Move, dies, id_name, name
from proofs.protocol_model.world import HALVES, PARTITIONS, Driver, Id, Producer, World, made_visible, replaced

WAITING, DRAINED, COMMITTED = "waiting", "drained", "committed"
FINISHED = frozenset({DRAINED, COMMITTED})


def run(only: frozenset[int]) -> tuple[str, ...]:
    """The tasks at the beginning of a batch: `only` are written, other partitions are drained."""
    return tuple(WAITING if partition in only else DRAINED for partition in range(PARTITIONS))


def finished(driver: Driver, setting: Setting) -> bool:
    """Whether every task has returned."""
    last = COMMITTED if setting.protocol == IDEMPOTENT else "after-prepare"
    return all(task in (last, DRAINED) for task in driver.tasks)


def slot(driver: Driver, partition: int) -> int:
    """The worker that runs a partition's task."""
    return (partition + driver.batch) % len(driver.producers)


def steps(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    """The possible next steps of all tasks of the batch."""
    for partition in range(PARTITIONS):
        if not _is_free(driver, partition, setting):
            continue
        if setting.transactional:
            yield from _transactional(world, driver, partition, setting)
        else:
            yield from _append(world, driver, partition)


def _is_free(driver: Driver, partition: int, setting: Setting) -> bool:
    """Whether the worker of a task runs no other one."""
    mine = slot(driver, partition)
    others = (at for at in range(PARTITIONS) if at != partition and slot(driver, at) == mine)
    idle = (WAITING, DRAINED, COMMITTED if setting.protocol == IDEMPOTENT else "after-prepare")
    return driver.tasks[partition] != WAITING or all(driver.tasks[at] in idle for at in others)


def _append(world: World, driver: Driver, partition: int) -> Iterator[Move]:
    order = {WAITING: "mid-write", "mid-write": "before-prepare", "before-prepare": "after-prepare"}
    point = order.get(driver.tasks[partition])
    if point is None:
        return
    after = driver._replace(tasks=_at(driver, partition, point))
    half = {"mid-write": 0, "before-prepare": 1}.get(point)
    visible = (
        world.visible if half is None else made_visible(world.visible, driver.batch, partition, range(half, half + 1))
    )
    text = f"{_task(driver, partition)} writes: {point}"
    yield text, world._replace(visible=visible, drivers=replaced(world, driver, after))


def _transactional(world: World, driver: Driver, partition: int, setting: Setting) -> Iterator[Move]:
    at = driver.tasks[partition]
    if at == WAITING:
        yield from _begin(world, driver, partition, setting)
    elif at == "made":
        if setting.defences.worker_check and world.published > driver.generation:
            yield dies(world, driver, "its worker sees a newer generation")
        else:
            after = driver._replace(tasks=_at(driver, partition, "checked"))
            text = f"{_task(driver, partition)} finds no newer generation"
            yield text, world._replace(drivers=replaced(world, driver, after))
    elif at == "checked":
        yield from _begun(world, driver, partition, setting)
    elif at == "begun":
        yield _write(world, driver, partition, "mid-write", 1)
    elif at == "mid-write":
        yield _write(world, driver, partition, "before-prepare", HALVES)
    elif at == "before-prepare":
        marked = setting.protocol == IDEMPOTENT and setting.defences.marker
        yield _write(world, driver, partition, "after-prepare", HALVES, marked)
    elif at == "after-prepare" and setting.protocol == IDEMPOTENT:
        yield from _commit(world, driver, partition, setting)


def _begin(world: World, driver: Driver, partition: int, setting: Setting) -> Iterator[Move]:
    """Takes the worker's producer, or makes a new one where the old one must not be used again."""
    producer = driver.producers[slot(driver, partition)]
    if producer is not None and shares(producer, driver, setting):
        yield _write(world, driver, partition, "begun", 0, setting.defences.marker)
        return
    if producer is None or (producer.batch >= 0 and not producer.ended):
        fresh = Id(driver.generation, driver.made, 0)
        producers = _with(driver, partition, Producer(fresh))
        after = driver._replace(tasks=_at(driver, partition, "made"), producers=producers, made=driver.made + 1)
        text = f"{_task(driver, partition)} makes a producer, {id_name(fresh)}"
        yield text, broker.make(world, fresh)._replace(drivers=replaced(world, driver, after))
        return
    if producer.batch < 0:
        yield from _begun(world, driver, partition, setting)
        return
    # The client library still sees its last transaction as open. It commits again; the answer is "done".
    answer, committed = broker.end(world, producer.id, setting)
    if answer == broker.ELSEWHERE:
        yield dies(world, driver, f"{id_name(producer.id)} is fenced")
    elif answer == broker.DONE:
        yield from _begun(committed, driver, partition, setting)
        if world.resent:
            late = tuple(sorted((*world.late, producer.id)))
            twice = committed._replace(late=late, resent=world.resent - 1)
            for text, begun in _begun(twice, driver, partition, setting):
                yield f"{text}; its client sent the last EndTxn twice", begun


def shares(producer: Producer, driver: Driver, setting: Setting) -> bool:
    """Whether the next task of a worker writes into the transaction of an earlier one."""
    return setting.protocol == TWO_PHASE and not producer.ended and producer.batch == driver.batch


def _begun(world: World, driver: Driver, partition: int, setting: Setting) -> Iterator[Move]:
    producer = driver.producers[slot(driver, partition)]
    assert producer is not None, "the task has made it"
    marked = setting.protocol == TWO_PHASE and setting.defences.marker
    answer, begun = broker.begin(world, producer.id, driver.batch)
    if answer == broker.BUSY:
        return
    if answer == broker.ELSEWHERE:
        yield dies(world, driver, f"{id_name(producer.id)} is fenced")
        return
    if marked:
        begun = broker.write(begun, producer.id, partition, 0, marked) or begun
    producers = _with(driver, partition, Producer(producer.id, driver.batch))
    after = driver._replace(tasks=_at(driver, partition, "begun"), producers=producers)
    text = f"{_task(driver, partition)} begins a transaction with {id_name(producer.id)}"
    yield text, begun._replace(drivers=replaced(world, driver, after))


def _write(world: World, driver: Driver, partition: int, point: str, halves: int, marked: bool = False) -> Move:
    producer = driver.producers[slot(driver, partition)]
    assert producer is not None, "the task has begun with it"
    written = broker.write(world, producer.id, partition, halves, marked)
    if written is None:
        return dies(world, driver, f"{id_name(producer.id)} has no open transaction")
    after = driver._replace(tasks=_at(driver, partition, point))
    text = f"{_task(driver, partition)} in its transaction: {point}"
    return text, written._replace(drivers=replaced(world, driver, after))


def _commit(world: World, driver: Driver, partition: int, setting: Setting) -> Iterator[Move]:
    """Idempotent: the task ends its own transaction, and fails without a definite answer."""
    producer = driver.producers[slot(driver, partition)]
    assert producer is not None, "the task has begun with it"
    late = tuple(sorted((*world.late, producer.id)))
    if world.unanswered:
        text, after = dies(world, driver, f"partition {partition}'s commit got no answer")
        yield text, after._replace(late=late, unanswered=world.unanswered - 1)
    answer, committed = broker.end(world, producer.id, setting)
    if answer == broker.ELSEWHERE:
        yield dies(world, driver, f"{id_name(producer.id)} is fenced")
    elif answer == broker.DONE:
        producers = _with(driver, partition, Producer(producer.id))
        moved = driver._replace(tasks=_at(driver, partition, COMMITTED), producers=producers)
        text = f"{_task(driver, partition)} commits its transaction"
        after = committed._replace(drivers=replaced(world, driver, moved))
        yield text, after
        if world.resent:
            yield f"{text}; its client sent the EndTxn twice", after._replace(late=late, resent=world.resent - 1)


def _task(driver: Driver, partition: int) -> str:
    return f"{name(driver)}, batch {driver.batch}, task {partition}"


def _at(driver: Driver, partition: int, point: str) -> tuple[str, ...]:
    return tuple(point if at == partition else task for at, task in enumerate(driver.tasks))


def _with(driver: Driver, partition: int, producer: Producer | None) -> tuple[Producer | None, ...]:
    mine = slot(driver, partition)
    return tuple(producer if at == mine else each for at, each in enumerate(driver.producers))
