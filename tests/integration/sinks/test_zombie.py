"""A driver that was taken for dead continues beside its successor.

The tests show what stops it, and what happens without that.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.lab.lab import Lab
from oncebench.measure import measure
from oncebench.record.json_lines import read_lines
from oncebench.scenario.cell import Cell
from oncebench.workdir import open_work_dir

pytestmark = [pytest.mark.integration, pytest.mark.spark]

# Batches are limited, so that there are enough of them for the fault to find its own, however long each takes.
SMALL = Cell("", EXACTLY_ONCE, "", rate=1000.0, sessions=100, max_events_per_batch=1000, warmup_s=0.0)


@pytest.mark.slow  # `test_sinks` starts two copies at once, and `test_kafka_sink` fences writers
@pytest.mark.timeout(900)  # three starts of Spark
@pytest.mark.parametrize(
    ("sink", "variant", "stopped_at", "fenced"),
    [
        ("kafka", "two-phase", "after-prepare", True),
        ("kafka", "idempotent", "after-prepare", True),
        # It prepares nothing: this is before its commit.
        ("delta", "idempotent", "before-prepare", True),
        ("broken-kafka", "no-fencing", "after-prepare", False),
    ],
)
def test_a_zombie_neither_doubles_nor_loses_and_says_why_it_dies_unless_nothing_fences_it(
    lab: Lab, tmp_path: Path, sink: str, variant: str, stopped_at: str, fenced: bool
) -> None:
    with open_work_dir(tmp_path / "run") as work:
        cell = replace(SMALL, sink=sink, variant=variant, faults=(f"{stopped_at}:zombie",))
        report = measure(cell, lab, work.path)
    ended = [line for line in read_lines(tmp_path / "run" / "timeline.jsonl").items if line["event"] == "zombie-ended"]
    assert len(ended) == 1
    assert [fault["hit"] for fault in report["faults"]] == [True]
    assert report["deaths"]["unasked"] == 0
    if fenced:
        counts = report["rows"]["lost"], report["rows"]["duplicated"]
        assert (report["verdict"], *counts) == ("kept", 0, 0), (report["reasons"], report["anomalies"])
        assert "another driver was started on this checkpoint" in ended[0]["why"]
    else:
        assert (report["verdict"], "DUP" in report["broken_by"]) == ("broken", True), report["anomalies"]
        # What its tasks wrote after they were continued stands behind the successor's rows; what waited to be committed
        # stands before them.
        assert set(report["broken_by"]) <= {"DUP", "STALE"}
    if sink == "delta":
        words = (tmp_path / "run" / "logs" / "pipeline.log").read_text()
        assert "ConcurrentTransactionException" in words, "Delta itself refused the late commit"
