"""What Spark does with a sink that skips a batch which it holds already.

Real runs show the traps of docs/spark_traps.md.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.downloads.java import find_java
from oncebench.downloads.maven import jars
from oncebench.lab.lab import Lab, environment, spark_of
from oncebench.measure import measure
from oncebench.processes import child as process
from oncebench.scenario.cell import Cell
from oncebench.sinks.registry import SINKS
from oncebench.workdir import open_work_dir
from pipeline.config import PipelineConfig, write_config
from tests import ROOT
from tests.skipping import CASES, FORMAT, INPUT, Shipped
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]

EVERY_CASE = os.environ.get("ONCEBENCH_TRAPS") == "all"
NAMES = [name for name, case in CASES.items() if case.often or EVERY_CASE]


@pytest.fixture
def driver(tmp_path: Path) -> Callable[[], dict[str, dict[str, Any]]]:
    """A life of all the cases: killed at its end, it gives how each case had ended."""
    java, told = find_java(), tmp_path / "attempt.json"
    sink = "delta" if EVERY_CASE else "kafka"
    found = spark_of(java)
    config = PipelineConfig(  # of which only Spark's session is made
        bootstrap_servers="",
        input_topic="",
        output={"output": "unused"},
        quarantine_topic="",
        sink=sink,
        guarantee=EXACTLY_ONCE,
        variant="idempotent",
        sink_id="traps",
        checkpoint=tmp_path,
        record=tmp_path,
        jars=tuple(str(jar) for bundle in SINKS[sink].jars for jar in jars(bundle)),
        driver_jars=tuple(map(str, found["class_path"])),
        jvm_options=found["jvm_options"],
    )
    write_config(config, tmp_path / "pipeline.json")
    command = [sys.executable, "-m", "tests.skipping", tmp_path / "pipeline.json", tmp_path, *NAMES]

    def live() -> dict[str, dict[str, Any]]:
        told.unlink(missing_ok=True)
        with process.start("skipping", command, tmp_path / "skipping.log", env=environment(java), cwd=ROOT) as child:
            wait_for("the queries to end or stand still", lambda: told.exists() or not child.alive)
        assert told.exists(), child.log.read_text()[-3000:]
        return dict(json.loads(told.read_text()))

    return live


def shown(folder: Path) -> list[str]:
    """The rows that a case's sink holds."""
    if (folder / "_delta_log").is_dir():
        return sorted(DeltaTable(folder).to_pyarrow_table().column("value").to_pylist())
    lines = [line for file in folder.glob("*.json") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["value"] for line in lines)


@pytest.mark.slow
def test_a_sink_that_skips_a_replayed_batch_stops_the_query_and_one_that_drains_it_goes_on(
    tmp_path: Path, driver: Callable[[], dict[str, dict[str, Any]]]
) -> None:
    (tmp_path / "in").mkdir()

    def send(number: int) -> None:
        (tmp_path / f"{number}.txt").write_text("".join(f"{line}\n" for line in INPUT[number]))
        (tmp_path / f"{number}.txt").rename(tmp_path / "in" / f"{number}.txt")

    send(0)
    first = driver()
    for name in NAMES:
        shipped = isinstance(CASES[name].sink, Shipped)
        assert first[name] == {"standing": not shipped, "ended": None, "commits": [0] if shipped else []}
        for mark in (tmp_path / name / "checkpoint" / "commits").glob("*0*"):
            mark.unlink()  # Spark's own sinks have no place to stop at: this is what a death before the mark leaves
    send(1)
    lives = [driver(), driver()]
    for name in NAMES:
        for number, told in enumerate(lives, 2):
            cause = (told[name]["ended"] or "went on").split(" <- ")[-1]
            print(f"{name:26} life {number}: commits {told[name]['commits']}; {cause[:120]}")
        print(f"{name:26} rows {shown(tmp_path / name / 'out')}")
    for name in NAMES:
        case = CASES[name]
        for told, end in zip(lives, case.ends, strict=True):
            ended = told[name]["ended"]
            assert ended is None if end is None else end in (ended or ""), (name, ended)
        assert shown(tmp_path / name / "out") == list(case.rows), name


@pytest.mark.slow
def test_state_checkpoints_of_format_2_keep_exactly_once_through_kills(lab: Lab, tmp_path: Path) -> None:
    newer = replace(lab, jvm_options=(*lab.jvm_options, f"-D{FORMAT}=2"))
    faults = ("after-decision", "after-commit", "after-commit-log")
    cell = Cell("kafka", EXACTLY_ONCE, "two-phase", rate=1000.0, sessions=100, max_events_per_batch=1000, faults=faults)
    with open_work_dir(tmp_path / "run") as work:
        report = measure(replace(cell, warmup_s=0.0), newer, work.path)
        commits = [path.read_text() for path in (work.path / "checkpoint" / "commits").glob("[0-9]*")]
    assert [fault["hit"] for fault in report["faults"]] == [True] * len(faults)
    assert (report["verdict"], report["rows"]["lost"], report["rows"]["duplicated"]) == ("kept", 0, 0), report[
        "reasons"
    ]
    assert commits
    assert all("stateUniqueIds" in commit for commit in commits), "format 2 was not in use"
