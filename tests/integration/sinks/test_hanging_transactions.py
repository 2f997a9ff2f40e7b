"""Ends a transaction that its coordinator has ended, and that a partition still holds.

It ends there as the coordinator decided. No other transaction is ended.

A broker that does not ask the coordinator before it appends (`transaction.partition.verification.enable`, KIP-890) lets
a test leave a transaction open behind its coordinator's back; how one gets there by itself: `kafka_forgotten.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError
from kafka.protocol.producer import ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.structs import TopicPartition as Place

from oncebench.delivery.contract import SinkSettings
from oncebench.delivery.errors import HangingTransaction, RefusedStart
from oncebench.delivery.transactions.left import HANGING
from oncebench.servers.kafka.broker import KafkaBroker, start_kafka
from oncebench.sinks.kafka.coordinator import Coordinator, Outcome, Transaction
from oncebench.sinks.kafka.drivers.left import KafkaTransactions
from oncebench.sinks.kafka.hanging_transactions import (
    OFFSETS_TOPIC,
    DecisionNotes,
    Repair,
    end_hanging_transactions,
    settle,
)
from oncebench.sinks.kafka.markers import Offsets
from oncebench.sinks.kafka.names import transactional_ids
from tests.reading import committed_records

pytestmark = pytest.mark.integration
LIMIT_S = 60.0  # a broker answers in milliseconds, and in many seconds where it shares its cores


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    trusting = {"transaction.partition.verification.enable": "false"}
    with start_kafka(tmp_path_factory.mktemp("trusting"), settings=trusting) as made:
        yield made


class World:
    """A topic of two partitions, and one producer that has ended a transaction in the first."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.topic = broker.fresh_topic("forgotten", 2)
        self.sink_id = f"forgotten-{uuid.uuid4().hex}"
        self.prefix = transactional_ids(self.sink_id)
        self.coordinator = Coordinator({"bootstrap_servers": broker.bootstrap_servers})
        self.producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": self.name})
        self.producer.init_transactions(LIMIT_S)
        self.fenced: list[str] = []
        offsets = Offsets({"bootstrap.servers": broker.bootstrap_servers}, self.topic)
        offsets.write("any", 0)  # as every start does: only then the groups' topic is there
        self.notes = DecisionNotes(offsets)

    @property
    def name(self) -> str:
        return f"{self.prefix}1"

    @property
    def transaction(self) -> Transaction:
        return self.coordinator.describe([self.name])[self.name]

    def ends(self, commit: bool) -> None:
        self.producer.begin_transaction()
        self.producer.produce(self.topic, b"heard of", partition=0)
        self.producer.flush(LIMIT_S)
        self.producer.commit_transaction(LIMIT_S) if commit else self.producer.abort_transaction(LIMIT_S)
        # The coordinator answers before it has sent the transaction markers, and is at work until then.
        settle(self.coordinator, self.prefix, {self.name}, 60_000, LIMIT_S)

    def leaves_open(self, partition: int = 1) -> None:
        """A record of the producer's transaction in a partition unknown to the coordinator."""
        txn = self.transaction
        batch = MemoryRecordsBuilder(2, 0, 16_384, transactional=True, producer_id=txn.producer_id,
                                     producer_epoch=txn.epoch, base_sequence=0)  # fmt: skip
        batch.append(timestamp=0, key=None, value=b"not heard of", headers=[])
        batch.close()
        topic = ProduceRequest.TopicProduceData
        data = topic.PartitionProduceData(index=partition, records=bytes(batch.buffer()))
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=10_000,
                                 topic_data=[topic(name=self.topic, partition_data=[data])], max_version=9)  # fmt: skip
        admin = self.coordinator._admin
        (leader,) = admin._manager.run(admin._async_get_leader_for_partitions, [Place(self.topic, partition)])

        async def send() -> object:
            return await admin._manager.send(request, node_id=leader)

        answer = admin._manager.run(send)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def fence(self, names: Iterable[str]) -> None:
        self.fenced += names
        self.coordinator.fence(self.fenced, 60_000, LIMIT_S)

    def end_hanging_transactions(self) -> list[Repair]:
        return end_hanging_transactions(
            self.coordinator, self.prefix, (self.topic, OFFSETS_TOPIC), self.notes, self.fence
        )

    def shown(self, partition: int) -> list[bytes | None]:
        records = committed_records(self.broker.bootstrap_servers, self.topic)
        return [record.value() for record in records if record.partition() == partition]


@pytest.fixture
def world(broker: KafkaBroker) -> Iterator[World]:
    made = World(broker)
    yield made
    made.coordinator.close()


@pytest.mark.parametrize(("commit", "shown"), [(True, [b"not heard of"]), (False, [])])
def test_what_was_decided_holds_where_the_partition_never_heard_of_it(
    world: World, commit: bool, shown: list[bytes]
) -> None:
    world.ends(commit)
    world.leaves_open()
    (ended,) = world.end_hanging_transactions()
    assert (ended.transactional_id, ended.place.partition, ended.commit) == (world.name, 1, commit)
    assert world.coordinator.leaders.open_in(world.topic) == []
    assert world.shown(1) == shown
    assert world.end_hanging_transactions() == []


