"""Peers write the pipeline's rows, and reject what the pipeline rejects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.downloads.java import Java
from oncebench.lab.engine import Engine
from oncebench.scenario.cell import Cell
from peers.flink.engine import flink
from peers.kafka_streams.engine import kafka_streams
from tests.integration.pipeline.test_hostile_input import HOSTILE, not_events
from tests.pipelines import Fixture, every_row, position, session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration]


@pytest.mark.parametrize(
    ("peer", "variant"),
    [
        pytest.param(flink, "flink-rocksdb-200ms", id="flink"),
        pytest.param(kafka_streams, "streams-memory-200ms", id="kafka-streams", marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(600)
def test_what_is_no_event_is_rejected_with_the_reason_that_the_pipeline_gives(
    peer: Callable[[Cell, Java], Engine], variant: str, fixture: Fixture
) -> None:
    fixture.send(not_events("s-1"))
    fixture.send(session("s-1"))
    fixture.send(session("s-1")[:3])  # after the end
    fixture.send([*session("s-2")[:10], *session("s-2")[4:6], *session("s-2")[10:]])  # repeated
    for key in HOSTILE:
        fixture.send(session(key))
    cell = Cell("kafka", EXACTLY_ONCE, variant)
    config = fixture.config(EXACTLY_ONCE, variant)
    with fixture.pipeline(config, peer(cell, fixture.lab.java)) as pipeline:
        pipeline.start()
        ends = fixture.input_ends()
        wait_for("the peer to catch up", lambda: position(config.record) == ends, [pipeline])
        pipeline.stop()
    assert pipeline.restarts == 0
    assert fixture.visible() == every_row("s-1", "s-2", *HOSTILE)
    rows = fixture.rows()
    assert all(value == _as_our_sink_writes(value) for value in rows.value)
    assert {key.decode() for key in rows.key if key} == {"s-1", "s-2", *HOSTILE}
    quarantine = fixture.rows(fixture.quarantine)
    reasons = Counter(dict(headers)["oncebench.reason"].decode() for headers in quarantine.headers)
    assert reasons == fixture.expected().invalid.counts()
    ours = {f"oncebench.source_{name}" for name in ("topic", "partition", "offset")}
    assert all(ours <= dict(headers).keys() for headers in quarantine.headers)


def _as_our_sink_writes(value: bytes | None) -> bytes:
    """Returns the JSON of `oncebench.sinks.records.row_as_json`.

    It has these fields in this order, without spaces.
    """
    row = json.loads(value or b"{}")
    names = ("session_key", "j", "events", "total", "checksum", "ended_at")
    return json.dumps({name: row[name] for name in names}, ensure_ascii=False, separators=(",", ":")).encode()
