"""Breadth first through every world that can be reached, so that the first broken one has the shortest trace.

Promise: when nothing is found, no order of steps and harms within the bounds breaks the promise, and from every world
a run can end well by natural moves alone. What can go wrong: the search outgrows the memory (about 3 kB a world); it
says how many worlds it has seen.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from proofs.protocol_model.forgetting import forgotten
from proofs.protocol_model.moves import first_world, harmful, natural
from proofs.protocol_model.promises import DUP, LOSS, STUCK, at_its_end, broken, left_open
from proofs.protocol_model.setting import Setting
from proofs.protocol_model.symmetry import canonical
from proofs.protocol_model.world import World

Forget = Callable[[World, Setting], World]
Rename = Callable[[World], World]


@dataclass(frozen=True)
class Found:
    """What a search came to.

    Attributes:
        anomaly: what is broken, or None.
        trace: the moves that lead there, the fewest that do.
        worlds: how many were seen.
        seconds: how long it took.
        seen: anomalies that the guarantee allows and that some end of a run shows.
        open_at_end: the moves to the first end of a run that leaves a transaction open until its time-out, if any.
    """

    anomaly: str | None
    trace: tuple[str, ...]
    worlds: int
    seconds: float
    seen: frozenset[str]
    open_at_end: tuple[str, ...]


def search(
    setting: Setting, start: World | None = None, forget: Forget = forgotten, rename: Rename = canonical
) -> Found:
    """Visits every world once that can be reached from the first one, or from `start`.

    `forget` and `rename` give the one world that stands for many; what they take for the same is visited once.
    """
    started = time.perf_counter()

    def form(world: World) -> World:
        return rename(forget(world, setting))

    origin = first_world(setting) if start is None else start
    first = form(origin)
    number = {first: 0}
    worlds, parents = [first], array("i", [-1])
    came_from, led_to, ends = array("i"), array("i"), array("i")
    seen: set[str] = set()
    open_end = -1

    def told(at: int) -> tuple[str, ...]:
        path = _path(worlds, parents, at)
        return _trace(forget(origin, setting), path, setting, forget, rename)

    def found(anomaly: str | None, at: int) -> Found:
        trace = told(at) if anomaly else ()
        open_at_end = told(open_end) if open_end >= 0 else ()
        spent = time.perf_counter() - started
        return Found(anomaly, trace, len(worlds), spent, frozenset(seen), open_at_end)

    at = 0
    while at < len(worlds):
        world = worlds[at]
        anomaly = broken(world, setting)
        if anomaly:
            return found(anomaly, at)
        if at_its_end(world, setting):
            ends.append(at)
            seen.update({DUP} if max(world.visible) > 1 else (), {LOSS} if 0 in world.visible else ())
            if open_end < 0 and left_open(world):
                open_end = at
        for moves, by_itself in ((natural, True), (harmful, False)):
            for _, reached in moves(world, setting):
                after = form(reached)
                to = number.setdefault(after, len(worlds))
                if to == len(worlds):
                    worlds.append(after)
                    parents.append(at)
                if by_itself:
                    came_from.append(at)
                    led_to.append(to)
        at += 1
    stuck = _first_without_way_out(len(worlds), came_from, led_to, ends)
    return found(None, -1) if stuck is None else found(STUCK, stuck)


def _first_without_way_out(count: int, came_from: array[int], led_to: array[int], ends: array[int]) -> int | None:
    """The first world from which natural moves lead to no end."""
    source, target = np.array(came_from, np.int64), np.array(led_to, np.int64)
    can_end = np.zeros(count, bool)
    can_end[np.array(ends, np.int64)] = True
    while True:
        known = int(can_end.sum())
        can_end[source[can_end[target]]] = True
        if int(can_end.sum()) == known:
            break
    stuck = np.flatnonzero(~can_end)
    return int(stuck[0]) if len(stuck) else None


def _path(worlds: list[World], parents: array[int], at: int) -> list[World]:
    """The worlds on the way there, without the first."""
    path: list[World] = []
    while parents[at] >= 0:
        path.append(worlds[at])
        at = parents[at]
    return path[::-1]


def _trace(world: World, path: list[World], setting: Setting, forget: Forget, rename: Rename) -> tuple[str, ...]:
    """The moves along a path, under the names that things have had from its start."""
    told: list[str] = []
    for step in path:
        moves = (*natural(world, setting), *harmful(world, setting))
        text, reached = next((text, to) for text, to in moves if rename(forget(to, setting)) == step)
        world = forget(reached, setting)
        told.append(text + (" (and a driver can only end now)" if len(reached.drivers) > len(world.drivers) else ""))
    return tuple(told)
