"""Drivers that can do nothing any more but end: they are as good as dead, and the search need not carry them along.

Promise: a driver is called doomed only if nothing that it or its tasks may still do changes anything for anybody else,
whatever happens meanwhile (a successor never goes away again, and an epoch that has moved on never comes back). To
kill such a driver, or to let it end by itself, leads to the same worlds. What can go wrong: one is called doomed that
could still act; a test compares the search with one that carries every driver along.
"""

from __future__ import annotations

from proofs.protocol_model import broker, tasks
from proofs.protocol_model.setting import IDEMPOTENT, TWO_PHASE, Setting
from proofs.protocol_model.startup import succeeded
from proofs.protocol_model.world import Driver, Producer, World

# Where the next step is a look whether a younger driver was started.
LOOKS_NEXT = frozenset({"started", "planned", "before-decision", "decided", "claimed"})
IN_TRANSACTION = frozenset({"begun", "mid-write", "before-prepare", "after-prepare"})


def doomed(world: World, driver: Driver, setting: Setting) -> bool:
    """Whether it can only end."""
    if driver.at == "after-commit":
        return world.commits > driver.batch and setting.defences.logs_last
    if driver.at == "after-commit-log":
        last = driver.batch + 1 == setting.bounds.batches
        return last or world.offsets > driver.batch + 1
    two_phase = setting.protocol == TWO_PHASE
    overtaken = succeeded(world, driver, setting)
    if driver.at in LOOKS_NEXT or (two_phase and driver.at == "batch-start"):
        return overtaken
    if driver.at != "running" or not setting.transactional:
        return False
    undecidable = two_phase and setting.defences.decision and overtaken
    fails = [_fails(world, driver, partition, setting) for partition in range(len(driver.tasks))]
    if not undecidable and not any(fails):
        return False
    can_write = IN_TRANSACTION if undecidable else frozenset({"after-prepare"})
    idle = tasks.FINISHED if setting.protocol == IDEMPOTENT else tasks.FINISHED | can_write
    return all(failing or _idle(world, driver, at, idle) for at, failing in enumerate(fails))


def _idle(world: World, driver: Driver, partition: int, idle: frozenset[str]) -> bool:
    """Whether a task has nothing more to do, or writes only what nobody can commit any more."""
    producer = driver.producers[tasks.slot(driver, partition)]
    return driver.tasks[partition] in idle and (producer is None or producer.id not in world.late)


def _fails(world: World, driver: Driver, partition: int, setting: Setting) -> bool:
    """Whether a task's next step ends its driver, whenever it comes."""
    at = driver.tasks[partition]
    producer = driver.producers[tasks.slot(driver, partition)]
    if at == "waiting" and (producer is None or (producer.open and not producer.ended)):
        return _sees_younger(world, driver, setting)
    if at == "made" and _sees_younger(world, driver, setting):
        return True
    if at == "after-prepare" and setting.protocol != IDEMPOTENT:
        return False
    return at in IN_TRANSACTION | {"waiting", "checked"} and _fenced(world, producer)


def _sees_younger(world: World, driver: Driver, setting: Setting) -> bool:
    return setting.defences.worker_check and world.published > driver.generation and not world.republished


def _fenced(world: World, producer: Producer | None) -> bool:
    if producer is None:
        return False
    txn = broker.find(world, producer.id)
    return txn is None or txn.id.epoch != producer.id.epoch
