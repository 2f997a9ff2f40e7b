"""Open transactions of a sink_id in Kafka: listed, committed and aborted without the job.

The list comes from the coordinators, and from the partitions for hanging transactions (`hanging_transactions`). A
transaction that a decision names has its batch and partition from there. Kafka itself shows neither.

Promise: `take` publishes a newer generation first. A worker that makes its producer later finds it and stops. `abort`
fences the ids, so their producers can never commit again. `commit` sends EndTxn for exactly the producer and epoch that
the decision names. What can go wrong: the coordinator does not answer; another call then finishes the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oncebench.delivery.contract import Mark, SinkSettings
from oncebench.delivery.errors import CommitUncertain, RefusedStart
from oncebench.delivery.topics.replicas import Waiting
from oncebench.delivery.transactions.left import ENDING, HANGING, OPEN, Left
from oncebench.kafka_repair.addresses import RECOVERY
from oncebench.kafka_repair.admin import admin_client
from oncebench.sinks.kafka.coordinator import Coordinator, Outcome, Transaction, explain, fence_all
from oncebench.sinks.kafka.hanging_transactions import (
    AT_WORK,
    OFFSETS_TOPIC,
    DecisionNotes,
    decision_of,
    end_hanging_transactions,
    find_hanging,
    settle,
)
from oncebench.sinks.kafka.markers import Offsets, is_committed, newest_marks, publish_generation
from oncebench.sinks.kafka.names import Names, generation_of
from oncebench.sinks.kafka.topics import identity

# How long a commit or an abort retries; another call goes on after that.
LIMIT_S = 60.0
# For requests to a broker that has answered before.
REQUEST_LIMIT_S = 20.0
# The time-out that a fence gives an id. It counts for the next transaction only, and there is none. Brokers allow it:
# their transaction.max.timeout.ms is never shorter in practice.
FENCED_TIMEOUT_MS = 10_000


class KafkaTransactions:
    """See `oncebench.delivery.transactions.left.Transactions`.

    Args:
        settings: of the job; `kafka` must have `bootstrap.servers`.

    Raises:
        RefusedStart: there is no address.
        kafka.errors.KafkaError: the cluster cannot be reached.
    """

    def __init__(self, settings: SinkSettings) -> None:
        if not settings.kafka.get("bootstrap.servers"):
            raise RefusedStart("the address of Kafka is missing. Give it as --bootstrap-servers.")
        self._client = dict(settings.kafka)
        self._topic, self._partitions = str(settings.output["output"]), settings.partitions
        self._names = Names(settings.sink_id, 0, self._topic, settings.driver)
        self._admin = admin_client({**self._client, **RECOVERY})
        self._offsets = Offsets(self._client, self._topic)
        self._coordinator = Coordinator.of(self._client)

    def identity(self) -> Mapping[str, str]:
        return identity(self._admin, self._topic, REQUEST_LIMIT_S)

    def look(self) -> list[Left]:
        prefix = self._names.prefix
        self._coordinator.refuse_hidden(prefix)
        working = [txn.transactional_id for txn in self._coordinator.listed(prefix, state_filters=AT_WORK)]
        found = [self._left(txn) for txn in self._coordinator.describe(working).values() if txn.state in AT_WORK]
        notes = DecisionNotes(self._offsets)
        hanging = set(find_hanging(self._coordinator, prefix, self._topics).values())
        found += [replace(self._left(txn), state=HANGING, outcome=decision_of(txn, notes)) for txn in hanging]
        return sorted(found, key=lambda left: left.name)

    def _left(self, txn: Transaction) -> Left:
        began = txn.began_ms / 1000 if txn.began_ms > 0 else None
        left = Left(
            name=txn.transactional_id,
            state=OPEN,
            prepared={"transactional_id": txn.transactional_id, "producer_id": txn.producer_id, "epoch": txn.epoch},
            generation=generation_of(self._names.sink_id, txn.transactional_id),
            began_at=began,
            expires_at=None if began is None or txn.timeout_ms < 0 else began + txn.timeout_ms / 1000,
        )
        return left if txn.state == "Ongoing" else replace(left, state=ENDING, outcome=txn.state == "PrepareCommit")

    def name_of(self, prepared: Mapping[str, Any]) -> str:
        return str(prepared["transactional_id"])

    def marks(self) -> Mapping[int, Mark]:
        """See `Transactions.marks`; a marker in an open transaction does not count yet."""
        groups = map(self._names.marker_group, range(self._partitions))
        return newest_marks(self._offsets, groups, stable=False)

    def users(self) -> list[str]:
        """See `Transactions.users`: Kafka does not show which producers are connected."""
        return []

    def take(self, generation: int | None) -> None:
        if generation is None:
            published = self._offsets.read(self._names.generation_group)
            generation = 1 + (0 if published is None else published.number)
        self._names = replace(self._names, generation=generation)
        publish_generation(self._offsets, self._names, generation)

    def commit(self, chosen: Sequence[Left]) -> list[str]:
        """See `Transactions.commit`.

        Raises:
            CommitUncertain: a coordinator gave no definite answer within LIMIT_S.
        """
        named = [left for left in chosen if left.state != HANGING]
        if len(named) < len(chosen):
            self._end_hanging()
        transactions = [Transaction(**left.prepared) for left in named]
        waiting = self._waiting("transactions are committed")
        answers = self._coordinator.end(transactions, commit=True, limit_s=LIMIT_S, look=waiting.look)
        silent = {answer.error_code for answer in answers if answer.outcome is Outcome.UNKNOWN}
        if silent:
            why = explain(silent, LIMIT_S, self._names.sink_id)
            raise CommitUncertain(
                f"the transaction coordinator {why}. {waiting.why()}The decision stays in the journal: call again "
                "after that."
            )
        unclear = [left for left, answer in zip(named, answers, strict=True) if answer.outcome is Outcome.ELSEWHERE]
        marks = self.marks() if unclear else {}
        return [left.name for left in unclear if not _committed(marks, left)]

    def abort(self, chosen: Sequence[Left]) -> None:
        """See `Transactions.abort`; the transactions end before their ids are fenced.

        A fence erases the decisions of their coordinators.
        """
        names = {left.name for left in chosen if left.state != HANGING}
        waiting = self._waiting("transactions are aborted")
        settle(self._coordinator, self._names.prefix, names, FENCED_TIMEOUT_MS, LIMIT_S, waiting)
        self._end_hanging()
        self._fence(names)

    def _end_hanging(self) -> None:
        notes = DecisionNotes(self._offsets)
        end_hanging_transactions(self._coordinator, self._names.prefix, self._topics, notes, self._fence)

    def _fence(self, names: Iterable[str]) -> None:
        fence_all(self._coordinator, names, FENCED_TIMEOUT_MS, REQUEST_LIMIT_S)

    @property
    def _topics(self) -> tuple[str, str]:
        return self._topic, OFFSETS_TOPIC

    def _waiting(self, until: str) -> Waiting:
        return Waiting(self._admin, self._topics, until)

    def close(self) -> None:
        self._coordinator.close()


def _committed(marks: Mapping[int, Mark], left: Left) -> bool:
    """Whether one of its markers is there: a commit may still be on its way to the others."""
    assert left.batch is not None, "a decision names it"
    return any(is_committed(marks, partition, left.batch) for partition in left.partitions)


# Tasks of both variants write in transactions. A task of `idempotent` commits its own, so no decision names it.
LEFT_OPEN = {"two-phase": KafkaTransactions, "idempotent": KafkaTransactions}
