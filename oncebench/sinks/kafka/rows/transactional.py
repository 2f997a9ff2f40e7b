"""A worker's transactional producer, and what it knows about its connections.

Promise: `sound` is False once a request may still arrive that the producer no longer expects, or once librdkafka has
removed a broker. Such a producer is never used again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

from confluent_kafka import Producer
from kafka.errors import KafkaError, KafkaTimeoutError, for_code

from oncebench.delivery.topics.settings import producer_sizes
from oncebench.kafka_repair.addresses import RECOVERY
from oncebench.kafka_repair.librdkafka import end_debug
from oncebench.sinks.kafka.coordinator import Coordinator, Outcome, Transaction, answered
from oncebench.sinks.kafka.drivers.claims import stop_if_older
from oncebench.sinks.kafka.markers import read
from oncebench.sinks.kafka.names import Names
from oncebench.sinks.kafka.rows.produce import COMMON
from oncebench.sinks.kafka.wire import NONE

# For init_transactions, send_offsets and commit: milliseconds on a healthy broker, seconds while it restarts.
TRANSACTION_LIMIT_S = 60.0
# For a fence that the next batch waits for, and that can fail without harm.
RETIRE_LIMIT_S = 5.0

_log = logging.getLogger(__name__)

T = TypeVar("T")


class TransactionalProducer:
    """A transactional producer of this worker process, with at most one open transaction.

    Attributes:
        sound: whether it may be used for the next transaction.
        waits: whether a call of librdkafka waits for ever, so that librdkafka cannot end the transaction.
        lacks_marker: whether a wait for its marker was given up.
    """

    def __init__(self, client: Mapping[str, Any], names: Names, timeout_ms: int, limit: int | None) -> None:
        self.name = names.fresh_id()
        self.open_batch: int | None = None
        self._began_at = 0.0
        self.sound = True
        self.waits = False
        self.lacks_marker = False
        self._client, self._timeout_ms = client, timeout_ms
        self.used_at = time.monotonic()  # when the coordinator last got a request with this id for sure
        self._failures = 0
        settings = {"transactional.id": self.name, "transaction.timeout.ms": timeout_ms}
        # Only librdkafka's debug log reports every lost connection: about ten lines for each, and no others.
        settings |= {"debug": "broker", "logger": self}
        self.producer = Producer({**client, **producer_sizes(limit), **COMMON, **RECOVERY, **settings})
        self.producer.init_transactions(TRANSACTION_LIMIT_S)
        with Coordinator.of(client) as coordinator:
            described = coordinator.describe([self.name])[self.name]
        self.producer_id, self.epoch = described.producer_id, described.epoch
        stop_if_older(read(client, names.generation_group, names.topic), names)

    def log(self, level: int, form: str, facility: str, *more: str) -> None:
        """Receives librdkafka's log lines, among them lost connections and removed brokers.

        The arguments are those of `logging.Logger.log`.

        librdkafka logs a lost connection with the facility FAIL and retries by itself. Its error callback reports only
        connections that could not be made. It logs a broker that it removes with DESTROY. It always removes a bootstrap
        address when it learns the brokers. Any other broker may be the coordinator of a marker group: librdkafka does
        not look for a new one, and `mark` would wait for ever (its issue 5511). If an upgrade of librdkafka changes
        these words, one of these tests fails:
        tests/unit/sinks/test_kafka_writers.py::test_librdkafka_logs_a_lost_connection_as_fail
        tests/integration/sinks/test_lost_addresses.py::test_a_transactional_producer_that_lost_a_broker_is_not_sound
        """
        self._failures += facility == "FAIL"
        self.sound = self.sound and not (facility == "DESTROY" and "/bootstrap" not in more[-1])
        if level > logging.DEBUG:
            _log.log(level, form, facility, *more)

    def look(self) -> None:
        """Serves `log`, so `sound` is up to date.

        If a call waits for a broker that librdkafka has removed, that broker's thread writes a debug line each
        millisecond. Nobody reads them later, and each takes more time than the one before.
        """
        self.producer.poll(0)
        if not self.sound:
            end_debug(self.producer)

    @property
    def transaction(self) -> Transaction:
        """Its transaction, as a coordinator names it."""
        return Transaction(self.name, self.producer_id, self.epoch)

    def begin(self, batch: int) -> None:
        """Begins a transaction, unless an earlier task of this batch has begun it.

        The broker learns of it with its first row or marker, and the time-out counts from there.
        """
        self.used_at = time.monotonic()
        if self.open_batch != batch:
            self.producer.begin_transaction()
            self.open_batch, self._began_at = batch, self.used_at

    def open_for_s(self) -> float:
        """Returns how long its transaction has been open; 0 if there is none."""
        return 0.0 if self.open_batch is None else time.monotonic() - self._began_at

    def commit(self) -> None:
        """Commits the open transaction.

        If the driver has committed it already, the broker accepts the request as a repetition.

        Raises:
            KafkaException: librdkafka could not commit.
            KafkaError: (of kafka-python) the coordinator refused, or gave no definite answer in time.
        """
        if self.waits:
            self._commit_without_librdkafka()
        else:
            self._end(self.producer.commit_transaction)

    def _commit_without_librdkafka(self) -> None:
        with Coordinator.of(self._client) as coordinator:
            (answer,) = coordinator.end([self.transaction], commit=True, limit_s=TRANSACTION_LIMIT_S)
        if answer.outcome is not Outcome.DONE:
            kind = for_code(answer.error_code) if answer.error_code > NONE else KafkaTimeoutError
            raise kind(f"the transaction was not committed: {answered(answer.error_code)}")
        self.open_batch = None

    def retire(self) -> None:
        """Fences its id, once its transaction is committed.

        A call of librdkafka may still wait, and begin another transaction. Such a transaction would have no rows, and
        Kafka would abort it after its time-out. So a failure is only logged.
        """
        try:
            with Coordinator.of(self._client) as coordinator:
                coordinator.fence([self.name], self._timeout_ms, RETIRE_LIMIT_S)
        except KafkaError as error:
            _log.warning("could not fence %s, which is not used again: %s", self.name, error)

    def _end(self, ask: Callable[[float], None]) -> None:
        """Sends EndTxn. After a lost connection this producer is not `sound` and never used again.

        The first EndTxn could still arrive, and would then end the next transaction (KIP-890 mends this flaw for
        clients that use TV2).
        """
        self.look()
        before = self._failures
        ask(TRANSACTION_LIMIT_S)
        self.open_batch = None
        self.look()
        self.sound = self.sound and self._failures == before


def run_in_thread(call: Callable[[], T]) -> Future[T]:
    """Starts a call that may never return; the future gets its result or error.

    The call runs in a daemon thread. A caller may stop waiting; the call then continues, so do not reuse its objects.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future
