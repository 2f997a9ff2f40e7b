"""The state of the model: Spark's logs, journal and broker, and the state of each driver.

Promise: a world is an immutable, hashable value. After `reduction.py` and `symmetry.py`, two worlds are equal exactly
when they have the same futures. Worlds are named tuples, not frozen dataclasses: a search hashes millions of them, and
a tuple is hashed in C.

What can go wrong: an irrelevant field makes the search larger. A missing field makes it a proof about another protocol.
"""

from __future__ import annotations

from typing import NamedTuple

PARTITIONS = 2
HALVES = 2  # a partition's rows come in two halves, the first before mid-write and the second after it
# The coordinator's states of a transaction. "committing" is PrepareCommit: decided there, not yet visible.
EMPTY, ONGOING, COMMITTING, COMMITTED, ABORTED = "empty", "ongoing", "committing", "committed", "aborted"


class Id(NamedTuple):
    """A transactional id at one epoch, as a worker, a decision or a request holds it."""

    generation: int  # of the driver whose worker made it
    number: int
    epoch: int


class Txn(NamedTuple):
    """The coordinator's entry of a transactional id and its newest transaction.

    `halves` and `marked` are by partition, because the tasks of a worker can share a transaction.
    """

    id: Id
    state: str = EMPTY
    batch: int = -1
    halves: tuple[int, ...] = (0,) * PARTITIONS
    marked: tuple[bool, ...] = (False,) * PARTITIONS


class Prepared(NamedTuple):
    """A task's prepared transaction, as a decision lists it."""

    partition: int
    id: Id


class Producer(NamedTuple):
    """A worker's producer.

    `batch` is that of its open transaction, or -1. `ended`: the worker has learned that this transaction ended.
    """

    id: Id
    batch: int = -1
    ended: bool = False


class Ending(NamedTuple):
    """An EndTxn that the driver has to send.

    Contains the answer so far, and whether any attempt got no answer.
    """

    prepared: Prepared
    answer: str = ""
    doubtful: bool = False


class Driver(NamedTuple):
    """A driver that is alive, with its tasks and workers.

    `at` and `tasks` hold the points passed last.
    """

    generation: int
    at: str
    batch: int = -1
    tasks: tuple[str, ...] = ()
    producers: tuple[Producer | None, ...] = (None,) * PARTITIONS
    made: int = 0  # producers made so far, to name the next one
    keep: tuple[Prepared, ...] = ()  # the transactions of the newest decision when this driver started
    keep_batch: int = -1
    done: tuple[Id, ...] = ()  # those of `keep` that were committed before this driver started
    todo: tuple[Id, ...] = ()  # ids still to be fenced
    marks: tuple[int, ...] = (-1,) * PARTITIONS  # the markers read at the start
    attempt: int = 0  # decisions found for this batch
    prepared: tuple[Prepared, ...] = ()
    ending: tuple[Ending, ...] = ()


class World(NamedTuple):
    """The whole state.

    `visible` counts how often a committed reader sees each half of each partition of each batch.
    """

    offsets: int = 0  # Spark's offset log holds the batches below this number
    commits: int = 0  # Spark's commit log holds the batches below this number
    generation: int = 0  # the newest generation in the journal
    decisions: tuple[tuple[tuple[Prepared, ...], ...], ...] = ()  # by batch, by attempt
    claims: tuple[int, ...] = ()  # by batch: the generation that claimed it, or 0
    published: int = 0  # the generation that workers see
    marks: tuple[int, ...] = (-1,) * PARTITIONS
    visible: tuple[int, ...] = ()
    txns: tuple[Txn, ...] = ()
    late: tuple[Id, ...] = ()  # commits in flight whose answer no driver waits for
    republished: int = 0  # a publication in flight whose answer no driver waits for
    drivers: tuple[Driver, ...] = ()  # by generation; the supervisor watches the last one
    kills: int = 0  # from here on: the faults that may still occur
    zombies: int = 0
    timeouts: int = 0
    unanswered: int = 0
    resent: int = 0
    republish: int = 0


def row(batch: int, partition: int, half: int) -> int:
    """The index in `World.visible` of a half partition of a batch."""
    return (batch * PARTITIONS + partition) * HALVES + half


def made_visible(visible: tuple[int, ...], batch: int, partition: int, halves: range) -> tuple[int, ...]:
    """The counts after these halves became visible (again), at most 2: more is the same anomaly."""
    counts = list(visible)
    for half in halves:
        at = row(batch, partition, half)
        counts[at] = min(counts[at] + 1, 2)
    return tuple(counts)


def replaced(world: World, driver: Driver, by: Driver) -> tuple[Driver, ...]:
    """The drivers, with one of them replaced by its next state."""
    return tuple(by if each is driver else each for each in world.drivers)


def without(world: World, driver: Driver) -> tuple[Driver, ...]:
    """The drivers except this one, which has ended with its tasks and workers."""
    return tuple(each for each in world.drivers if each is not driver)
