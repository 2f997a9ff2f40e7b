"""Ends, describes, lists and fences transactions of other processes' producers.

Promise: every answer is one of a few outcomes, and a missing answer is `UNKNOWN`. The broker checks EndTxn against
transactional id, producer id and epoch only, not against the connection (KIP-98; in the broker:
TransactionCoordinator.endTransaction). Therefore a driver can commit transactions that its tasks have prepared.

EndTxn is sent in version 4 at most. That is the transaction protocol of KIP-98 (TV1), which librdkafka speaks. With
version 5 (TV2, KIP-890) the broker raises the producer's epoch at the commit, and the producer is fenced for good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any

from kafka.errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    TransactionalIdNotFoundError,
    for_code,
)
from kafka.protocol.producer import EndTxnRequest, InitProducerIdRequest

from oncebench.delivery.failures.kafka import named, of_code
from oncebench.kafka_access.forms import to_kafka_python
from oncebench.sinks.kafka import wire
from oncebench.sinks.kafka.leaders import Leaders
from oncebench.sinks.kafka.wire import NONE

# The last version of the old protocol (see the module's docstring).
END_TXN_VERSION = 4
# Newest InitProducerId version that every supported broker (3.9 to 4.3) has as stable; v6 is unstable (KIP-939).
INIT_PRODUCER_ID_VERSION = 5
# A running coordinator answers in milliseconds; ten seconds cover a restart of the broker.
REQUEST_TIMEOUT_MS = 10_000
# Pause between two tries while the coordinator still writes transaction markers, which takes single milliseconds.
RETRY_PAUSE_S = 0.002
RETRY_PAUSE_MAX_S = 0.1
FENCE_PAUSE_S = 0.01  # the same for a fence, which aborts first
# How often a busy coordinator is looked up again. One that is cut off from the other brokers answers as if it were
# busy, while another broker has its role; that takes the session of a broker, 9 s by default.
LOOK_UP_S = 5.0
# Ids per fencing request. A coordinator writes its log for each id: on a busy machine, 100 take 1 to 2 s of the limit.
FENCE_CHUNK = 100

# The end of an id that no producer has: their ids have a generation there (oncebench.sinks.kafka.names).
NO_ID = "none"

# Kafka's error codes (org.apache.kafka.common.protocol.Errors).
NO_ANSWER = -1  # not one of Kafka's codes: nothing came back
CONCURRENT_TRANSACTIONS = 51  # the right coordinator, still busy
RETRIABLE = frozenset({14, 15, 16, CONCURRENT_TRANSACTIONS})  # coordinator loading, not available, not this one
# After these answers the coordinator is looked up again; None: no answer.
STALE_COORDINATOR: frozenset[int | None] = frozenset({None}) | (RETRIABLE - {CONCURRENT_TRANSACTIONS})
DEFINITELY_NOT = frozenset({48})  # INVALID_TXN_STATE
AMBIGUOUS = frozenset({47, 49, 90})  # INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED


class Outcome(Enum):
    """The result of an EndTxn request."""

    DONE = "done"  # ended as asked, by this or by an earlier request
    ELSEWHERE = "elsewhere"  # ended by someone else: aborted, timed out or fenced; only the sink's marker shows which
    UNKNOWN = "unknown"  # no answer: the request may still take effect


@dataclass(frozen=True)
class Transaction:
    """A producer's transaction in the coordinator's view.

    `began_ms` and `timeout_ms` are the coordinator's: Unix time, and how long it lets the transaction stay open.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: str = ""
    began_ms: int = field(default=-1, compare=False)
    timeout_ms: int = field(default=-1, compare=False)


@dataclass(frozen=True)
class EndTxnResult:
    """The answer to one EndTxn.

    Attributes:
        outcome: the result.
        error_code: the last error code.
        doubtful: whether any try stayed without an answer.
    """

    outcome: Outcome
    error_code: int
    doubtful: bool


