"""Inert drivers: superseded or fenced drivers that can only end.

The search drops them at once.

Promise: no remaining step of an inert driver or of its tasks affects anything else, whatever happens meanwhile. A
newer driver does not go away, and a raised epoch does not return. So a kill of an inert driver and its own end lead to
the same worlds.

What can go wrong: a driver counts as inert although it can still act. A test compares this search with a search that
keeps every driver.
"""

from __future__ import annotations

from proofs.protocol_model import broker, tasks
from proofs.protocol_model.setting import IDEMPOTENT, TWO_PHASE, Setting
from proofs.protocol_model.startup import superseded
from proofs.protocol_model.world import Driver, Producer, World

# Points at which the driver's next step checks whether a newer driver was started.
CHECKS_NEXT = frozenset({"started", "planned", "before-decision", "decided", "claimed"})
IN_TRANSACTION = frozenset({"begun", "mid-write", "before-prepare", "after-prepare"})


def is_inert(world: World, driver: Driver, setting: Setting) -> bool:
    """Whether the driver can only end."""
    if driver.at == "after-commit":
        return world.commits > driver.batch and setting.defences.logs_last
    if driver.at == "after-commit-log":
        last = driver.batch + 1 == setting.bounds.batches
        return last or world.offsets > driver.batch + 1
    two_phase = setting.protocol == TWO_PHASE
    overtaken = superseded(world, driver, setting)
    if driver.at in CHECKS_NEXT or (two_phase and driver.at == "batch-start"):
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
    """Whether a task is finished or writes only rows that can no longer be committed."""
    producer = driver.producers[tasks.slot(driver, partition)]
    return driver.tasks[partition] in idle and (producer is None or producer.id not in world.late)


def _fails(world: World, driver: Driver, partition: int, setting: Setting) -> bool:
    """Whether a task's next step ends its driver, whenever the task takes that step."""
    at = driver.tasks[partition]
    producer = driver.producers[tasks.slot(driver, partition)]
    if at == "waiting" and (producer is None or (producer.batch >= 0 and not producer.ended)):
        if producer is not None and tasks.shares(producer, driver, setting):
            return _fenced(world, producer)
        return _sees_newer(world, driver, setting)
    if at == "made" and _sees_newer(world, driver, setting):
        return True
    if at == "after-prepare" and setting.protocol != IDEMPOTENT:
        return False
    return at in IN_TRANSACTION | {"waiting", "checked"} and _fenced(world, producer)


def _sees_newer(world: World, driver: Driver, setting: Setting) -> bool:
    return setting.defences.worker_check and world.published > driver.generation and not world.republished


def _fenced(world: World, producer: Producer | None) -> bool:
    if producer is None:
        return False
    txn = broker.find(world, producer.id)
    return txn is None or txn.id.epoch != producer.id.epoch
