"""The log of a real broker has the records that a consumer does not get, and their writers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from oncebench.audit.python.audit import audit
from oncebench.audit.python.log import is_hanging
from oncebench.observe.final_read import save_log, save_topic
from oncebench.record import FINAL, LOG
from oncebench.record.streams import read_stream
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.sinks.kafka import log as kafka_log
from oncebench.sinks.kafka.log import KafkaLog
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.reader import End
from tests.integration.observe.test_reader import LIMIT_S, plain, produce, transaction
from tests.reading import SETTLE_S
from tests.unit.audit.audit_world import make_record, make_world

pytestmark = pytest.mark.integration


def test_every_stretch_is_told_with_its_writer_its_generation_and_how_its_transaction_ended(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_log, "FETCH_BYTES", 100)  # one batch an answer: the read has to go on where it stopped
    topic = kafka.fresh_topic("log", partitions=2)
    with transaction(kafka, f"{topic}.txn.g3.1.a") as producer:
        produce(producer, topic, 0, range(5))
    with transaction(kafka, f"{topic}.txn.g4.1.b", abort=True) as producer:
        produce(producer, topic, 0, range(7))
        produce(producer, topic, 1, range(3))
    with transaction(kafka, "a-stranger") as producer:
        produce(producer, topic, 0, range(1))
    produce(plain(kafka), topic, 0, range(2))
    produce(plain(kafka), topic, 0, ["beyond the end"])
    with closing(KafkaLog(kafka.access.client, topic, topic)) as log:
        report = save_log(log, tmp_path / "log.arrow", {0: End(0, 18, 18), 1: End(0, 4, 4)})
    assert report.complete, report.note
    stream = read_stream(tmp_path / "log.arrow", LOG)
    assert stream.complete
    names = ("partition", "offset", "last_offset", "records", "generation", "transactional", "marker")
    assert list(zip(*(stream.table[name].to_pylist() for name in names), strict=True)) == [
        (0, 0, 4, 5, 3, True, None),
        (0, 5, 5, 1, 3, True, "commit"),
        (0, 6, 12, 7, 4, True, None),
        (0, 13, 13, 1, 4, True, "abort"),
        (0, 14, 14, 1, None, True, None),
        (0, 15, 15, 1, None, True, "commit"),
        (0, 16, 17, 2, None, False, None),
        (1, 0, 2, 3, 4, True, None),
        (1, 3, 3, 1, 4, True, "abort"),
    ]
    writers = stream.table["producer"].to_pylist()
    assert writers[6] == -1
    assert writers[2] == writers[3] == writers[7]
    assert len(set(writers)) == 4


def test_a_log_that_cannot_be_read_is_told_and_its_file_is_not_closed(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic("log", partitions=1)
    produce(plain(kafka), topic, 0, range(2))
    with closing(KafkaLog(kafka.access.client, topic, topic)) as log:
        report = save_log(log, tmp_path / "log.arrow", {0: End(0, 3, 3)}, idle_s=0.5)
    assert not report.complete
    assert f"the log of topic {topic}" in report.note
    assert "partition 0 from 2 could not be read within 0.5 s" in report.note
    stream = read_stream(tmp_path / "log.arrow", LOG)
    assert (stream.complete, stream.table["last_offset"].to_pylist()) == (False, [1])


def test_a_transaction_that_is_open_is_told_with_what_its_coordinator_knows_of_it(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic("log", partitions=2)
    produce(plain(kafka), topic, 0, range(2))
    with transaction(kafka, f"{topic}.txn.g1.1.a") as producer:
        produce(producer, topic, 0, range(3))
        with closing(KafkaLog(kafka.access.client, topic, topic)) as log:
            report = save_log(log, tmp_path / "log.arrow", {0: End(0, 2, 5), 1: End(0, 0, 0)})
    assert report.complete, report.note
    assert len(report.open) == 1
    told = report.open[0]
    assert (told.partition, told.offset, told.transactional_id) == (0, 2, f"{topic}.txn.g1.1.a")
    assert (told.state, told.here, told.timeout_ms) == ("Ongoing", True, 60_000)
    assert 0 <= told.asked_ms - told.started_ms < 60_000
    assert not is_hanging(asdict(told))
    with closing(KafkaLog(kafka.access.client, topic, topic)) as log:
        assert log.open_transactions([0, 1], idle_s=5.0) == []


def test_a_writer_that_goes_on_behind_its_successor_is_found_in_a_real_log(kafka: KafkaBroker, tmp_path: Path) -> None:
    world = make_world(2, 1)
    topic = kafka.fresh_topic("log", partitions=1)

    def write(producer: Producer, first: int, end: int) -> None:
        for row in world.rows[first:end]:
            producer.produce(topic, row.value, key=row.key, partition=0)
        assert producer.flush(LIMIT_S) == 0

    with transaction(kafka, f"{topic}.txn.g1.1.a") as older:
        write(older, 0, 10)
        with transaction(kafka, f"{topic}.txn.g2.2.b") as younger:
            write(younger, 10, 30)
        with transaction(kafka, f"{topic}.txn.g2.2.c", abort=True) as aborted:
            write(aborted, 30, 33)
        write(older, 30, 40)
    with closing(KafkaReader(kafka.bootstrap_servers, topic)) as reader:
        report = save_topic(reader, tmp_path / "final.arrow", settle_s=SETTLE_S)
    with closing(KafkaLog(kafka.access.client, topic, topic)) as log:
        assert save_log(log, tmp_path / "log.arrow", report.ends).complete
    record = replace(
        make_record(world),
        final=read_stream(tmp_path / "final.arrow", FINAL),
        log=read_stream(tmp_path / "log.arrow", LOG),
        ends={"output": report.ends_json(), "final_complete": True},
    )
    findings = audit(record)
    assert findings.counts() == {"STALE": 10, "EXPO": 3}
    assert findings.anomalies["EXPO"].split["aborted"] == 3
    assert findings.anomalies["STALE"].examples[0]["id"] == "b-00000001:10"