class Coordinator:
    """A connection to a cluster's transaction coordinators. Two threads must not use it at once.

    Args:
        settings: kafka-python's client settings; `bootstrap_servers` at least.

    Attributes:
        leaders: the leaders of the cluster's partitions, through the same connection.

    Raises:
        KafkaError: the cluster cannot be reached.
        RefusedStart: the installed kafka-python lacks a private name that this sink needs.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._admin = wire.connect({"request_timeout_ms": REQUEST_TIMEOUT_MS, **settings})
        self.leaders = Leaders(self._admin)

    @staticmethod
    def of(client: Mapping[str, Any]) -> Coordinator:
        """Connects to the cluster of a librdkafka client's settings."""
        return Coordinator(to_kafka_python(client))

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admin.close()

    def close(self) -> None:
        """Closes the connections."""
        self._admin.close()

    def end(
        self,
        transactions: Sequence[Transaction],
        commit: bool,
        limit_s: float,
        busy_limit_s: float = 0.0,
        look: Callable[[], None] = lambda: None,
    ) -> list[EndTxnResult]:
        """Commits or aborts transactions, all at once, and waits for definite answers.

        Args:
            limit_s: how long it waits at most, look-ups included, from the last time when every coordinator was busy.
            busy_limit_s: the same while every coordinator answers that it still ends the id's last transaction.
            look: called at each try.
        """
        began = looked_up = time.monotonic()
        deadline = began + limit_s
        pending = dict(enumerate(transactions))
        ended: dict[int, EndTxnResult] = {}
        doubtful: set[int] = set()
        pause = RETRY_PAUSE_S
        while pending:
            requests = {at: end_txn_request(txn, commit) for at, txn in pending.items()}
            answers = self._ask(requests, pending, deadline - time.monotonic())
            for at, code in answers.items():
                if code is None:
                    doubtful.add(at)
                elif code not in RETRIABLE:
                    ended[at] = EndTxnResult(_outcome(code), code, at in doubtful)
                    del pending[at]
            busy = all(answers[at] == CONCURRENT_TRANSACTIONS for at in pending)
            now = time.monotonic()
            if busy:
                deadline = now + limit_s  # the role of a busy coordinator may move to another broker after this
                if now > looked_up + LOOK_UP_S:
                    wire.forget_coordinators(self._admin)
                    looked_up = now
            if pending and now + pause > (began + max(limit_s, busy_limit_s) if busy else deadline):
                for at in pending:
                    code = answers[at]
                    ended[at] = EndTxnResult(Outcome.UNKNOWN, NO_ANSWER if code is None else code, True)
                break
            if pending:
                look()
                time.sleep(pause)
                pause = min(pause * 2, RETRY_PAUSE_MAX_S)
        return [ended[at] for at in range(len(transactions))]

    def fence(self, transactional_ids: Iterable[str], timeout_ms: int, limit_s: float) -> None:
        """Fences every id: aborts its open transaction, and its producer can never commit again.

        Raises:
            KafkaError: an id could not be fenced within `limit_s`.
        """
        deadline = time.monotonic() + limit_s
        pending = list(transactional_ids)
        while pending:
            answers = self.fence_once(pending, timeout_ms, deadline - time.monotonic())
            pending = [name for name, code in answers.items() if code != NONE]
            if pending:
                if time.monotonic() + FENCE_PAUSE_S > deadline:
                    codes = [answers[name] for name in pending]
                    refused = next((code for code in codes if code is not None and of_code(code).permanent), None)
                    text = ", ".join(sorted(set(map(answered, codes))))
                    kind = KafkaError if refused is None else for_code(refused)
                    raise kind(f"could not fence {', '.join(pending)} within {limit_s:g} s: {text}")
                time.sleep(FENCE_PAUSE_S)

    def fence_once(
        self, transactional_ids: Iterable[str], timeout_ms: int, limit_s: float = REQUEST_TIMEOUT_MS / 1000
    ) -> dict[str, int | None]:
        """Asks once to fence every id; returns error codes, None without an answer within `limit_s`.

        An ongoing transaction is fenced by this request, and its abort begins; the answer is CONCURRENT_TRANSACTIONS.
        Its coordinator remembers the abort until the next request for the id.
        """
        asked = {at: Transaction(name, -1, -1) for at, name in enumerate(transactional_ids)}
        answers = self._ask({at: _init_producer_id(txn, timeout_ms) for at, txn in asked.items()}, asked, limit_s)
        return {txn.transactional_id: answers[at] for at, txn in asked.items()}

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, Transaction]:
        """Returns state, producer id and epoch of each id that the coordinators have."""
        found = {}
        for name in transactional_ids:
            try:
                seen = self._loaded(self._admin.describe_transactions, [name])[name]
            except TransactionalIdNotFoundError:
                continue
            found[name] = Transaction(
                name,
                seen.producer_id,
                seen.producer_epoch,
                str(seen.state.value),
                seen.transaction_start_time_ms,
                seen.transaction_timeout_ms,
            )
        return found

    def refuse_hidden(self, prefix: str) -> None:
        """Checks that this user may see ids with this prefix; hidden ids look like no ids.

        Raises:
            AuthorizationError: this user may not describe such ids; `listed` then leaves them out.
            KafkaError: the coordinator does not answer.
        """
        self.describe([f"{prefix}{NO_ID}"])

    def listed(self, prefix: str, complete: bool = False, **filters: Collection[Any]) -> list[Transaction]:
        """Returns every transactional id with this prefix and its state; epochs are -1.

        The brokers leave out ids that this user may not describe: see `refuse_hidden`.

        Args:
            complete: waits until every coordinator was asked. Otherwise ids of a broker that is away are missing.
            filters: `producer_id_filters`, `state_filters`. The brokers apply them; without any, they send all ids.

        Raises:
            KafkaError: a broker gave no answer, or `complete` and a coordinator is away.
        """
        listings = self._loaded(self._complete_listings if complete else self._listings, filters)
        return [
            Transaction(seen.transactional_id, seen.producer_id, -1, str(seen.state.value))
            for broker in listings.values()
            for seen in broker
            if seen.transactional_id.startswith(prefix)
        ]

    def _listings(self, filters: Mapping[str, Any]) -> Any:
        wire.refresh_brokers(self._admin)  # a broker may have come back since the client connected
        return self._admin.list_transactions(**filters)

    def _complete_listings(self, filters: Mapping[str, Any]) -> Any:
        before = wire.transaction_leaders(self._admin)
        listings = self._listings(filters)
        if wire.transaction_leaders(self._admin) != before or not {leader for leader, _ in before} <= listings.keys():
            raise CoordinatorNotAvailableError("a partition of __transaction_state has no leader, or a new one")
        return listings

    def _loaded(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Repeats a read while a coordinator loads its transactions or moves to another broker.

        A broker that is away refuses connections. The cluster lists it until its session ends (9 s by default).

        Raises:
            KafkaError: any other error, or no answer within REQUEST_TIMEOUT_MS.
        """
        deadline = time.monotonic() + REQUEST_TIMEOUT_MS / 1000
        while True:
            try:
                return read(*arguments)
            except (BrokerResponseError, KafkaConnectionError, NodeNotReadyError) as error:
                broker_away = not isinstance(error, BrokerResponseError)
                if not (broker_away or error.errno in RETRIABLE) or time.monotonic() > deadline:
                    raise
                wire.forget_coordinators(self._admin)
                time.sleep(RETRY_PAUSE_MAX_S)

    def _ask(self, requests: Mapping[int, Any], whose: Mapping[int, Transaction], limit_s: float) -> wire.Answers:
        """Sends a request per transaction to its coordinator; returns error codes or None."""
        ids = {at: txn.transactional_id for at, txn in whose.items()}
        return wire.ask_coordinators(self._admin, requests, ids, STALE_COORDINATOR, limit_s)


def fence_all(coordinator: Coordinator, transactional_ids: Iterable[str], timeout_ms: int, limit_s: float) -> None:
    """Fences every id, FENCE_CHUNK per request, each within `limit_s`. See `Coordinator.fence`."""
    asked = sorted(transactional_ids)
    for at in range(0, len(asked), FENCE_CHUNK):
        coordinator.fence(asked[at : at + FENCE_CHUNK], timeout_ms, limit_s)


def explain(codes: Collection[int], limit_s: float, sink_id: str) -> str:
    """Returns why an EndTxn has no definite answer (time-out or lasting error), and what to do."""
    final = sorted(code for code in codes if code not in RETRIABLE and code != NO_ANSWER)
    if final:
        causes = [named(of_code(code), sink_id=sink_id) for code in final]
        names = ", ".join(f"{answered(code)}: {each.reason}" for code, each in zip(final, causes, strict=True))
        return f"answered {names}. {causes[0].remedy or 'Mend the cause'}"
    names = ", ".join(map(answered, sorted(codes)))
    return f"did not commit the transactions within {limit_s:g} s ({names}). Wait until the brokers work"


def answered(code: int | None) -> str:
    """Returns the name of an error code of Kafka."""
    return "no answer" if code in (None, NO_ANSWER) else f"{for_code(code).__name__} ({code})"


def _outcome(code: int) -> Outcome:
    if code == NONE:
        return Outcome.DONE
    if code in DEFINITELY_NOT or code in AMBIGUOUS:
        return Outcome.ELSEWHERE
    return Outcome.UNKNOWN


def end_txn_request(transaction: Transaction, commit: bool) -> Any:
    """Returns the request that commits or aborts a transaction in its producer's name."""
    return EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        committed=commit,
        max_version=END_TXN_VERSION,
    )


def _init_producer_id(transaction: Transaction, timeout_ms: int) -> Any:
    return InitProducerIdRequest(
        transactional_id=transaction.transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
        max_version=INIT_PRODUCER_ID_VERSION,
    )