@pytest.mark.parametrize(("commit", "shown"), [(True, [b"not heard of"]), (False, [])])
def test_it_is_listed_and_ended_as_decided_without_the_job(world: World, commit: bool, shown: list[bytes]) -> None:
    world.ends(commit)
    world.leaves_open()
    client = {"bootstrap.servers": world.broker.bootstrap_servers}
    with closing(KafkaTransactions(SinkSettings({"output": world.topic}, world.sink_id, 1, Path(), client))) as left:
        (found,) = left.look()
        assert (found.name, found.state, found.outcome) == (world.name, HANGING, commit)
        if commit:
            assert left.commit([found]) == []
        else:
            left.abort([found])
        assert left.look() == []
    assert world.shown(1) == shown


def test_a_transaction_that_is_still_to_be_decided_is_left_alone(world: World) -> None:
    world.producer.begin_transaction()
    world.producer.produce(world.topic, b"row", partition=0)
    world.producer.flush(LIMIT_S)
    assert world.end_hanging_transactions() == []
    assert world.fenced == []
    world.producer.commit_transaction(LIMIT_S)
    assert world.shown(0) == [b"row"]


def test_what_another_sink_has_left_open_is_not_looked_at(world: World, broker: KafkaBroker) -> None:
    world.ends(commit=True)
    world.leaves_open()
    assert end_hanging_transactions(world.coordinator, "another.", (world.topic,), world.notes, world.fence) == []
    assert len(world.coordinator.leaders.open_in(world.topic)) == 1


def test_where_nobody_knows_any_more_what_was_decided_the_start_is_refused_with_what_to_do(world: World) -> None:
    world.ends(commit=True)
    world.leaves_open()
    world.coordinator.fence([world.name], 60_000, LIMIT_S)  # takes the id: its coordinator begins anew
    with pytest.raises(RefusedStart, match=r"HOST:PORT abort --topic \S+ --partition 1 --start-offset 0"):
        world.end_hanging_transactions()


@pytest.mark.parametrize(("commit", "shown"), [(True, [b"not heard of"]), (False, [])])
def test_what_was_decided_outlives_a_death_between_the_fence_and_the_marker(
    world: World, monkeypatch: pytest.MonkeyPatch, commit: bool, shown: list[bytes]
) -> None:
    world.ends(commit)
    world.leaves_open()
    with monkeypatch.context() as broken:
        broken.setattr(world.coordinator.leaders, "write_transaction_marker", raises(NotLeaderForPartitionError))
        with pytest.raises(HangingTransaction, match="the decision is still known"):
            world.end_hanging_transactions()
    assert world.transaction.state == "Empty", "or its coordinator knew"
    (ended,) = world.end_hanging_transactions()
    assert ended.commit == commit
    assert world.shown(1) == shown
    assert world.fenced == [world.name], "it was fenced already"


def raises(error: type[Exception]) -> Callable[..., None]:
    def fails(*_: object) -> None:
        raise error

    return fails


def test_a_note_does_not_speak_of_a_transaction_that_the_fence_has_aborted(world: World) -> None:
    world.ends(commit=True)
    noted = world.transaction
    world.notes.write(noted, commit=True)
    world.producer.begin_transaction()
    world.producer.produce(world.topic, b"undecided", partition=0)
    world.producer.flush(LIMIT_S)
    world.fence([world.name])
    assert world.notes.read(world.transaction) is None
    assert world.notes.read(Transaction(world.name, noted.producer_id, noted.epoch + 1, "Empty")) is True


def test_what_is_brought_to_rest_is_fenced_and_its_coordinator_knows_that_it_was_aborted(world: World) -> None:
    world.producer.begin_transaction()
    world.producer.produce(world.topic, b"undecided", partition=0)
    world.producer.flush(LIMIT_S)
    before = world.transaction
    settle(world.coordinator, world.prefix, {world.name}, 60_000, LIMIT_S)
    after = world.transaction
    assert (before.state, after.state) == ("Ongoing", "CompleteAbort")
    assert after.epoch == before.epoch + 1
    assert world.coordinator.end([before], commit=True, limit_s=LIMIT_S)[0].outcome is Outcome.ELSEWHERE
    assert world.coordinator.leaders.open_in(world.topic) == []


def test_a_topic_that_is_not_there_is_not_taken_for_one_with_nothing_open(world: World) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        world.coordinator.leaders.open_in("there-is-none")


def test_a_sink_whose_partitions_are_all_in_order_is_told_nothing_and_fenced_by_nobody(world: World) -> None:
    world.ends(commit=True)
    assert world.end_hanging_transactions() == []
    assert world.fenced == []
    world.ends(commit=True)
