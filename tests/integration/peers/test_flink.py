"""Flink writes the pipeline's rows exactly once after a kill -9."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.lab.lab import Lab
from oncebench.measure import measure
from oncebench.scenario.cell import Cell
from oncebench.workdir import open_work_dir
from peers.flink.engine import flink

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
