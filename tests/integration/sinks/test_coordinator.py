"""What the transaction coordinator answers, case by case, on a real broker.

The table is that of TransactionCoordinator.endTransaction for the protocol of KIP-98 (EndTxn up to version 4).
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.sinks.kafka import wire
from oncebench.sinks.kafka.coordinator import Coordinator, EndTxnResult, Outcome, Transaction
from tests.reading import committed_records
from tests.waiting import wait_for

pytestmark = pytest.mark.integration
LIMIT_S = 60.0  # a broker answers in milliseconds; one that was paused, or shares its cores, needs many seconds


@pytest.fixture
def coordinator(kafka: KafkaBroker) -> Iterator[Coordinator]:
    with Coordinator({"bootstrap_servers": kafka.bootstrap_servers}) as made:
        yield made


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    return kafka.fresh_topic("wire", 1)


def producer_of(kafka: KafkaBroker, name: str, timeout_ms: int = 60_000) -> Producer:
    settings = {"transactional.id": name, "transaction.timeout.ms": timeout_ms}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    producer.init_transactions(LIMIT_S)
    return producer


def prepare(producer: Producer, topic: str, value: bytes = b"row") -> None:
    producer.begin_transaction()
    producer.produce(topic, value)
    assert producer.flush(LIMIT_S) == 0


def prepared(kafka: KafkaBroker, coordinator: Coordinator, topic: str) -> tuple[Producer, Transaction]:
    name = f"wire-{uuid.uuid4().hex}"
    producer = producer_of(kafka, name)
    prepare(producer, topic)
    return producer, coordinator.describe([name])[name]


def committed(kafka: KafkaBroker, topic: str) -> list[bytes | None]:
    return [record.value() for record in committed_records(kafka.bootstrap_servers, topic)]


def end(coordinator: Coordinator, transaction: Transaction, commit: bool = True) -> EndTxnResult:
    return coordinator.end([transaction], commit, LIMIT_S)[0]


def test_a_transaction_of_a_killed_process_is_committed_by_another(
    kafka: KafkaBroker, coordinator: Coordinator, topic: str
) -> None:
    name = f"wire-{uuid.uuid4().hex}"
    code = f"""
        import os, signal
        from confluent_kafka import Producer
        p = Producer({{"bootstrap.servers": "{kafka.bootstrap_servers}", "transactional.id": "{name}"}})
        p.init_transactions({LIMIT_S}); p.begin_transaction(); p.produce("{topic}", b"row"); p.flush({LIMIT_S})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=2 * LIMIT_S, check=False)
    assert died.returncode == -9
    transaction = coordinator.describe([name])[name]
    assert transaction.state == "Ongoing"
    assert committed(kafka, topic) == []
    assert end(coordinator, transaction).outcome is Outcome.DONE
    wait_for("the row to be visible", lambda: committed(kafka, topic) == [b"row"])


def test_committing_twice_is_answered_as_done(kafka: KafkaBroker, coordinator: Coordinator, topic: str) -> None:
    _, transaction = prepared(kafka, coordinator, topic)
    assert [end(coordinator, transaction).outcome for _ in range(3)] == [Outcome.DONE] * 3
    wait_for("the row to be visible", lambda: committed(kafka, topic) == [b"row"])


def test_committing_what_was_aborted_says_so(kafka: KafkaBroker, coordinator: Coordinator, topic: str) -> None:
    _, transaction = prepared(kafka, coordinator, topic)
    assert end(coordinator, transaction, commit=False).outcome is Outcome.DONE
    assert end(coordinator, transaction) == EndTxnResult(Outcome.ELSEWHERE, 48, doubtful=False)  # INVALID_TXN_STATE
    assert committed(kafka, topic) == []


def test_a_producer_goes_on_after_the_driver_has_committed_for_it(
    kafka: KafkaBroker, coordinator: Coordinator, topic: str
) -> None:
    producer, transaction = prepared(kafka, coordinator, topic)
    for value in (b"second", b"third"):
        assert end(coordinator, transaction).outcome is Outcome.DONE
        producer.commit_transaction(LIMIT_S)  # for the broker a repetition; for the producer the end
        prepare(producer, topic, value)
        assert coordinator.describe([transaction.transactional_id])[transaction.transactional_id].epoch == (
            transaction.epoch
        )
    assert end(coordinator, transaction).outcome is Outcome.DONE
    wait_for("all three rows", lambda: committed(kafka, topic) == [b"row", b"second", b"third"])


