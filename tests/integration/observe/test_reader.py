"""The committed reader against a real broker: transactions and lost records."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from oncebench.delivery.errors import ReadError
from oncebench.observe.final_read import Output, ends_json, save_quarantine, save_topic
from oncebench.record import FINAL, QUARANTINE
from oncebench.record.streams import read_stream
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.sinks.kafka.reader import SETTLE_PAUSE_S, KafkaReader
from oncebench.sinks.reader import End, ReadReport, Rows
from tests.cut_log import cut_in_half
from tests.reading import SETTLE_S
from tests.waiting import wait_for

pytestmark = pytest.mark.integration

LIMIT_S = 30.0
# Only a flush sends records, so those before it are in one batch of the log, also on a busy machine.
LINGER_MS = 10_000


@contextmanager
def transaction(kafka: KafkaBroker, name: str, *, abort: bool = False) -> Iterator[Producer]:
    """Opens a transaction; the end of the context commits or aborts it."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, "log_level": 0, "linger.ms": LINGER_MS}
    )
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    yield producer
    assert producer.flush(LIMIT_S) == 0
    if abort:
        producer.abort_transaction(LIMIT_S)
    else:
        producer.commit_transaction(LIMIT_S)


def produce(producer: Producer, topic: str, partition: int, values: range | list[str]) -> None:
    for value in values:
        producer.produce(topic, str(value), key="k", partition=partition)
    assert producer.flush(LIMIT_S) == 0


def plain(kafka: KafkaBroker) -> Producer:
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "linger.ms": LINGER_MS})


def read(
    kafka: KafkaBroker, topic: str, *, settle_s: float = 0, committed: bool = True
) -> tuple[list[str], ReadReport]:
    """Returns the values in their order, and the report."""
    values: list[str] = []
    with closing(KafkaReader(kafka.bootstrap_servers, topic)) as reader:
        report = reader.read_to_end(
            lambda rows: values.extend((value or b"").decode() for value in rows.value), settle_s=settle_s
        )
    return values, report


