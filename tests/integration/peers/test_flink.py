"""Flink writes the pipeline's rows and rejected records, and exactly once after a kill -9."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.lab.lab import Lab
from oncebench.measure import measure
from oncebench.scenario.cell import Cell
from oncebench.workdir import open_work_dir
from peers.flink.engine import flink
from tests.integration.pipeline.test_hostile_input import HOSTILE, not_events
from tests.pipelines import Fixture, every_row, position, session, wait_for

pytestmark = [pytest.mark.integration]

CELL = Cell("kafka", EXACTLY_ONCE, "flink-rocksdb-200ms", rate=600.0, sessions=90, warmup_s=0.0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_exactly_once_is_kept_after_a_kill(lab: Lab, tmp_path: Path) -> None:
    cell = replace(CELL, random_kills=1)
    with open_work_dir(tmp_path / "run") as work:
        report = measure(cell, lab, work.path, engine=flink(cell, lab.java))
    assert (report["verdict"], report["rows"]["lost"], report["rows"]["duplicated"]) == ("kept", 0, 0), report[
        "reasons"
    ]
    assert report["auditors"]["agree"]
    assert [fault["fault"] for fault in report["faults"]] == ["random:kill"]
    assert report["batches"]["n"] is None and report["checkpoint"]["share_of_batch"] is None
    assert report["environment"]["engine"]["settings"]["flink"]["state.backend.type"] == "rocksdb"
    assert "flink_jvm" in report["resources"] and "master" not in report["config"]
    log = (tmp_path / "run" / "logs" / "pipeline.log").read_text()
    assert log.count("continues from the beginning") <= 1 and "continues from /" in log


@pytest.mark.timeout(600)
def test_what_is_no_event_is_rejected_with_the_reason_that_the_pipeline_gives(fixture: Fixture) -> None:
    fixture.send(not_events("s-1"))
    fixture.send(session("s-1"))
    fixture.send(session("s-1")[:3])  # after the end
    fixture.send([*session("s-2")[:10], *session("s-2")[4:6], *session("s-2")[10:]])  # repeated
    for key in HOSTILE:
        fixture.send(session(key))
    config = fixture.config(EXACTLY_ONCE, CELL.variant)
    with fixture.pipeline(config, flink(CELL, fixture.lab.java)) as pipeline:
        pipeline.start()
        ends = fixture.input_ends()
        wait_for("Flink to catch up", lambda: position(config.record) == ends, [pipeline])
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