def test_a_fenced_transaction_is_aborted_and_can_never_be_committed(
    kafka: KafkaBroker, coordinator: Coordinator, topic: str
) -> None:
    _, transaction = prepared(kafka, coordinator, topic)
    coordinator.fence([transaction.transactional_id], 60_000, LIMIT_S)
    assert end(coordinator, transaction) == EndTxnResult(Outcome.ELSEWHERE, 90, doubtful=False)  # PRODUCER_FENCED
    assert committed(kafka, topic) == []
    assert coordinator.describe([transaction.transactional_id])[transaction.transactional_id].state == "Empty"


def test_a_transaction_that_timed_out_is_told_from_one_that_is_done(
    kafka: KafkaBroker, coordinator: Coordinator, topic: str
) -> None:
    name = f"wire-{uuid.uuid4().hex}"
    producer = producer_of(kafka, name, timeout_ms=1000)
    prepare(producer, topic)
    transaction = coordinator.describe([name])[name]
    wait_for("the broker's time-out", lambda: coordinator.describe([name])[name].state == "CompleteAbort")
    assert end(coordinator, transaction).outcome is Outcome.ELSEWHERE


def test_an_id_that_never_wrote_has_nothing_to_commit(kafka: KafkaBroker, coordinator: Coordinator) -> None:
    name = f"wire-{uuid.uuid4().hex}"
    producer_of(kafka, name)
    assert end(coordinator, coordinator.describe([name])[name]).outcome is Outcome.ELSEWHERE


def test_an_id_that_the_cluster_does_not_know_is_left_out(coordinator: Coordinator) -> None:
    assert coordinator.describe(["wire-unknown"]) == {}


def test_ids_are_listed_by_prefix_with_their_state(kafka: KafkaBroker, coordinator: Coordinator, topic: str) -> None:
    _, transaction = prepared(kafka, coordinator, topic)
    name = transaction.transactional_id
    for complete in (False, True):
        listed = coordinator.listed(name[:12], complete)
        assert [(seen.transactional_id, seen.state) for seen in listed] == [(name, "Ongoing")]
    leaders = {leader for leader, _ in wire.transaction_leaders(coordinator._admin)}
    assert leaders == coordinator._admin.list_transactions().keys()
    assert coordinator.listed("no-such-prefix") == []
    end(coordinator, transaction, commit=False)


def test_many_are_ended_at_once_and_answered_in_order(kafka: KafkaBroker, coordinator: Coordinator, topic: str) -> None:
    pairs = [prepared(kafka, coordinator, topic) for _ in range(4)]
    coordinator.fence([pairs[2][1].transactional_id], 60_000, LIMIT_S)
    answers = coordinator.end([transaction for _, transaction in pairs], commit=True, limit_s=LIMIT_S)
    assert [answer.outcome is Outcome.DONE for answer in answers] == [True, True, False, True]


def test_a_broker_that_does_not_answer_gives_unknown_and_doubt_then_the_truth(kafka_own: KafkaBroker) -> None:
    topic = kafka_own.fresh_topic("wire", 1)
    with Coordinator({"bootstrap_servers": kafka_own.bootstrap_servers, "request_timeout_ms": 1000}) as coordinator:
        _, transaction = prepared(kafka_own, coordinator, topic)
        kafka_own.pause()
        began = time.monotonic()
        try:
            answer = coordinator.end([transaction], commit=True, limit_s=2.0)[0]
            took_s = time.monotonic() - began
        finally:
            kafka_own.resume()
        assert (answer.outcome, answer.doubtful) == (Outcome.UNKNOWN, True)
        assert took_s < LIMIT_S, "the look-up of the coordinator has the same limit"
        assert coordinator.end([transaction], commit=True, limit_s=LIMIT_S)[0].outcome is Outcome.DONE
        wait_for("the row to be visible", lambda: committed(kafka_own, topic) == [b"row"])


def test_a_commit_survives_a_kill_of_the_broker(kafka_own: KafkaBroker) -> None:
    topic = kafka_own.fresh_topic("wire", 1)
    with Coordinator({"bootstrap_servers": kafka_own.bootstrap_servers}) as coordinator:
        _, transaction = prepared(kafka_own, coordinator, topic)
        kafka_own.kill()
        kafka_own.restart()
        assert coordinator.end([transaction], commit=True, limit_s=60.0)[0].outcome is Outcome.DONE
        wait_for("the row to be visible", lambda: committed(kafka_own, topic) == [b"row"])


def test_the_commits_of_many_partitions_all_get_an_answer(
    kafka: KafkaBroker, coordinator: Coordinator, topic: str
) -> None:
    # kafka-python sends 5 requests per connection and refuses the others, unless it is configured.
    opened = [prepared(kafka, coordinator, topic) for _ in range(8)]
    for _ in range(2):  # the first call finds the coordinators, and takes its time
        answers = coordinator.end([transaction for _, transaction in opened], True, LIMIT_S)
        assert [(each.outcome, each.doubtful) for each in answers] == [(Outcome.DONE, False)] * len(opened)
