"""Transactions that are decided, and of which a partition never heard: they are ended there, as was decided.

Kafka's brokers (4.3.1 and others with KRaft) can lose the end of a transaction. A coordinator that finds no leader of a
partition, as while a broker that went down registers anew, takes the partition for deleted, and completes the
transaction without a marker in it (TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue, after
KRaftMetadataCache.getPartitionLeaderEndpoint). Nobody ends it there any more: committed readers wait at it for ever
(KIP-664 calls it hanging), and of a batch that was committed a part stays invisible.

Promise: after `end_forgotten` no transaction of a sink_id's is open that its coordinator takes for ended, and what was
decided holds in every partition. It looks at the partitions before it asks the coordinators, fences the producer, and
looks again: so what a producer that is still alive has begun meanwhile is never ended by it.

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

from kafka.errors import KafkaError, TopicAuthorizationFailedError

from pipeline.errors import RefusedStart
from pipeline.wire import Coordinator, OpenIn, Transaction

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
class Ended:
    """A transaction that was ended in one partition, and how."""

    transactional_id: str
    place: OpenIn
    commit: bool


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


def end_forgotten(
    coordinator: Coordinator,
    prefix: str,
    topics: Sequence[str],
    fence: Callable[[Iterable[str]], None],
) -> list[Ended]:
    """Ends what is open in these topics by transactional ids below a prefix and was decided before.

    Args:
        topics: all that these transactions write to.
        fence: takes the ids from whoever has them.

    Raises:
        RefusedStart: see the module.
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
    if whose:
        fence({txn.transactional_id for txn in whose.values()})
        whose = _still(whose, coordinator, topics)
    return [_end(coordinator, txn, place) for place, txn in sorted(whose.items(), key=lambda each: each[0])]


def _still(
    whose: Mapping[OpenIn, Transaction], coordinator: Coordinator, topics: Sequence[str]
) -> dict[OpenIn, Transaction]:
    """Of these places, those that are open since the same offset."""
    return {place: whose[place] for place in _open_in(coordinator, topics) if place in whose}


def _open_in(coordinator: Coordinator, topics: Sequence[str]) -> Iterator[OpenIn]:
    for topic in topics:
        try:
            yield from coordinator.open_in(topic)
        except TopicAuthorizationFailedError:
            _log.warning("may not look for hanging transactions in %s: it takes READ on it", topic)


def _end(coordinator: Coordinator, transaction: Transaction, place: OpenIn) -> Ended:
    where = (
        f"transaction {transaction.transactional_id} (producer {place.producer_id}) has been open in {place.topic} "
        f"partition {place.partition} since offset {place.offset}, and readers wait there"
    )
    by_hand = (
        f"kafka-transactions.sh abort --topic {place.topic} --partition {place.partition} --start-offset {place.offset}"
    )
    commit = _DECIDED.get(transaction.state)
    if commit is None:
        raise RefusedStart(
            f"{where}; its coordinator ({transaction.state}) no longer knows whether it was committed. Find out "
            f"whether its rows are missing elsewhere; if they may go, `{by_hand}` ends it."
        )
    try:
        coordinator.write_marker(transaction, place, commit)
    except KafkaError as error:
        raise RefusedStart(
            f"{where}. It is {'committed' if commit else 'aborted'}, but no marker could be written: {error}. It takes "
            "ALTER on the cluster; give it to this pipeline's user for one start."
        ) from error
    _log.warning("%s; its %s was lost, and is written now", where, "commit" if commit else "abort")
    return Ended(transaction.transactional_id, place, commit)
