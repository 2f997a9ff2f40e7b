"""The broker: transactional ids with epochs, EndTxn, fencing, time-outs and markers.

`oncebench/sinks/kafka/coordinator.py` sends these requests.

Promise: each function is one atomic step of the transaction coordinator and gives the answers of KIP-98 (TV1).
Epoch and state decide, not the connection. A repeated commit is answered as done. A newer epoch does not reveal
whether the transaction was committed or aborted.

What can go wrong: a real broker behaves differently. The integration tests of the coordinator's requests check these
answers on a real broker.
"""

from __future__ import annotations

from proofs.protocol_model.setting import Setting
from proofs.protocol_model.world import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    EMPTY,
    ONGOING,
    Id,
    Txn,
    World,
    made_visible,
)

DONE, ELSEWHERE, BUSY = "done", "elsewhere", "busy"


def find(world: World, wanted: Id) -> Txn | None:
    """The coordinator's entry of an id, whatever its epoch."""
    for txn in world.txns:
        if txn.id.generation == wanted.generation and txn.id.number == wanted.number:
            return txn
    return None


def make(world: World, fresh: Id) -> World:
    """InitProducerId for an id that is new."""
    return world._replace(txns=tuple(sorted((*world.txns, Txn(fresh)))))


def begin(world: World, asked: Id, batch: int) -> tuple[str, World]:
    """Handles the first request of a transaction.

    Answers DONE, ELSEWHERE (the producer is fenced) or BUSY (its last commit is not finished).
    """
    txn = find(world, asked)
    if txn is None or txn.id != asked or txn.state == ONGOING:
        return ELSEWHERE, world
    if txn.state == COMMITTING:
        return BUSY, world
    return DONE, _with(world, txn, Txn(asked, ONGOING, batch))


def write(world: World, asked: Id, partition: int, halves: int, marked: bool) -> World | None:
    """Adds rows and marker of a partition to the open transaction; returns None if none is open."""
    txn = find(world, asked)
    if txn is None or txn.id != asked or txn.state != ONGOING:
        return None
    rows = tuple(halves if at == partition else each for at, each in enumerate(txn.halves))
    markers = tuple(each or (marked and at == partition) for at, each in enumerate(txn.marked))
    return _with(world, txn, txn._replace(halves=rows, marked=markers))


def end(world: World, asked: Id, setting: Setting) -> tuple[str, World]:
    """EndTxn(commit): an outcome of `oncebench.sinks.kafka.coordinator.Outcome`, or BUSY."""
    txn = find(world, asked)
    if txn is None or txn.id != asked or txn.state in (EMPTY, ABORTED):
        return ELSEWHERE, world
    if txn.state == COMMITTING:
        return BUSY, world
    if txn.state == COMMITTED:
        return DONE, world
    if setting.bounds.slow_markers:
        return DONE, _with(world, txn, txn._replace(state=COMMITTING))
    return DONE, write_markers(world, txn)


def write_markers(world: World, txn: Txn) -> World:
    """Makes a commit's rows and markers visible together.

    A group keeps the marker that was written last; the newer batch number wins here.
    """
    visible = world.visible
    for partition, halves in enumerate(txn.halves):
        visible = made_visible(visible, txn.batch, partition, range(halves))
    marks = tuple(
        max(mark, txn.batch) if marked else mark for mark, marked in zip(world.marks, txn.marked, strict=True)
    )
    return _with(world._replace(visible=visible, marks=marks), txn, Txn(txn.id, COMMITTED))


def fence(world: World, wanted: Id) -> World | None:
    """InitProducerId for another driver's id: aborts its transaction and raises the epoch.

    Returns None while the coordinator is still committing.
    """
    txn = find(world, wanted)
    if txn is None:
        return world
    if txn.state == COMMITTING:
        return None
    return _with(world, txn, Txn(_next(txn.id), ABORTED if txn.state == ONGOING else txn.state))


def time_out(world: World, txn: Txn) -> World:
    """Aborts an open transaction after its time-out, which also raises the epoch."""
    return _with(world, txn, Txn(_next(txn.id), ABORTED))


def unstable(world: World, partition: int) -> bool:
    """Whether a stable read waits: an open transaction holds a marker of this partition."""
    return any(txn.marked[partition] and txn.state in (ONGOING, COMMITTING) for txn in world.txns)


def _next(at: Id) -> Id:
    return at._replace(epoch=at.epoch + 1)


def _with(world: World, txn: Txn, by: Txn) -> World:
    return world._replace(txns=tuple(by if each is txn else each for each in world.txns))
