"""Kafka Streams writes the pipeline's rows exactly once after a kill -9.

It forgets old sessions.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.lab.lab import Lab
from oncebench.measure import measure
from oncebench.scenario.cell import Cell
from oncebench.workdir import open_work_dir
from peers.kafka_streams.engine import kafka_streams
from tests.pipelines import Fixture, every_row, position, session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration]

CELL = Cell(
    "kafka", EXACTLY_ONCE, "streams-rocksdb-200ms", rate=600.0, sessions=90, warmup_s=0.0, random_kills=1,
    transaction_timeout_ms=10_000,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_exactly_once_is_kept_after_a_kill(lab: Lab, tmp_path: Path) -> None:
    with open_work_dir(tmp_path / "run") as work:
        report = measure(CELL, lab, work.path, engine=kafka_streams(CELL, lab.java))
    assert (report["verdict"], report["rows"]["lost"], report["rows"]["duplicated"]) == ("kept", 0, 0), report[
        "reasons"
    ]
    assert report["auditors"]["agree"]
    assert [fault["fault"] for fault in report["faults"]] == ["random:kill"]
    assert report["environment"]["engine"]["settings"]["streams"]["processing.guarantee"] == "exactly_once_v2"
    assert "streams_jvm" in report["resources"] and "master" not in report["config"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_session_that_never_ends_is_rejected_after_its_time_out(fixture: Fixture) -> None:
    producer = Producer({"bootstrap.servers": fixture.lab.kafka.bootstrap_servers})
    now_ms = time.time_ns() // 1_000_000
    minute_ago = [(record, now_ms - 60_000) for record in [*session("s-1")[:3], *session("s-2")]]
    for (key, value), stamp in [*minute_ago, *((record, now_ms) for record in session("s-3"))]:
        producer.produce(fixture.input, key=key, value=value, partition=0, timestamp=stamp)
    assert producer.flush(60) == 0
    # Longer than the 0 s between the events of a session here, and shorter than the minute less the 10 s of delay.
    config = fixture.config(EXACTLY_ONCE, CELL.variant, session_timeout_ms=20_000)
    ends = fixture.input_ends()
    with fixture.pipeline(config, kafka_streams(replace(CELL, random_kills=0), fixture.lab.java)) as pipeline:
        pipeline.start()
        wait_for("the job to catch up", lambda: position(config.record).get("0") == ends["0"], [pipeline])
        pipeline.stop()
    assert fixture.visible() == every_row("s-2", "s-3")
    copies = fixture.rows(fixture.quarantine)
    reasons = Counter(dict(headers)["oncebench.reason"] for headers in copies.headers)
    assert reasons == {b"never-ended": 1}  # the tombstone of s-2 leaves without a copy
    assert (copies.key, copies.value) == ([b"s-1"], [b'{"values": {"0": 0, "1": 1, "2": 2}}'])
