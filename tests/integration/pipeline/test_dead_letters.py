"""A record that is set aside can be sent again.

Its copy has the original's headers and timestamp, and always fits.
"""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Producer

from oncebench.audit.python.inputs import judge_quarantine
from oncebench.observe.final_read import save_quarantine, save_topic
from oncebench.record import INPUT, QUARANTINE
from oncebench.record.streams import read_stream
from oncebench.sinks.kafka.reader import KafkaReader
from tests.pipelines import Fixture, event, every_row, position, session
from tests.reading import SETTLE_S
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]

CREATED_MS = 1_700_000_000_000
MOST = 20_000_000
SENT: list[tuple[str, bytes | None]] = [
    ("traceparent", b"00-ab-cd-01"),
    ("content-type", b"application/avro"),
    ("traceparent", b"00-second"),
    ("empty", None),
    ("reason", b"of the sender"),
    ("oncebench.reason", b"of the sender too"),
]


def run(fixture: Fixture, **changes: object) -> None:
    with fixture.pipeline(fixture.config("exactly-once", "two-phase", **changes)) as pipeline:
        pipeline.start()
        ends = fixture.input_ends()
        wait_for("the pipeline to catch up", lambda: position(fixture.folder / "record") == ends, [pipeline])
        pipeline.stop()
    assert pipeline.restarts == 0


def quarantine_faults(fixture: Fixture, topic: str) -> int:
    """What the Python auditor says about the copies in `topic`."""
    servers = fixture.lab.kafka.bootstrap_servers
    expected = fixture.expected()
    with closing(KafkaReader(servers, topic)) as reader:
        assert save_quarantine(reader, fixture.folder / "quarantine.arrow", settle_s=SETTLE_S).complete
    with closing(KafkaReader(servers, fixture.input)) as reader:
        assert save_topic(reader, fixture.folder / "input.arrow", settle_s=SETTLE_S).complete
    copies = read_stream(fixture.folder / "quarantine.arrow", QUARANTINE)
    source = read_stream(fixture.folder / "input.arrow", INPUT)
    return judge_quarantine(copies, expected, source).faults.count


@pytest.mark.slow
def test_a_copy_has_every_header_and_the_timestamp_of_its_original(fixture: Fixture) -> None:
    fixture.send(session("h-1"))
    producer = Producer({"bootstrap.servers": fixture.lab.kafka.bootstrap_servers})
    bad = {
        b"not-json": b"not json",
        b"after-end": event("h-1", 5, "entry_event", 5),  # found by the operator, after the shuffle
    }
    for value in bad.values():
        producer.produce(fixture.input, value, b"h-1", partition=1, headers=SENT, timestamp=CREATED_MS)
    assert producer.flush(30) == 0
    run(fixture)
    copies = fixture.rows(fixture.quarantine)
    assert sorted(value or b"" for value in copies.value) == sorted(bad.values())
    assert copies.append_ms == [CREATED_MS] * 2
    for headers, value in zip(copies.headers, copies.value, strict=True):
        assert list(headers[: len(SENT)]) == SENT
        ours = dict(headers)
        assert bad[ours["oncebench.reason"] or b""] == value
        assert ours["oncebench.source_topic"] == fixture.input.encode()
        assert ours["oncebench.source_partition"] == b"1"
        assert ours["oncebench.source_timestamp"] == b"%d" % CREATED_MS
        assert "oncebench.key_bytes" not in ours
    assert quarantine_faults(fixture, fixture.quarantine) == 0


@pytest.mark.slow  # `test_hostile_input` sets records aside that fit
def test_a_record_that_does_not_fit_is_cut_and_the_batch_goes_on(fixture: Fixture) -> None:
    """The quarantine topic has Kafka's default limit, 1,048,588 bytes."""
    kafka = fixture.lab.kafka
    topics = {"input_topic": kafka.fresh_topic("in", 2, {"max.message.bytes": str(MOST)}),
              "quarantine_topic": kafka.fresh_topic("bad", 1)}  # fmt: skip
    fixture.input = topics["input_topic"]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.max.bytes": MOST})
    large = [(b"k" * 1_048_450, b"x"), (b"short", b"v" * 9_000_000), (b"k" * 700_000, b"v" * 700_000)]
    for key, value in large:
        producer.produce(fixture.input, value, key, partition=0)
    for key, value in session("c-1"):
        producer.produce(fixture.input, value, key, partition=0)
    assert producer.flush(30) == 0
    run(fixture, **topics)
    assert fixture.visible() == every_row("c-1")
    copies = fixture.rows(topics["quarantine_topic"])
    found = {}
    for key, value, headers in zip(copies.key, copies.value, copies.headers, strict=True):
        ours = dict(headers)
        original = large[int(ours["oncebench.source_offset"] or b"")]
        assert original[0].startswith(key or b"") and original[1].startswith(value or b"")
        assert len(key or b"") + len(value or b"") > 1_048_000, "as much as fits"
        found[original] = ours.get("oncebench.key_bytes"), ours.get("oncebench.value_bytes")
    assert found == {
        large[0]: (b"1048450", None),
        large[1]: (None, b"9000000"),
        large[2]: (b"700000", b"700000"),
    }
    assert quarantine_faults(fixture, topics["quarantine_topic"]) == 0
