"""A batch in the driver: each guarantee's durable mark, and Spark's two logs.

The code is `oncebench/delivery/protocols.py`.

Promise: `driver.at` is the last failpoint that the driver passed (`oncebench.delivery.failpoints.POINTS`). A few steps
between two failpoints have names of their own. An entry of the journal or of Spark's logs is created exclusively: the
driver that comes second ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from proofs.protocol_model import committing, tasks
from proofs.protocol_model.setting import AT_MOST_ONCE, IDEMPOTENT, TWO_PHASE, Setting
from proofs.protocol_model.startup import Move, dies, name, superseded
from proofs.protocol_model.world import PARTITIONS, Driver, World, replaced, without

EVERY = frozenset(range(PARTITIONS))


def steps(world: World, driver: Driver, setting: Setting) -> Iterator[Move]:
    """The possible next steps of a started driver and of its tasks."""
    if driver.at == "running":
        yield from tasks.steps(world, driver, setting)
        if tasks.finished(driver, setting):
            yield _collect(world, driver, setting)
    elif setting.protocol == TWO_PHASE and driver.at in committing.POINTS:
        yield from committing.steps(world, driver, setting)
    else:
        yield _STEPS[driver.at](world, driver, setting)


def _open_logs(world: World, driver: Driver, setting: Setting) -> Move:
    """Starts the query at the first batch that is not in the commit log."""
    if world.commits == setting.bounds.batches:
        return f"{name(driver)} has nothing more to do", world._replace(drivers=without(world, driver))
    return _plan(world, driver, world.commits, again=world.offsets > world.commits)


def _next_batch(world: World, driver: Driver, setting: Setting) -> Move:
    if driver.batch + 1 == setting.bounds.batches:
        return f"{name(driver)} has nothing more to do", world._replace(drivers=without(world, driver))
    return _plan(world, driver, driver.batch + 1, again=False)


def _plan(world: World, driver: Driver, batch: int, again: bool) -> Move:
    if not again and world.offsets > batch:
        return dies(world, driver, f"offsets/{batch} is another driver's")
    after = driver._replace(at="planned", batch=batch)
    text = f"{name(driver)} runs batch {batch} again" if again else f"{name(driver)} writes offsets/{batch}"
    offsets = max(world.offsets, batch + 1)
    return text, world._replace(offsets=offsets, drivers=replaced(world, driver, after))


def _start(world: World, driver: Driver, setting: Setting) -> Move:
    if superseded(world, driver, setting):
        return dies(world, driver, "a newer driver was started")
    text, after = _to(world, driver, "batch-start")
    if not setting.defences.logs_last:
        return f"{text}, and commits/{driver.batch} is written", after._replace(commits=driver.batch + 1)
    return text, after


def _protocol(world: World, driver: Driver, setting: Setting) -> Move:
    if setting.protocol == TWO_PHASE:
        if superseded(world, driver, setting):
            return dies(world, driver, "a newer driver was started")
        return _to(world, driver, "looking")
    if setting.protocol == AT_MOST_ONCE and setting.defences.claim_first:
        return _to(world, driver, "before-decision")
    only = EVERY
    if setting.protocol == IDEMPOTENT:
        known = driver.batch if setting.defences.numbers else None
        only = frozenset(partition for partition in EVERY if driver.marks[partition] != known)
    if setting.protocol == AT_MOST_ONCE and world.claims[driver.batch]:
        only = frozenset()
    return _run(world, driver, only)


def _look_for_decisions(world: World, driver: Driver, setting: Setting) -> Move:
    made = world.decisions[driver.batch]
    newest = max((entry.id.generation for decision in made for entry in decision), default=0)
    if setting.defences.refuses_newer and newest > driver.generation:
        return dies(world, driver, f"batch {driver.batch} was decided by a newer driver")
    if not made:
        return _run(world, driver, EVERY)
    after = driver._replace(attempt=len(made))
    text = f"{name(driver)} finds batch {driver.batch} decided"
    if not setting.defences.finishes:
        moved = after._replace(at="after-commit")
        return f"{text} and treats it as done", world._replace(drivers=replaced(world, driver, moved))
    latest = {entry.partition: entry for decision in made for entry in decision}
    return text, world._replace(drivers=replaced(world, driver, committing.to_end(after, latest.values(), setting)))


def _run(world: World, driver: Driver, only: frozenset[int]) -> Move:
    after = driver._replace(at="running", tasks=tasks.run(only))
    text = f"{name(driver)} runs batch {driver.batch}, writing {_parts(only)}"
    return text, world._replace(drivers=replaced(world, driver, after))


def _collect(world: World, driver: Driver, setting: Setting) -> Move:
    """Every task has returned."""
    if setting.protocol == TWO_PHASE:
        return committing.collect(world, driver, setting)
    if setting.protocol == AT_MOST_ONCE and not setting.defences.claim_first:
        return _to(world, driver._replace(tasks=()), "before-decision", driver)
    return _to(world, driver._replace(tasks=()), "after-commit", driver)


def _before_claim(world: World, driver: Driver, setting: Setting) -> Move:
    if superseded(world, driver, setting):
        return dies(world, driver, "a newer driver was started")
    return _to(world, driver, "allowed")


def _claim(world: World, driver: Driver, setting: Setting) -> Move:
    author = world.claims[driver.batch]
    if author >= driver.generation:
        return dies(world, driver, f"batch {driver.batch} was claimed by another driver")
    if author and not setting.defences.claim_first:
        return _to(world, driver, "after-commit")
    if author:
        after = driver._replace(at="running", tasks=tasks.run(frozenset()))
        text = f"{name(driver)} finds batch {driver.batch} claimed"
        return text, world._replace(drivers=replaced(world, driver, after))
    claims = tuple(driver.generation if at == driver.batch else each for at, each in enumerate(world.claims))
    return _to(world._replace(claims=claims), driver, "claimed")


def _after_claim(world: World, driver: Driver, setting: Setting) -> Move:
    if superseded(world, driver, setting):
        return dies(world, driver, "a newer driver was started")
    return _to(world, driver, "after-decision" if setting.defences.claim_first else "after-commit")


def _write_claimed(world: World, driver: Driver, _setting: Setting) -> Move:
    return _run(world, driver, EVERY)


def _commit_log(world: World, driver: Driver, setting: Setting) -> Move:
    if world.commits > driver.batch and setting.defences.logs_last:
        return dies(world, driver, f"commits/{driver.batch} is another driver's")
    nothing_read = (-1,) * PARTITIONS  # the markers read at the start concern the first batch only
    after = driver._replace(at="after-commit-log", attempt=0, prepared=(), ending=())
    after = after._replace(done=(), keep_batch=-1, marks=nothing_read)
    if not setting.defences.logs_last:
        return f"{name(driver)}, batch {driver.batch}: {after.at}", world._replace(
            drivers=replaced(world, driver, after)
        )
    text = f"{name(driver)} writes commits/{driver.batch}: {after.at}"
    return text, world._replace(commits=driver.batch + 1, drivers=replaced(world, driver, after))


def _to(world: World, driver: Driver, point: str, was: Driver | None = None) -> Move:
    after = driver._replace(at=point)
    text = f"{name(driver)}, batch {driver.batch}: {point}"
    return text, world._replace(drivers=replaced(world, was or driver, after))


def _parts(only: frozenset[int]) -> str:
    return "partitions " + " ".join(map(str, sorted(only))) if only else "nothing"


_STEPS = {
    "ready": _open_logs,
    "planned": _start,
    "batch-start": _protocol,
    "looking": _look_for_decisions,
    "before-decision": _before_claim,
    "allowed": _claim,
    "claimed": _after_claim,
    "after-decision": _write_claimed,
    "after-commit": _commit_log,
    "after-commit-log": _next_batch,
}
