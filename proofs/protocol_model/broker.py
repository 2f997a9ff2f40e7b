"""The broker: transactional ids with epochs, EndTxn, fencing, time-outs, markers
(`oncebench/sinks/kafka/coordinator.py` asks for these).

Promise: each function is one atomic act of the transaction coordinator, with the answers that protocols of KIP-98
(TV1) get: epoch and state decide, not the connection; a commit that is asked for again is answered as done; an epoch
that has moved on says nothing about what became of the transaction. What can go wrong: a broker that behaves otherwise;
the executed facts that this rests on are in the integration tests of the wire.
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
    shown,
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


def begin(world: World, asked: Id, batch: int, partition: int, marked: bool) -> tuple[str, World]:
    """The first request of a transaction: done, or the producer is fenced, or its last commit is still under way."""
    txn = find(world, asked)
    if txn is None or txn.id != asked or txn.state == ONGOING:
        return ELSEWHERE, world
    if txn.state == COMMITTING:
        return BUSY, world
    return DONE, _with(world, txn, Txn(asked, ONGOING, batch, partition, 0, marked))


def write(world: World, asked: Id, halves: int, marked: bool) -> World | None:
    """Rows (and the marker) into the open transaction; None: there is none any more."""
    txn = find(world, asked)
    if txn is None or txn.id != asked or txn.state != ONGOING:
        return None
    return _with(world, txn, txn._replace(halves=halves, marked=txn.marked or marked))


def end(world: World, asked: Id, setting: Setting) -> tuple[str, World]:
    """EndTxn(commit): the outcome as `oncebench.sinks.kafka.coordinator.Outcome` tells it, or that the coordinator
    is busy."""
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
    """What a commit makes visible: rows and marker at once. Of two markers the group keeps the one written later."""
    visible = shown(world.visible, txn.batch, txn.partition, range(txn.halves))
    marks = world.marks
    if txn.marked:
        marks = tuple(max(mark, txn.batch) if at == txn.partition else mark for at, mark in enumerate(marks))
    return _with(world._replace(visible=visible, marks=marks), txn, Txn(txn.id, COMMITTED))


def fence(world: World, wanted: Id) -> World | None:
    """InitProducerId for somebody else's id: an open transaction is aborted, the epoch moves. None: busy committing."""
    txn = find(world, wanted)
    if txn is None:
        return world
    if txn.state == COMMITTING:
        return None
    return _with(world, txn, Txn(_next(txn.id), ABORTED if txn.state == ONGOING else txn.state))


def time_out(world: World, txn: Txn) -> World:
    """The coordinator aborts an open transaction by itself, which moves the epoch too."""
    return _with(world, txn, Txn(_next(txn.id), ABORTED))


def unstable(world: World, partition: int) -> bool:
    """Whether an open transaction holds a marker of this partition: a stable read has to wait for it."""
    return any(txn.marked and txn.partition == partition and txn.state in (ONGOING, COMMITTING) for txn in world.txns)


def _next(at: Id) -> Id:
    return at._replace(epoch=at.epoch + 1)


def _with(world: World, txn: Txn, by: Txn) -> World:
    return world._replace(txns=tuple(by if each is txn else each for each in world.txns))
