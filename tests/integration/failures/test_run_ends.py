"""A run whose pipeline ends for good stops at once, and quotes the pipeline.

The run leaves a report if the load had begun.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oncebench.lab.lab import Lab
from oncebench.measure import measure
from oncebench.processes.child import Child
from oncebench.record.json_lines import read_lines
from oncebench.scenario.cell import Cell
from oncebench.workdir import open_work_dir
from tests.kafka_topics import configure

pytestmark = [pytest.mark.integration, pytest.mark.spark]
LONG = Cell("kafka", "exactly-once", "two-phase", rate=200.0, sessions=240, warmup_s=0.0)  # two minutes of load


def shrunk(lab: Lab, folder: Path) -> Callable[[Child], None]:
    """Makes the output topic too small for every row, once the load runs."""
    done: list[float] = []

    def shrink(_pipeline: Child) -> None:
        if done or not (folder / "ledger" / "plan.json").exists():
            return
        done.append(time.monotonic())
        topic = json.loads((folder / "cell.json").read_text())["topics"]["output"]
        configure(lab.kafka.admin(), topic, {"max.message.bytes": 60})

    return shrink


@pytest.mark.slow
def test_a_run_whose_pipeline_ends_for_good_during_the_load_is_reported(lab: Lab, tmp_path: Path) -> None:
    with open_work_dir(tmp_path / "run") as folder:
        report = measure(LONG, lab, folder.path, during=shrunk(lab, folder.path))
        timeline = read_lines(folder.path / "timeline.jsonl").items
    (failed,) = (line for line in timeline if line["event"] == "pipeline-failed")
    assert failed["exit_code"] == 2
    assert failed["why"].startswith("stopped: RecordTooLarge: batch ")
    assert sum(line["event"] == "pipeline-started" for line in timeline) == 1, "it was not started again"
    (stalled,) = (line for line in timeline if line["event"] == "stalled")
    assert "kafka-configs.sh" in stalled["why"]
    (death,) = report["deaths"]["each_unasked"]
    assert death["exit_code"] == 2
    assert report["verdict"] in ("broken", "unknown")
    assert "STALL" in report["anomalies"]
