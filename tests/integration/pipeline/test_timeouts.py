"""A session leaves the state only after a pause.

It does not leave because other records are newer, or because of an outage.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
from confluent_kafka import Producer

from oncebench.record.json_lines import read_lines
from tests.kafka_topics import configure
from tests.pipelines import Fixture, every_row, position, session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]

SESSIONS = 50
DAY_MS = 86_400_000


def send_interleaved(fixture: Fixture, partition: int, names: list[str], first_ms: int, span_ms: int) -> None:
    """Sends seq 0 of all sessions, then seq 1 of all.

    The records' times are spread over `span_ms`.
    """
    producer = Producer({"bootstrap.servers": fixture.lab.kafka.bootstrap_servers})
    rounds = list(zip(*map(session, names), strict=True))
    records = [record for each in rounds for record in each]
    for at, (key, value) in enumerate(records):
        stamp = first_ms + span_ms * at // len(records)
        producer.produce(fixture.input, key=key, value=value, partition=partition, timestamp=stamp)
        producer.poll(0)
    assert producer.flush(60) == 0


def reasons(fixture: Fixture) -> Counter[bytes | None]:
    return Counter(value for headers in fixture.rows(fixture.quarantine).headers for name, value in headers
                   if name.endswith("reason"))  # fmt: skip


def take_records_of_any_time(fixture: Fixture) -> None:
    """Kafka 4 refuses records that are more than an hour ahead.

    Topics that were made before take them.
    """
    configure(fixture.lab.kafka.admin(), fixture.input, {"message.timestamp.after.max.ms": 2**63 - 1})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ahead_ms", "span_ms"),
    [(0, DAY_MS), (3650 * DAY_MS, 0)],
    ids=["a day within minutes", "ten years ahead"],
)
def test_a_first_start_on_partitions_of_different_age_loses_no_session(
    fixture: Fixture, ahead_ms: int, span_ms: int
) -> None:
    take_records_of_any_time(fixture)
    now_ms = time.time_ns() // 1_000_000 + ahead_ms
    old, new = ([f"{age}-{number}" for number in range(SESSIONS)] for age in ("old", "new"))
    send_interleaved(fixture, 0, old, now_ms - ahead_ms - 3 * DAY_MS, 1000)
    send_interleaved(fixture, 1, new, now_ms - span_ms, span_ms)
    config = fixture.config("exactly-once", "two-phase", max_events_per_batch=60)
    with fixture.pipeline(config) as pipeline:  # 30 of the 50 sessions of a partition have an event in a batch
        pipeline.start()
        wait_for("some batches", lambda: sum(position(config.record).values()) >= 600, [pipeline])
        pipeline.stop()
    config = fixture.config("exactly-once", "two-phase")
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        wait_for("the rest", lambda: position(config.record) == fixture.input_ends(), [pipeline])
        pipeline.stop()
    assert reasons(fixture) == {}
    assert fixture.visible() == every_row(*old, *new)


@pytest.mark.slow
def test_a_session_that_pauses_for_long_is_set_aside_and_its_tombstone_is_forgotten(fixture: Fixture) -> None:
    config = fixture.config("exactly-once", "two-phase", session_timeout_ms=1500)
    fixture.send([*session("whole"), *session("pauses")[:50]])
    others = 0
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        deadline = time.monotonic() + 100
        while not reasons(fixture) and time.monotonic() < deadline:  # time passes while batches are planned
            fixture.send(session(f"other-{others}"))
            others += 1
            wait_for("a batch", lambda: position(config.record) == fixture.input_ends(), [pipeline])
        assert reasons(fixture) == {b"never-ended": 1}
        fixture.send([*session("pauses")[50:], *session("whole")[:3]])
        wait_for("the rest", lambda: position(config.record) == fixture.input_ends(), [pipeline])
        pipeline.stop()
    assert pipeline.restarts == 0
    assert fixture.visible() == every_row("whole", *(f"other-{number}" for number in range(others)))
    assert reasons(fixture) == {b"never-ended": 1}
    lines = [line for line in read_lines(config.record / "progress.jsonl").items if line["kind"] == "sink"]
    assert sum(line["quarantined"].get("never-ended", 0) for line in lines) == 1