def test_aborted_records_and_markers_have_offsets_and_are_invisible(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic("reader", partitions=2)
    with transaction(kafka, f"{topic}-a") as producer:
        produce(producer, topic, 0, range(5))
    with transaction(kafka, f"{topic}-b", abort=True) as producer:
        produce(producer, topic, 0, range(100, 107))
        produce(producer, topic, 1, range(200, 203))
    values, report = read(kafka, topic)
    assert values == ["0", "1", "2", "3", "4"]
    # 5 records, a marker, 7 aborted records, a marker; the other partition has no visible record
    assert report.ends_json() == {"0": {"low": 0, "lso": 14, "hw": 14}, "1": {"low": 0, "lso": 4, "hw": 4}}
    assert report.complete


def test_an_empty_topic_is_read_completely(kafka: KafkaBroker) -> None:
    values, report = read(kafka, kafka.fresh_topic("reader", partitions=3))
    assert (values, report.complete, len(report.ends)) == ([], True, 3)


def test_an_open_transaction_hides_later_records(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic("reader", partitions=1)
    produce(plain(kafka), topic, 0, ["first"])
    with transaction(kafka, f"{topic}-open") as producer:
        produce(producer, topic, 0, ["hidden"])
        produce(plain(kafka), topic, 0, ["above"])
        values, report = read(kafka, topic, settle_s=0.3)
        assert values == ["first"]
        assert report.ends_json() == {"0": {"low": 0, "lso": 1, "hw": 3}}
        assert report.waited_s >= 0.3
        assert report.complete  # everything that a committed reader can get; the audit reports STALL-LSO
    values, report = read(kafka, topic, settle_s=LIMIT_S)
    assert values == ["first", "hidden", "above"]
    assert report.ends_json() == {"0": {"low": 0, "lso": 4, "hw": 4}}


def test_the_reader_waits_for_an_open_transaction_to_end(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = kafka.fresh_topic("reader", partitions=1)
    asked: queue.Queue[None] = queue.Queue()
    sound = KafkaReader.ends

    def ends(reader: KafkaReader) -> dict[int, End]:
        asked.put(None)
        return sound(reader)

    monkeypatch.setattr(KafkaReader, "ends", ends)
    with transaction(kafka, f"{topic}-open") as producer:
        produce(producer, topic, 0, ["late"])
        found: list[tuple[list[str], ReadReport]] = []
        thread = threading.Thread(target=lambda: found.append(read(kafka, topic, settle_s=LIMIT_S)))
        thread.start()
        for _ in range(3):  # it asks again, so it waits
            asked.get(timeout=LIMIT_S)
        assert not found
    thread.join(LIMIT_S)
    assert found[0][0] == ["late"]
    assert 2 * SETTLE_PAUSE_S < found[0][1].waited_s < LIMIT_S


def test_records_appended_during_the_read_are_not_read(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic("reader", partitions=1)
    produce(plain(kafka), topic, 0, range(10))
    with closing(KafkaReader(kafka.bootstrap_servers, topic)) as reader:
        taken: list[int] = []

        def take(rows: Rows) -> None:
            taken.extend(rows.offset)

        ends, waited_s = reader._settled(0)
        produce(plain(kafka), topic, 0, range(10, 20))
        reader._settled = lambda limit_s: (ends, waited_s)  # type: ignore[method-assign]
        assert reader.read_to_end(take, settle_s=0).complete
    assert taken == list(range(10))


def test_a_log_without_its_beginning_is_incomplete(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic("reader", partitions=2)
    produce(plain(kafka), topic, 0, range(10))
    produce(plain(kafka), topic, 1, range(10, 14))
    gone = [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 4)]
    admin = kafka.admin()  # keeps the client open until its answers have come
    for answer in admin.delete_records(gone).values():
        answer.result(LIMIT_S)
    with closing(KafkaReader(kafka.bootstrap_servers, topic)) as reader:
        report = save_topic(reader, tmp_path / "final.arrow", settle_s=SETTLE_S)
    assert not report.complete
    assert "partition 0 begins at 4, partition 1 begins at 4" in report.note
    stream = read_stream(tmp_path / "final.arrow", FINAL)
    assert stream.table["offset"].to_pylist() == [4, 5, 6, 7, 8, 9]
    assert not stream.complete


def test_a_broker_that_dies_makes_the_read_incomplete(kafka_own: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka_own.fresh_topic("reader", partitions=1)
    produce(plain(kafka_own), topic, 0, range(10))
    with closing(KafkaReader(kafka_own.bootstrap_servers, topic)) as reader:
        kafka_own.kill()
        # The client may have fetched all ten records before the kill, so the end is an eleventh that never comes.
        ends = {0: End(low=0, lso=11, hw=11)}
        reader._settled = lambda limit_s: (ends, 0.0)  # type: ignore[method-assign]
        report = save_topic(reader, tmp_path / "final.arrow", settle_s=SETTLE_S, idle_s=1.0)
    assert not report.complete
    assert "nothing came for 1 s, partition 0 read up to" in report.note
    assert not read_stream(tmp_path / "final.arrow", FINAL).complete


def test_a_missing_topic_is_an_error_and_is_not_created(kafka: KafkaBroker) -> None:
    with pytest.raises(ReadError, match=r"nowhere.*was not found within 1 s"):
        KafkaReader(kafka.bootstrap_servers, "nowhere", start_s=0.6)
    assert "nowhere" not in kafka.admin().list_topics(timeout=LIMIT_S).topics


def test_a_missing_broker_is_an_error_in_time() -> None:
    start = time.monotonic()
    with pytest.raises(ReadError, match="Check the address"):
        KafkaReader("127.0.0.1:1", "any", start_s=0.5)
    assert time.monotonic() - start < 10


def test_a_reader_leaves_no_group_and_no_offset(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic("reader", partitions=1)
    produce(plain(kafka), topic, 0, range(3))
    admin = kafka.admin()  # keeps the client open until its answers have come

    def groups() -> set[str]:
        found = admin.list_consumer_groups(request_timeout=LIMIT_S).result(LIMIT_S)
        return {group.group_id for group in found.valid}

    before = groups()
    assert len(read(kafka, topic)[0]) == 3
    assert groups() <= before


def test_a_saved_topic_keeps_keys_values_nulls_and_times(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic("reader", partitions=1)
    producer = plain(kafka)
    records = [(b"k", b"v"), (None, b"\xff\x00"), (b"\xff", None), (b"", b"")]
    for at, (key, value) in enumerate(records):
        producer.produce(topic, value, key=key, partition=0, timestamp=1_700_000_000_000 + at)
    assert producer.flush(LIMIT_S) == 0
    with closing(KafkaReader(kafka.bootstrap_servers, topic)) as reader:
        report = save_topic(reader, tmp_path / "input.arrow", settle_s=SETTLE_S)
    table = read_stream(tmp_path / "input.arrow", FINAL).table
    assert list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == records
    assert table["timestamp_ms"].to_pylist() == [1_700_000_000_000 + at for at in range(4)]
    assert json.loads(json.dumps(ends_json(Output(report), report))) == {
        "output": {"0": {"low": 0, "lso": 4, "hw": 4}},
        "output_is_log": True,
        "batches_at_once": False,
        "stamped": False,
        "leftovers": [],
        "input": {"0": {"low": 0, "lso": 4, "hw": 4}},
        "waited_s": 2 * report.waited_s,
        "final_complete": True,
        "notes": [],
    }


def test_a_saved_quarantine_keeps_our_headers_and_ignores_those_of_a_sender(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic("quarantine", partitions=1)
    producer = plain(kafka)
    good = {"reason": b"not-json", "source_topic": b"in", "source_partition": b"3", "source_offset": b"123456789012"}
    theirs = {"reason": b"theirs", "source_partition": b"4", "key_bytes": b"5"}
    cases: list[list[dict[str, bytes | None]]] = [
        [theirs, good],
        [],
        [{**good, "source_partition": b"-1", "source_offset": b"x"}],
        [{**good, "reason": None, "source_partition": b"9" * 100, "source_offset": b""}],
        [{**good, "value_bytes": b"77"}],
    ]
    for case in cases:
        headers = [(f"oncebench.{name}", value) for each in case for name, value in each.items()]
        producer.produce(topic, b"{", key=b"k", partition=0, headers=headers or None)
    assert producer.flush(LIMIT_S) == 0
    with closing(KafkaReader(kafka.bootstrap_servers, topic)) as reader:
        assert save_quarantine(reader, tmp_path / "quarantine.arrow", settle_s=SETTLE_S).complete
    table = read_stream(tmp_path / "quarantine.arrow", QUARANTINE).table
    assert table["reason"].to_pylist() == ["not-json", None, "not-json", None, "not-json"]
    assert table["source_partition"].to_pylist() == [3, None, None, None, 3]
    assert table["source_offset"].to_pylist() == [123_456_789_012, None, None, None, 123_456_789_012]
    assert table["key_bytes"].to_pylist() == [None] * 5
    assert table["value_bytes"].to_pylist() == [None] * 4 + [77]


def test_a_reader_continues_where_a_log_was_cut(kafka_own: KafkaBroker) -> None:
    topic = kafka_own.fresh_topic("reader", partitions=1)
    seen: list[tuple[int, str]] = []

    def look(reader: KafkaReader) -> list[tuple[int, str]]:
        rows = reader.poll(0.2)
        seen.extend(zip(rows.offset, ((value or b"").decode() for value in rows.value), strict=True))
        return seen

    with closing(KafkaReader(kafka_own.bootstrap_servers, topic)) as reader:
        for batch in ("ab", "cd"):  # two record batches: the cut leaves the first one
            produce(plain(kafka_own), topic, 0, list(batch))
        wait_for("the four rows", lambda: len(look(reader)) == 4)
        cut_in_half(kafka_own, topic, 0)
        produce(plain(kafka_own), topic, 0, ["x"])
        wait_for("the row after the cut", lambda: len(look(reader)) == 5)
    assert seen == [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (2, "x")]
