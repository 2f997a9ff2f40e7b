"""The model of the protocols: ours hold, and each missing defence causes its anomaly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncebench.delivery.failpoints import POINTS
from proofs.protocol_model.moves import first_world, harmful, natural
from proofs.protocol_model.reduction import reduced
from proofs.protocol_model.search import search
from proofs.protocol_model.setting import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    IDEMPOTENT,
    TWO_PHASE,
    Bounds,
    Setting,
)
from proofs.protocol_model.symmetry import canonical, mirrored, renamed, uses
from proofs.protocol_model.variants import BROKEN, REDUNDANT, SOUND, UNDEFENDED, Variant
from proofs.protocol_model.world import World

SMALL = {
    AT_MOST_ONCE: Bounds(1, kills=1, zombies=1),
    AT_LEAST_ONCE: Bounds(2, kills=1, zombies=0),
    IDEMPOTENT: Bounds(2, kills=2, zombies=0),
    TWO_PHASE: Bounds(2, kills=1, zombies=0),
}
# Searches of seconds: `make proofs` runs all.
LONG = {"two-phase, no check for a newer driver", "two-phase, workers do not check for a newer generation"}
SHORT_SOUND = {
    "two-phase, commits in doubt", "two-phase, slow markers",
    "two-phase, one worker, commits in doubt", "two-phase, one worker, slow markers",
}  # fmt: skip
QUICK = [each for each in (*BROKEN, *UNDEFENDED, *REDUNDANT) if each.name not in LONG]
QUICK += [each for each in SOUND if each.name in SHORT_SOUND]


@pytest.mark.parametrize("protocol", SMALL)
def test_a_protocol_keeps_its_guarantee_under_a_kill_at_any_step(protocol: str) -> None:
    found = search(Setting(protocol, bounds=SMALL[protocol]))
    assert (found.anomaly, found.trace) == (None, ())
    allowed = {AT_MOST_ONCE: {"LOSS"}, AT_LEAST_ONCE: {"DUP"}}.get(protocol, set())
    assert found.seen == allowed, "exactly the allowed anomalies occur"


@pytest.mark.parametrize("variant", QUICK, ids=lambda each: each.name)
def test_a_search_finds_the_expected_anomaly_or_none(variant: Variant) -> None:
    found = search(variant.setting)
    assert found.anomaly == variant.expected
    assert bool(found.trace) is (variant.expected is not None)


@pytest.mark.parametrize("left_out", [None, "fencing", "worker_check"])
def test_a_zombie_duplicates_rows_only_without_a_defence(left_out: str | None) -> None:
    """The zombie stopped when its tasks began, and its successor has started."""
    setting = Setting(IDEMPOTENT, bounds=Bounds(1, kills=0, zombies=1))
    if left_out:
        setting = replace(setting, defences=replace(setting.defences, **{left_out: False}))
    world = until(first_world(setting), "running", setting)
    world = until(next(after for text, after in harmful(world, setting) if text.startswith("ZOMBIE")), "ready", setting)
    assert search(setting, start=world).anomaly == ("DUP" if left_out else None)


def until(world: World, point: str, setting: Setting) -> World:
    """The world in which the newest driver has reached this point."""
    while not world.drivers or world.drivers[-1].at != point:
        world = list(natural(world, setting))[-1][1] if world.drivers else next(natural(world, setting))[1]
    return world


@pytest.mark.parametrize(("protocol", "workers"), [(TWO_PHASE, 2), (TWO_PHASE, 1), (IDEMPOTENT, 2), (AT_MOST_ONCE, 2)])
def test_the_reduced_search_finds_what_the_full_search_finds(protocol: str, workers: int) -> None:
    """One world may stand for many; the full search visits every world."""
    for defences in ({}, {"marker": False, "claim_first": False, "decision": False}):
        setting = Setting(protocol, bounds=Bounds(1, kills=1, zombies=0), workers=workers)
        setting = replace(setting, defences=replace(setting.defences, **defences))
        short, long = search(setting), search(setting, reduce=lambda world, _: world, rename=lambda world: world)
        assert short.anomaly == long.anomaly
        assert short.seen == long.seen
        assert len(short.trace) <= len(long.trace), "the end of a driver is no step of its own"
        assert short.worlds <= long.worlds


@pytest.mark.parametrize(("protocol", "workers"), [*((each, 2) for each in SMALL), (TWO_PHASE, 1)])
def test_steps_do_not_depend_on_names_of_partitions_and_ids(protocol: str, workers: int) -> None:
    """A step that preferred a partition or the lower id would hide its other choice."""
    killed = Setting(protocol, bounds=Bounds(2, kills=1, zombies=0), workers=workers)
    doubt = replace(killed, bounds=Bounds(1, kills=0, zombies=0, timeouts=1, unanswered=1))
    zombie = replace(killed, bounds=Bounds(1, kills=0, zombies=1))
    running = until(first_world(zombie), "running", zombie)
    taken_over = next(after for text, after in harmful(running, zombie) if text.startswith("ZOMBIE"))
    for searched, start in ((killed, None), (doubt, None), (zombie, taken_over)):
        for world in _visited(searched, start):
            futures = _futures(world, searched)
            assert _futures(mirrored(world), searched) == futures
            assert _futures(_ids_exchanged(world), searched) == futures


def _visited(setting: Setting, start: World | None) -> set[World]:
    """The first few thousand worlds of a search."""
    visited: set[World] = set()

    def kept(world: World, setting: Setting) -> World:
        after = reduced(world, setting)
        if len(visited) < 2000:  # some twenty seconds for all four protocols
            visited.add(after)
        return after

    search(setting, start, reduce=kept)
    return visited


def _futures(world: World, setting: Setting) -> set[World]:
    return {canonical(reduced(after, setting)) for _, after in (*natural(world, setting), *harmful(world, setting))}


def _ids_exchanged(world: World) -> World:
    """The world with the ids of each generation in reverse order."""
    named = sorted(uses(world))
    generations = {each: each for each in range(world.generation + 1)}
    last = dict(named)
    return renamed(world, generations, {each: (each[0], last[each[0]] - each[1]) for each in named})


def test_the_model_passes_every_failpoint_of_the_code() -> None:
    passed: set[str] = set()
    for protocol in (TWO_PHASE, AT_MOST_ONCE):
        setting = Setting(protocol, bounds=Bounds(1, kills=1, zombies=0))
        for world in _every(setting):
            passed.update(driver.at for driver in world.drivers)
            passed.update(task for driver in world.drivers for task in driver.tasks)
    assert set(POINTS) <= passed


def _every(setting: Setting) -> set[World]:
    seen = {first_world(setting)}
    left = list(seen)
    while left:
        world = left.pop()
        for _, after in (*natural(world, setting), *harmful(world, setting)):
            if after not in seen:
                seen.add(after)
                left.append(after)
    return seen
