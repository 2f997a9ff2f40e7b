"""Real pipelines under a real kill -9, audited by the model.

The tests cover every guarantee of the sink of the quick comparison. `test_sinks` checks each sink at each step of each
protocol. `compare --profile standard` kills all of them for real.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.faults.catalogue import checked_fault
from oncebench.lab.lab import Lab
from oncebench.measure import LATENCIES, judge_again, measure
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import DECISIVE_POINT, FIRST
from oncebench.scenario.supports import all_supports
from oncebench.sinks.registry import suite_sinks
from oncebench.workdir import open_work_dir
from tests import ROOT

HAND_CHECK = ROOT / "tools" / "hand_check.py"
pytestmark = [pytest.mark.contract, pytest.mark.spark]

SMALL = Cell("", "", "", rate=1000.0, sessions=100, warmup_s=0.0)
SUPPORTED = [(sink, support.guarantee, support.variant) for sink, support in all_supports() if sink in FIRST]
EXACT = [each for each in SUPPORTED if each[1] == EXACTLY_ONCE]
# `compare` kills Spark's own sink, and `test_sinks` lets it die at each step.
INEXACT = [each for each in SUPPORTED if each[1] != EXACTLY_ONCE and each[2] != "native"]


def run(lab: Lab, folder: Path, cell: Cell) -> dict[str, Any]:
    with open_work_dir(folder) as work:
        return measure(cell, lab, work.path)


@pytest.mark.slow  # `test_sinks` lets each of them die at each step
@pytest.mark.parametrize(("sink", "guarantee", "variant"), INEXACT)
def test_a_kill_causes_only_the_allowed_anomalies(
    lab: Lab, tmp_path: Path, sink: str, guarantee: str, variant: str
) -> None:
    fault = checked_fault(DECISIVE_POINT[guarantee])
    cell = replace(SMALL, sink=sink, guarantee=guarantee, variant=variant, faults=(fault,))
    report = run(lab, tmp_path / "run", cell)
    rows = report["rows"]
    assert report["verdict"] == "kept", (report["verdict"], report["reasons"], report["anomalies"])
    assert [fault["hit"] for fault in report["faults"]] == [True]
    assert (rows["lost"] > 0) == (guarantee == AT_MOST_ONCE)
    assert (rows["duplicated"] > 0) == (guarantee == AT_LEAST_ONCE)
    assert report["environment"]["durability"].keys() == {"kafka", *suite_sinks()[sink].traits.services}
    latency = report["latency_ms"]
    by_hand = subprocess.run([sys.executable, HAND_CHECK, tmp_path / "run"], capture_output=True, text=True, check=True)
    assert by_hand.stdout == (
        f"expected {rows['expected']}  lost {rows['lost']}  duplicated {rows['duplicated']}  "
        f"p99 {latency['p99']:.3f} ms of {latency['n']} rows\n"
    )
    assert np.load(tmp_path / "run" / LATENCIES).shape[0] >= latency["n"] > 0


@pytest.mark.slow  # `test_run` has these kills in a run of the command
@pytest.mark.timeout(900)  # three starts of Spark
@pytest.mark.parametrize(("sink", "guarantee", "variant"), EXACT)
def test_exactly_once_survives_kills_in_a_batch_and_in_its_replay(
    lab: Lab, tmp_path: Path, sink: str, guarantee: str, variant: str
) -> None:
    # Kills a batch and its replay. Without the limit, the backlog of a restart would be one batch.
    faults = tuple(map(checked_fault, ("mid-write", "after-prepare")))
    cell = replace(SMALL, sink=sink, guarantee=guarantee, variant=variant, faults=faults, max_events_per_batch=400)
    report = run(lab, tmp_path / "run", cell)
    assert report["verdict"] == "kept", (report["verdict"], report["reasons"], report["anomalies"])
    assert [fault["hit"] for fault in report["faults"]] == [True, True]
    assert report["anomalies"].keys() <= {"EXPO"}  # an abort leaves invisible records in a log
    facts = tmp_path / "run" / "facts.json"
    noted = json.loads(facts.read_text())
    assert noted["environment"]["cpu"] == report["environment"]["cpu"]
    facts.write_text(json.dumps({**noted, "environment": {**noted["environment"], "cpu": "of another machine"}}))
    again = judge_again(tmp_path / "run")
    assert again["anomalies"] == report["anomalies"]
    assert again["environment"]["cpu"] == "of another machine"  # the environment of the run, not of the audit
