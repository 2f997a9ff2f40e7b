"""Every moment of a recorded run, with the calls of concurrent tasks in every order.

Promise: each disk that any order reaches is given once, with the calls that lead to it. The driver waits for its tasks,
and a task's own calls keep their order. No other assumption is made about the speed of tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from proofs.crash_states.calls import DRIVER, Recorded
from proofs.crash_states.disk import Disk, after

Order = tuple[Recorded, ...]


def moments(start: Disk, log: Sequence[Recorded]) -> Iterator[tuple[Disk, Order]]:
    """Every disk on the path, including `start`, each once and with one order that leads to it."""
    seen = {start}
    yield start, ()
    here: dict[Disk, Order] = {start: ()}
    for of_driver, calls in groupby(log, key=lambda recorded: recorded.actor == DRIVER):
        stretch = list(calls)
        actors = [DRIVER] if of_driver else sorted({recorded.actor for recorded in stretch})
        queues = [[recorded for recorded in stretch if recorded.actor == actor] for actor in actors]
        ends: dict[Disk, Order] = {}
        for disk, order in here.items():
            for reached, came, at_end in _merged(disk, order, queues):
                if reached not in seen:
                    seen.add(reached)
                    yield reached, came
                if at_end:
                    ends.setdefault(reached, came)
        here = ends


def _merged(start: Disk, order: Order, queues: Sequence[Sequence[Recorded]]) -> Iterator[tuple[Disk, Order, bool]]:
    """Every disk in every merge of the queues, and whether all calls have been made."""
    layer: dict[tuple[tuple[int, ...], Disk], Order] = {((0,) * len(queues), start): order}
    while layer:
        further: dict[tuple[tuple[int, ...], Disk], Order] = {}
        for (places, disk), came in layer.items():
            for number, queue in enumerate(queues):
                place = places[number]
                if place == len(queue):
                    continue
                reached = after(disk, queue[place].call)
                moved = (*places[:number], place + 1, *places[number + 1 :])
                if (moved, reached) not in further:
                    further[moved, reached] = (*came, queue[place])
                    at_end = all(p == len(q) for p, q in zip(moved, queues, strict=True))
                    yield reached, further[moved, reached], at_end
        layer = further
