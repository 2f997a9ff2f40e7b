"""Copies of rejected records on a real broker.

They are whole where that is possible, and never a reason to stop.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition

from oncebench.delivery import quarantine
from oncebench.delivery.copies.originals import MOST_READ_OVER, Original, Originals, content_of
from oncebench.delivery.errors import DeliveryFailed
from oncebench.delivery.quarantine import Quarantine
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.reader import Rows
from tests.kafka_topics import configure, rejected
from tests.reading import read_all
from tests.waiting import wait_for

pytestmark = pytest.mark.integration

LARGE = 20_000_000
LIMIT_S = 30
PROBE = b"probe"  # the key of records that only test the limit
CREATED_MS = 1_700_000_000_000
Sent = dict[str, Any]


class World:
    """An input topic of one partition, and a quarantine topic."""

    def __init__(self, kafka: KafkaBroker, **quarantine: str) -> None:
        self.kafka = kafka
        settings = {"max.message.bytes": str(LARGE), "message.timestamp.after.max.ms": str(2**62)}
        self.input = kafka.fresh_topic("in", 1, settings)
        self.topic = kafka.fresh_topic("bad", 1, quarantine)
        self.client = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        self.quarantine = Quarantine(self.topic, self.input, self.client)
        self.sent: list[Sent] = []

    def send(self, *records: Sent) -> None:
        producer = Producer({**self.client, "message.max.bytes": LARGE})
        for record in records:
            producer.produce(self.input, partition=0, **record)
        assert producer.flush(LIMIT_S) == 0
        self.sent += records

    def reject(self, offsets: Iterable[int], partition: int = 0) -> dict[str, int]:
        records = [("bad", partition, at, self.sent[at].get("key"), self.sent[at].get("value")) for at in offsets]
        self.quarantine.copy(rejected(records))
        return self.quarantine.flush()

    def lower_limit(self, limit_bytes: int) -> None:
        """Returns when the broker refuses larger records.

        The broker applies a setting some time after it acknowledged it.
        """
        configure(self.kafka.admin(), self.topic, {"max.message.bytes": limit_bytes})
        wait_for("the broker to refuse a larger record", lambda: not self._takes(b"v" * 2 * limit_bytes))

    def _takes(self, value: bytes) -> bool:
        answers: list[KafkaError | None] = []
        producer = Producer(self.client)
        producer.produce(self.topic, value, PROBE, on_delivery=lambda error, _: answers.append(error))
        assert producer.flush(LIMIT_S) == 0
        (error,) = answers
        assert error is None or error.code() == KafkaError.MSG_SIZE_TOO_LARGE, error
        return error is None

    def copies(self) -> Rows:
        return read_all(KafkaReader(self.kafka.bootstrap_servers, self.topic), settle_s=LIMIT_S)

    def ours(self) -> list[dict[str, bytes | None]]:
        return [{name.removeprefix("oncebench."): value for name, value in each} for each in self.copies().headers]


def numbered(count: int) -> list[Sent]:
    return [{"key": b"k", "value": b"v", "headers": [("n", b"%d" % at)], "timestamp": CREATED_MS + at}
            for at in range(count)]  # fmt: skip


def test_records_far_apart_and_records_next_to_each_other_get_their_own_headers(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(4 * MOST_READ_OVER))
    wanted = [0, 1, 2, 50, 3 * MOST_READ_OVER, 3 * MOST_READ_OVER + 1, 4 * MOST_READ_OVER - 1]
    assert world.reject(reversed(wanted)) == {"bad": len(wanted)}
    copies = world.copies()
    assert sorted(copies.append_ms) == [CREATED_MS + at for at in wanted]
    for headers, time_ms in zip(copies.headers, copies.append_ms, strict=True):
        at = b"%d" % (time_ms - CREATED_MS)
        assert headers[0] == ("n", at)
        assert dict(headers)["oncebench.source_offset"] == at


def test_a_second_batch_of_the_same_worker_is_read_too(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(3))
    for at in (2, 0, 1):
        assert world.reject([at]) == {"bad": 1}
    assert [each["n"] for each in world.ours()] == [b"2", b"0", b"1"]


def test_a_record_that_was_deleted_is_copied_and_its_headers_are_reported_as_gone(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(10))
    places = [TopicPartition(world.input, 0, 5)]
    admin = kafka.admin()
    for answer in admin.delete_records(places).values():
        answer.result(LIMIT_S)
    assert world.reject([1, 4, 5]) == {"bad": 3}
    assert [each.get("original") for each in world.ours()] == [b"gone", b"gone", None]
    assert [each.get("n") for each in world.ours()] == [None, None, b"5"]
    assert world.copies().value == [b"v"] * 3


def test_a_record_of_another_topic_gets_no_headers_of_the_input(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(1))
    world.quarantine.copy(rejected([("bad", 0, 0, b"k", b"of another topic")]))
    world.quarantine.flush()
    (ours,) = world.ours()
    assert (ours["original"], "n" in ours) == (b"another record", False)
    assert world.copies().value == [b"of another topic"]


def test_positions_that_never_were_are_reported_as_gone(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(2))
    originals = Originals(world.client, LIMIT_S)
    gone = Original(missing=b"gone")
    found = originals.read(world.input, [(0, 1), (0, 2), (0, 99)])
    record = Original((("n", b"1"),), CREATED_MS + 1, content=content_of(b"k", b"v"))
    assert found == {(0, 1): record, (0, 2): gone, (0, 99): gone}
    assert originals.read(world.input, [(7, 0)]) == {(7, 0): gone}
    assert originals.read("there-is-none", [(0, 0)]) == {(0, 0): gone}


def test_records_next_to_an_aborted_transaction_are_found(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send(*numbered(2))
    producer = Producer({**world.client, "transactional.id": world.input})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    producer.produce(world.input, b"aborted", partition=0)
    producer.flush(LIMIT_S)
    producer.abort_transaction(LIMIT_S)
    world.send(*numbered(1))
    found = Originals(world.client, LIMIT_S).read(world.input, [(0, 1), (0, 3), (0, 4), (0, 5)])
    missing = [each.missing for each in found.values()]
    assert missing in ([b"", b"gone", b"", b"gone"], [b"", b"", b"gone", b"gone"])  # Kafka writes the end in its time


def test_a_silent_broker_fails_the_batch(kafka: KafkaBroker) -> None:
    del kafka
    nowhere = Originals({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, 1.0)
    with pytest.raises(DeliveryFailed, match=r"topic in: a record was rejected, and .* Check that Kafka is running"):
        nowhere.read("in", [(3, 17)])


def test_a_topic_of_a_small_limit_takes_many_records_at_once(kafka: KafkaBroker) -> None:
    """The limit holds for a batch of records, which the client would make larger."""
    world = World(kafka, **{"max.message.bytes": "2000"})
    world.send(*({"key": b"k", "value": b"v" * 1000} for _ in range(500)), {"value": b"v" * 3000})
    assert world.reject(range(501)) == {"bad": 501}
    copies, ours = world.copies(), world.ours()
    assert [len(value or b"") for value in copies.value[:500]] == [1000] * 500
    assert 1500 < len(copies.value[500] or b"") < 2000
    assert [at for at, each in enumerate(ours) if "value_bytes" in each] == [500]
    assert ours[500]["value_bytes"] == b"3000"


def test_headers_that_do_not_fit_are_dropped_and_counted(kafka: KafkaBroker) -> None:
    world = World(kafka)
    world.send({"key": b"k", "value": b"v", "headers": [("a", b"h" * 1_048_300), ("b", b"")]})
    assert world.reject([0]) == {"bad": 1}
    copies = world.copies()
    assert (copies.key, copies.value) == ([b"k"], [b"v"])
    assert world.ours()[0]["headers_dropped"] == b"2"


@pytest.mark.parametrize("readable", [True, False])
def test_a_limit_that_was_lowered_meanwhile_cuts_only_what_does_not_fit(
    kafka: KafkaBroker, readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(kafka)
    fitting = [{"key": b"k", "value": b"v" * 1000} for _ in range(50)]
    world.send({"value": b"small"}, {"key": b"k" * 100, "value": b"v" * 500_000}, *fitting)
    if not readable:
        monkeypatch.setattr(quarantine, "record_limit", lambda *_: None)
    assert world.reject([0]) == {"bad": 1}
    world.lower_limit(10_000)
    assert world.reject(range(1, 52)) == {"bad": 51}
    copies = world.copies()
    sizes = [len(value or b"") for key, value in zip(copies.key, copies.value, strict=True) if key != PROBE]
    small, *whole, cut = sorted(sizes)
    assert (small, whole) == (5, [1000] * 50)
    assert 4_000 < cut < 10_000
    assert [each["value_bytes"] for each in world.ours() if "value_bytes" in each] == [b"500000"]


def test_timestamps_that_the_topic_refuses_are_kept_in_headers_also_next_to_others(kafka: KafkaBroker) -> None:
    """Kafka's client reports no details if a broker refuses several records of one request.

    It reports neither the time nor the record.
    """
    world, tomorrow_ms = World(kafka), int(time.time() * 1000) + 86_400_000
    times = [CREATED_MS, tomorrow_ms, tomorrow_ms + 1, CREATED_MS + 3]
    world.send(*({"key": b"k", "value": b"v", "timestamp": at} for at in times))
    assert world.reject(range(4)) == {"bad": 4}
    assert sorted(int(each["source_timestamp"] or b"0") for each in world.ours()) == sorted(times)
    assert sorted(world.copies().append_ms)[:2] == [CREATED_MS, CREATED_MS + 3]


def test_a_timestamp_that_the_topic_refuses_is_kept_in_a_header(kafka: KafkaBroker) -> None:
    """Kafka refuses timestamps of more than an hour in the future, unless a topic allows them."""
    world = World(kafka)
    tomorrow_ms = round(time.time() * 1000) + 86_400_000
    world.send({"value": b"v", "timestamp": tomorrow_ms})
    assert world.reject([0]) == {"bad": 1}
    assert world.ours()[0]["source_timestamp"] == b"%d" % tomorrow_ms
    assert world.copies().append_ms[0] < tomorrow_ms
