"""Kafka Streams writes the pipeline's rows exactly once after a kill -9."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.lab.lab import Lab
from oncebench.measure import measure
from oncebench.scenario.cell import Cell
from oncebench.workdir import open_work_dir
from peers.kafka_streams.engine import kafka_streams

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
