"""The state of the model: what outlives a driver (Spark's logs, journal, broker) and what each living driver knows.

Promise: a world is a value: hashable, never changed, and equal to another exactly when nothing that can still happen
tells the two apart (`forgetting.py` and `symmetry.py` see to that). Named tuples and not frozen dataclasses, because a
search hashes millions of them and a tuple is hashed in C. What can go wrong: a field that matters to no later step
makes the search larger; a field that is missing makes it prove something about another protocol.
"""

from __future__ import annotations

from typing import NamedTuple

PARTITIONS = 2
HALVES = 2  # of a partition's rows: what stands in a transaction before and after mid-write
# States of a transaction as the coordinator names them; committing is PrepareCommit: decided there, not yet visible.
EMPTY, ONGOING, COMMITTING, COMMITTED, ABORTED = "empty", "ongoing", "committing", "committed", "aborted"


class Id(NamedTuple):
    """A transactional id at one epoch, as a worker, a decision or a request knows it."""

    generation: int  # of the driver whose worker made it
    number: int
    epoch: int


class Txn(NamedTuple):
    """A transactional id as the coordinator knows it, and its newest transaction."""

    id: Id
    state: str = EMPTY
    batch: int = -1
    partition: int = -1
    halves: int = 0
    marked: bool = False


class Prepared(NamedTuple):
    """What a task has prepared and a decision names."""

    partition: int
    id: Id


class Producer(NamedTuple):
    """A worker's producer: what it was given, and whether it was told that its last transaction is done."""

    id: Id
    open: bool = False
    ended: bool = False


class Ending(NamedTuple):
    """An EndTxn that the driver has to send: its answer so far, and whether any try went unanswered."""

    prepared: Prepared
    answer: str = ""
    doubtful: bool = False


class Driver(NamedTuple):
    """A living driver with its tasks and workers. `at` and `tasks` say which point was passed last."""

    generation: int
    at: str
    batch: int = -1
    replay: bool = False
    tasks: tuple[str, ...] = ()
    producers: tuple[Producer | None, ...] = (None,) * PARTITIONS
    made: int = 0  # producers so far, to name the next
    keep: tuple[Prepared, ...] = ()  # what the newest decision had prepared when this driver started
    keep_batch: int = -1
    done: tuple[Id, ...] = ()  # of these, committed before this driver started
    todo: tuple[Id, ...] = ()  # ids still to be fenced
    marks: tuple[int, ...] = (-1,) * PARTITIONS  # as read at the start
    attempt: int = 0  # decisions about this batch that were found
    prepared: tuple[Prepared, ...] = ()
    ending: tuple[Ending, ...] = ()


class World(NamedTuple):
    """Everything. `visible` counts each half of each partition of each batch, as a committed reader is shown it."""

    offsets: int = 0  # Spark's offset log holds the batches below this number
    commits: int = 0  # and its commit log those below this one
    generation: int = 0  # the newest in the journal
    decisions: tuple[tuple[tuple[Prepared, ...], ...], ...] = ()  # by batch, by attempt
    claims: tuple[int, ...] = ()  # by batch: the generation that claimed it, or 0
    published: int = 0  # the generation that workers are shown
    marks: tuple[int, ...] = (-1,) * PARTITIONS
    visible: tuple[int, ...] = ()
    txns: tuple[Txn, ...] = ()
    late: tuple[Id, ...] = ()  # commits on their way that nobody waits for any more
    republished: int = 0  # a publication on its way that nobody waits for
    drivers: tuple[Driver, ...] = ()  # by generation; the last is the one that the supervisor knows
    kills: int = 0  # what may still go wrong
    zombies: int = 0
    timeouts: int = 0
    unanswered: int = 0
    resent: int = 0
    republish: int = 0


def row(batch: int, partition: int, half: int) -> int:
    """Where `World.visible` counts a half of a partition of a batch."""
    return (batch * PARTITIONS + partition) * HALVES + half


def shown(visible: tuple[int, ...], batch: int, partition: int, halves: range) -> tuple[int, ...]:
    """The counts once these halves were shown (again); three times is no other anomaly than twice."""
    counts = list(visible)
    for half in halves:
        at = row(batch, partition, half)
        counts[at] = min(counts[at] + 1, 2)
    return tuple(counts)


def replaced(world: World, driver: Driver, by: Driver) -> tuple[Driver, ...]:
    """The drivers, with one of them a step further."""
    return tuple(by if each is driver else each for each in world.drivers)


def without(world: World, driver: Driver) -> tuple[Driver, ...]:
    """The drivers but this one, which has ended with all its tasks and workers."""
    return tuple(each for each in world.drivers if each is not driver)
