"""Breadth-first search through every reachable world.

The first broken world has the shortest trace.

Promise: if the search finds nothing, no order of steps and faults within the bounds breaks the guarantee. From every
world natural moves alone can end the run well.

What can go wrong: the search needs more memory than there is (about 3 kB per world). The result reports the number of
worlds.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from proofs.protocol_model.moves import first_world, harmful, natural
from proofs.protocol_model.promises import DUP, LOSS, STUCK, at_its_end, broken, left_open
from proofs.protocol_model.reduction import reduced
from proofs.protocol_model.setting import Setting
from proofs.protocol_model.symmetry import canonical
from proofs.protocol_model.world import World

Reduce = Callable[[World, Setting], World]
Rename = Callable[[World], World]


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        anomaly: the anomaly found, or None.
        trace: the shortest list of moves that leads to the anomaly.
        worlds: number of worlds visited.
        seconds: duration of the search.
        seen: anomalies that the guarantee allows and that occur at the end of some run.
        open_at_end: the moves to the first end of a run that leaves a transaction open until its time-out, if any.
    """

    anomaly: str | None
    trace: tuple[str, ...]
    worlds: int
    seconds: float
    seen: frozenset[str]
    open_at_end: tuple[str, ...]


def search(setting: Setting, start: World | None = None, reduce: Reduce = reduced, rename: Rename = canonical) -> Found:
    """Visits every world once that is reachable from the first world, or from `start`.

    `reduce` and `rename` map equivalent worlds to one representative, which is visited once.
    """
    started = time.perf_counter()

    def form(world: World) -> World:
        return rename(reduce(world, setting))

    origin = first_world(setting) if start is None else start
    first = form(origin)
    number = {first: 0}
    worlds, parents = [first], array("i", [-1])
    came_from, led_to, ends = array("i"), array("i"), array("i")
    seen: set[str] = set()
    open_end = -1

    def moves_to(at: int) -> tuple[str, ...]:
        path = _path(worlds, parents, at)
        return _trace(reduce(origin, setting), path, setting, reduce, rename)

    def found(anomaly: str | None, at: int) -> Found:
        trace = moves_to(at) if anomaly else ()
        open_at_end = moves_to(open_end) if open_end >= 0 else ()
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
    """The first world from which natural moves cannot reach an end."""
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
    """The worlds on the path to world `at`, without the first."""
    path: list[World] = []
    while parents[at] >= 0:
        path.append(worlds[at])
        at = parents[at]
    return path[::-1]


def _trace(world: World, path: list[World], setting: Setting, reduce: Reduce, rename: Rename) -> tuple[str, ...]:
    """The moves along a path, in the names of the path's first world."""
    trace: list[str] = []
    for step in path:
        moves = (*natural(world, setting), *harmful(world, setting))
        text, reached = next((text, to) for text, to in moves if rename(reduce(to, setting)) == step)
        world = reduce(reached, setting)
        trace.append(text + (" (and a driver can only end now)" if len(reached.drivers) > len(world.drivers) else ""))
    return tuple(trace)
