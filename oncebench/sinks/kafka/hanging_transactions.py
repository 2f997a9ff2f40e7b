"""Transactions that are decided, and of which a partition never heard: they are ended there, as was decided.

Kafka's brokers (4.3.1 and others with KRaft) can lose the end of a transaction. A coordinator that finds no leader of a
partition, as while a broker that went down registers anew, takes the partition for deleted, and completes the
transaction without a marker in it (TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue, after
KRaftMetadataCache.getPartitionLeaderEndpoint). Nobody ends it there any more: committed readers wait at it for ever
(KIP-664 calls it hanging), and of a batch that was committed a part stays invisible.

Promise: after `end_hanging_transactions` no transaction of a sink_id's is open that its coordinator takes for ended, and what was
decided holds in every partition. It looks at the partitions before it asks the coordinators, fences the producer, and
looks again: so what a producer that is still alive has begun meanwhile is never ended by it. A fence makes a
coordinator forget what it decided: that is noted before (`DecisionNotes`), for a start after one that died in between.

What is to be fenced is brought to rest first (`settle`), so that a look comes while its coordinator still knows.

What can go wrong: the coordinator no longer knows what it decided (the producer was fenced by somebody else since), or
the cluster does not allow markers to be written (it takes ALTER on the cluster): `RefusedStart`, with what to do. Where
it does not even allow to look (READ on a topic) that topic is left out, with a warning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka.errors import AuthorizationError, KafkaError, TopicAuthorizationFailedError

from oncebench.delivery.errors import HangingTransaction, RefusedStart
from oncebench.sinks.kafka.coordinator import Coordinator, OpenIn, Transaction
from oncebench.sinks.kafka.markers import Offsets

# The topic with the markers of each batch, which stand in the same transactions as its rows.
OFFSETS_TOPIC = "__consumer_offsets"
# States in which the coordinator has nothing left to do, by whether it had committed.
_DECIDED: Mapping[str, bool] = {"CompleteCommit": True, "CompleteAbort": False}
# States in which it will still write markers, or has yet to decide: not forgotten.
_AT_WORK = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
# Markers take single milliseconds.
_PAUSE_S = 0.01
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Repair:
    """A transaction that was ended in one partition, and how."""

    transactional_id: str
    place: OpenIn
    commit: bool


class DecisionNotes:
    """What was decided under an id, kept beyond the fence that makes its coordinator forget it.

    A group for each producer and epoch that is fenced over a hanging transaction, with an offset of 1 if its last one
    was committed, else 0. It holds for the epoch after it only while the coordinator knows of no transaction since: one
    that was under way at the fence would have been aborted, which takes an epoch of its own. So a note is never taken
    for one about another transaction. Kafka forgets it as it does markers (`offsets.retention.minutes`).
    """

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets

    def write(self, transaction: Transaction, commit: bool) -> None:
        """Notes what was decided, before the fence.

        Raises:
            KafkaException: it could not be noted; the fence must not follow.
        """
        self._offsets.write(_group(transaction, transaction.epoch), int(commit))

    def read(self, fenced: Transaction) -> bool | None:
        """What was decided before the fence that left an id as it is; None: nobody noted it."""
        found = self._offsets.read(_group(fenced, fenced.epoch - 1)) if fenced.state == "Empty" else None
        return None if found is None else bool(found.number)


def _group(transaction: Transaction, epoch: int) -> str:
    return f"{transaction.transactional_id}.{transaction.producer_id}.{epoch}.decided"


def settle(coordinator: Coordinator, prefix: str, names: Collection[str], timeout_ms: int, limit_s: float) -> None:
    """Brings what is under these ids to its end: aborts what is ongoing, waits until every marker is said to be sent.

    After that their coordinators know how each of them ended, until it is fenced.

    Raises:
        KafkaError: a coordinator was still at work after `limit_s`.
    """
    deadline = time.monotonic() + limit_s
    while True:
        states = {txn.transactional_id: txn.state for txn in coordinator.listed(prefix)}
        busy = {name: states[name] for name in names if states.get(name) in _AT_WORK}
        if not busy:
            return
        if time.monotonic() > deadline:
            raise KafkaError(f"transactions had not ended within {limit_s:g} s: {busy}")
        ongoing = [name for name, state in busy.items() if state == "Ongoing"]
        if ongoing:
            coordinator.fence_once(ongoing, timeout_ms)
        time.sleep(_PAUSE_S)


def end_hanging_transactions(
    coordinator: Coordinator,
    prefix: str,
    topics: Sequence[str],
    notes: DecisionNotes,
    fence: Callable[[Iterable[str]], None] | None,
) -> list[Repair]:
    """Ends what is open in these topics by transactional ids below a prefix and was decided before.

    Args:
        topics: all that these transactions write to.
        notes: of earlier starts' fences, and of this one's.
        fence: takes the ids from whoever has them; None where nobody does anything with them.

    Raises:
        RefusedStart: nobody knows whether one was committed, or the right to end it is missing.
        HangingTransaction: a broker did not write the marker.
    """
    owners = {txn.producer_id: txn.transactional_id for txn in coordinator.listed(prefix)}
    if not owners:
        return []
    suspects = {place for place in _open_in(coordinator, topics) if place.producer_id in owners}
    if not suspects:
        return []
    told = coordinator.describe({owners[place.producer_id] for place in suspects})
    whose = {
        place: told[owners[place.producer_id]]
        for place in suspects
        if owners[place.producer_id] in told and told[owners[place.producer_id]].state not in _AT_WORK
    }
    if whose:  # a marker that was on its way at the first look has come: its id is well, and not to be fenced
        whose = _still(whose, coordinator, topics)
    decided = {txn: _decided(txn, notes) for txn in set(whose.values())}
    if fence is not None:
        taken = [txn for txn in decided if txn.state in _DECIDED]
        for txn in taken:
            notes.write(txn, _DECIDED[txn.state])
        if taken:
            fence([txn.transactional_id for txn in taken])
            whose = _still(whose, coordinator, topics)
    ended = []
    for place, txn in sorted(whose.items(), key=lambda each: (decided[each[1]] is None, each[0])):
        ended.append(_end(coordinator, txn, place, decided[txn]))
    return ended


def _still(
    whose: Mapping[OpenIn, Transaction], coordinator: Coordinator, topics: Sequence[str]
) -> dict[OpenIn, Transaction]:
    """Of these places, those that are open since the same offset."""
    return {place: whose[place] for place in _open_in(coordinator, topics) if place in whose}


def _decided(transaction: Transaction, notes: DecisionNotes) -> bool | None:
    """Whether it was committed; None if nobody knows."""
    return _DECIDED[transaction.state] if transaction.state in _DECIDED else notes.read(transaction)


def _open_in(coordinator: Coordinator, topics: Sequence[str]) -> Iterator[OpenIn]:
    for topic in topics:
        try:
            yield from coordinator.open_in(topic)
        except TopicAuthorizationFailedError:
            _log.warning("may not look for hanging transactions in %s: it takes READ on it", topic)


def _end(coordinator: Coordinator, transaction: Transaction, place: OpenIn, commit: bool | None) -> Repair:
    where = (
        f"transaction {transaction.transactional_id} (producer {place.producer_id}) has been open in {place.topic} "
        f"partition {place.partition} since offset {place.offset}, and readers wait there"
    )
    by_hand = (
        f"kafka-transactions.sh abort --topic {place.topic} --partition {place.partition} --start-offset {place.offset}"
    )
    if commit is None:
        raise RefusedStart(
            f"{where}; its coordinator ({transaction.state}) no longer knows whether it was committed. Find out "
            f"whether its rows are missing elsewhere; if they may go, `{by_hand}` ends it."
        )
    try:
        coordinator.write_marker(transaction, place, commit)
    except KafkaError as error:
        outcome = "committed" if commit else "aborted"
        text = f"{where}. It is {outcome}, but no marker could be written: {error}."
        if isinstance(error, AuthorizationError):
            raise RefusedStart(f"{text} Give this pipeline's user ALTER on the cluster for one start.") from error
        raise HangingTransaction(f"{text} Start again when the broker is back: the decision is still known.") from error
    _log.warning("%s; its %s was lost, and is written now", where, "commit" if commit else "abort")
    return Repair(transaction.transactional_id, place, commit)
