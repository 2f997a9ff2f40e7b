"""Ends hanging transactions (KIP-664): decided, but without an end marker in a partition.

The end marker is a control record; Kafka calls it a transaction marker. The sink's own markers are different: they are
offsets of consumer groups (`oncebench.sinks.kafka.markers`).

Kafka's brokers (4.3.1 and others with KRaft) can lose the end of a transaction. While a broker that went down registers
again, a coordinator finds no leader of a partition and takes the partition for deleted. It then completes the
transaction without a control record there (TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue, after
KRaftMetadataCache.getPartitionLeaderEndpoint). The transaction never ends in that partition: committed readers wait
there for ever, and a part of a committed batch stays invisible.

Promise: after `end_hanging_transactions`, every transaction that its coordinator has ended is ended in every partition,
as decided. The function lists open transactions, asks the coordinators, fences the producer, and lists them again.
Therefore it never ends a transaction that a running producer began in between. A fence makes a coordinator forget its
decision. The decision is noted first (`DecisionNotes`), in case this start dies in between.

Before ids are fenced, `settle` waits until their transactions have ended, while the coordinators still know how.

What can go wrong: the coordinator no longer has its decision, because someone else fenced the producer; or the cluster
does not allow this user to write transaction markers (ALTER on the cluster). Both raise `RefusedStart` with the next
step. A topic that this user may not describe (READ on the topic) is left out with a warning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka.errors import AuthorizationError, KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from oncebench.delivery.errors import HangingTransaction, RefusedStart
from oncebench.delivery.topics.replicas import Waiting
from oncebench.sinks.kafka.coordinator import Coordinator, Transaction
from oncebench.sinks.kafka.leaders import OpenIn
from oncebench.sinks.kafka.markers import Offsets

# The topic with the sink's markers of each batch, which belong to the same transactions as its rows.
OFFSETS_TOPIC = "__consumer_offsets"
# States in which the coordinator has finished -> whether it committed.
_DECIDED: Mapping[str, bool] = {"CompleteCommit": True, "CompleteAbort": False}
# States in which the coordinator has yet to decide or will still write transaction markers. Such a transaction does not
# hang.
AT_WORK = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
# Transaction markers take single milliseconds.
_PAUSE_S = 0.01
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Repair:
    """A hanging transaction that was ended in one partition, and whether it was committed."""

    transactional_id: str
    place: OpenIn
    commit: bool


class DecisionNotes:
    """Stores the decision about an id before a fence makes the coordinator forget it.

    A note is a consumer group for each producer and epoch that is fenced because of a hanging transaction. Its offset
    is 1 if the producer's last transaction was committed, else 0. The note is valid for the next epoch only, and only
    if the coordinator has had no transaction since: a transaction that was open at the fence would have been aborted,
    which takes an epoch of its own. Therefore a note is never applied to another transaction. Kafka forgets notes as
    it forgets the sink's markers (`offsets.retention.minutes`).
    """

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets

    def write(self, transaction: Transaction, commit: bool) -> None:
        """Notes the decision before the fence.

        Raises:
            KafkaException: the note could not be written; the id must not be fenced.
        """
        self._offsets.write(_group(transaction, transaction.epoch), int(commit))

    def read(self, fenced: Transaction) -> bool | None:
        """Returns the decision that was noted before the fence of this id; None if there is no note."""
        found = self._offsets.read(_group(fenced, fenced.epoch - 1)) if fenced.state == "Empty" else None
        return None if found is None else bool(found.number)


def _group(transaction: Transaction, epoch: int) -> str:
    return f"{transaction.transactional_id}.{transaction.producer_id}.{epoch}.decided"


def settle(
    coordinator: Coordinator,
    prefix: str,
    names: Collection[str],
    timeout_ms: int,
    limit_s: float,
    waiting: Waiting | None = None,
) -> None:
    """Aborts ongoing transactions of these ids and waits until all transaction markers are sent.

    Until an id is fenced, its coordinator then has the decision about its transaction.

    Raises:
        KafkaError: a coordinator was still busy after `limit_s`.
    """
    deadline = time.monotonic() + limit_s
    while True:
        states = {txn.transactional_id: txn.state for txn in coordinator.listed(prefix, state_filters=AT_WORK)}
        busy = {name: states[name] for name in names if name in states}
        if not busy:
            return
        if time.monotonic() > deadline:
            why = f"; {waiting.why()}".rstrip("; .") if waiting is not None else ""
            raise KafkaError(f"transactions had not ended within {limit_s:g} s: {busy}{why}")
        if waiting is not None:
            waiting.look()
        ongoing = [name for name, state in busy.items() if state == "Ongoing"]
        if ongoing:
            coordinator.fence_once(ongoing, timeout_ms)
        time.sleep(_PAUSE_S)


def find_hanging(coordinator: Coordinator, prefix: str, topics: Sequence[str]) -> dict[OpenIn, Transaction]:
    """Returns transactions that their coordinator has ended, but a partition has not.

    See `end_hanging_transactions`.
    """
    places = _open_places(coordinator, prefix, topics)
    if not places:  # usual between two batches: no coordinator is asked
        return {}
    listed = coordinator.listed(prefix, producer_id_filters={place.producer_id for place in places})
    owners = {txn.producer_id: txn.transactional_id for txn in listed}
    suspects = {place for place in places if place.producer_id in owners}
    if not suspects:
        return {}
    described = coordinator.describe({owners[place.producer_id] for place in suspects})
    whose = {
        place: described[owners[place.producer_id]]
        for place in suspects
        if owners[place.producer_id] in described and described[owners[place.producer_id]].state not in AT_WORK
    }
    # If a transaction marker has arrived since the first list, the transaction does not hang: its id is not fenced.
    return _still(whose, coordinator, topics) if whose else {}


def _open_places(coordinator: Coordinator, prefix: str, topics: Sequence[str]) -> list[OpenIn]:
    try:
        return list(_open_in(coordinator, topics))
    except UnknownTopicOrPartitionError:
        if coordinator.listed(prefix):
            raise
        return []  # a cluster without groups has no topic of their offsets yet, and a sink_id without ids has no place


def end_hanging_transactions(
    coordinator: Coordinator,
    prefix: str,
    topics: Sequence[str],
    notes: DecisionNotes,
    fence: Callable[[Iterable[str]], None] | None,
) -> list[Repair]:
    """Ends decided transactions that are still open in these topics.

    Args:
        coordinator: a connection to the cluster.
        prefix: of the transactional ids.
        topics: every topic that these transactions write to.
        notes: decisions that were noted before the fences of this start and of earlier ones.
        fence: fences ids; None if no process can be using them.

    Raises:
        RefusedStart: a transaction's decision is lost, or the right to end it is missing.
        HangingTransaction: a broker did not write the transaction marker.
    """
    whose = find_hanging(coordinator, prefix, topics)
    decided = {txn: decision_of(txn, notes) for txn in set(whose.values())}
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
    """Returns the transactions that are still open since the same offset."""
    return {place: whose[place] for place in _open_in(coordinator, topics) if place in whose}


def decision_of(transaction: Transaction, notes: DecisionNotes) -> bool | None:
    """Whether an ended transaction was committed; None if the decision is lost."""
    return _DECIDED[transaction.state] if transaction.state in _DECIDED else notes.read(transaction)


def _open_in(coordinator: Coordinator, topics: Sequence[str]) -> Iterator[OpenIn]:
    for topic in topics:
        try:
            yield from coordinator.leaders.open_in(topic)
        except TopicAuthorizationFailedError:
            _log.warning("cannot look for hanging transactions in topic %s: this user needs Read on it", topic)


def _end(coordinator: Coordinator, transaction: Transaction, place: OpenIn, commit: bool | None) -> Repair:
    where = (
        f"transaction {transaction.transactional_id} (producer {place.producer_id}) has been open in {place.topic} "
        f"partition {place.partition} since offset {place.offset}, and readers wait there"
    )
    by_hand = (
        f"kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic {place.topic} --partition {place.partition} "
        f"--start-offset {place.offset}"
    )
    if commit is None:
        raise RefusedStart(
            f"{where}; its coordinator ({transaction.state}) no longer knows whether it was committed. If its rows "
            f"there may be dropped, end it and start again: {by_hand}. Otherwise take a new checkpoint, sink_id and "
            "output."
        )
    try:
        coordinator.leaders.write_transaction_marker(place, transaction.epoch, commit)
    except KafkaError as error:
        outcome = "committed" if commit else "aborted"
        text = f"{where}. It is {outcome}, but this could not be written there: {error}."
        if isinstance(error, AuthorizationError):
            raise RefusedStart(
                f"{text} Grant this user Alter on the cluster, for one start: kafka-acls.sh --bootstrap-server "
                "HOST:PORT --add --allow-principal User:NAME --operation Alter --cluster"
            ) from error
        raise HangingTransaction(f"{text} Start again when the broker is back: the decision is still known.") from error
    _log.warning("%s; its lost %s marker is written now", where, "commit" if commit else "abort")
    return Repair(transaction.transactional_id, place, commit)
