"""Whole runs of the workload `windows`, healthy and killed.

Late events stay out, and each guarantee is kept.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebench.lab.lab import Lab
from oncebench.measure import measure
from oncebench.record.json_lines import read_lines
from oncebench.record.schema import Progress
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell
from oncebench.workdir import open_work_dir
from pipeline.config import WINDOWS

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SESSIONS = 60  # six of them have a late event


def run(lab: Lab, folder: Path, sink: str, guarantee: str, variant: str, *faults: str) -> Report:
    cell = Cell(sink, guarantee, variant, faults, workload=WINDOWS, rate=300.0, sessions=SESSIONS, warmup_s=0.0)
    with open_work_dir(folder) as work:
        report = measure(cell, lab, work.path)
    assert (report["verdict"], report["reasons"]) == ("kept", [])
    assert report["auditors"]["agree"]
    assert report["events"]["late"] == SESSIONS / 10
    return report


@pytest.mark.parametrize("sink", ["kafka", "files-jsonl"])
def test_spark_drops_exactly_the_late_events(lab: Lab, tmp_path: Path, sink: str) -> None:
    report = run(lab, tmp_path / "run", sink, "exactly-once", "two-phase")
    assert report["anomalies"] == {}
    lines = read_lines(tmp_path / "run" / "progress.jsonl", Progress).items
    states = [state for line in lines if line["kind"] == "batch" for state in line["state"]]
    assert sum(state["numRowsDroppedByWatermark"] for state in states) == SESSIONS / 10


def test_a_killed_pipeline_returns_each_window_once_under_exactly_once(lab: Lab, tmp_path: Path) -> None:
    report = run(lab, tmp_path / "run", "kafka", "exactly-once", "two-phase", "after-prepare:kill")
    assert (report["rows"]["lost"], report["rows"]["duplicated"]) == (0, 0)


def test_a_killed_pipeline_repeats_windows_under_at_least_once(lab: Lab, tmp_path: Path) -> None:
    report = run(lab, tmp_path / "run", "kafka", "at-least-once", "acknowledged", "after-commit:kill")
    assert report["rows"]["lost"] == 0
    assert report["rows"]["duplicated"] > 0
