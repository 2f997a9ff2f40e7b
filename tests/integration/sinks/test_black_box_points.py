"""The failpoints amid a user's function: what its sink holds at each of them, in a real Spark session."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from oncebench.delivery.batch import Batch, deliverable
from oncebench.delivery.contract import SinkSettings
from oncebench.delivery.failpoints import FIRST_BATCH, Failpoints
from oncebench.delivery.quarantine import Quarantine
from oncebench.downloads.java import find_java
from oncebench.lab.lab import Lab, spark_of
from oncebench.sinks.black_box.sink import FAULT_AFTER, FUNCTION, ONE_TASK_BATCH, BlackBox, call
from pipeline.rows import SCHEMA
from tests import ROOT
from tests.contract.attempts import PARTITIONS, frame, rows_for
from tests.spark_sessions import sinkless, spark_session

pytestmark = [pytest.mark.integration, pytest.mark.spark]

SINKS = ROOT / "tests" / "integration" / "certify" / "sinks"


@dataclass(frozen=True)
class Noting(Failpoints):
    """Failpoints that note how many rows the sink holds, and let the process go on."""

    database: Path = Path()

    def asks_for(self, point: str) -> bool:
        return True

    def reach(self, point: str, batch: int, rows: int | None = None, partition: int | None = None) -> None:
        with closing(sqlite3.connect(self.database, timeout=60)) as connection, self.hits.open("a") as notes:
            there = 0
            with suppress(sqlite3.OperationalError):  # no table yet
                (there,) = connection.execute("SELECT count(*) FROM rows").fetchone()
            notes.write(json.dumps([point, partition, there]) + "\n")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    java = find_java()
    lab = Lab(cast(Any, None), java, **spark_of(java))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(SINKS), os.environ.get("PYTHONPATH")))))
        with spark_session(sinkless(lab, tmp_path_factory.mktemp("spark"))) as started:
            yield started


def points_of(
    function: str, number: int, spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch
) -> list[tuple[str, int | None, int]]:
    """Runs a batch through a function; returns (point, partition, rows in the sink) in the order of time."""
    patch.chdir(folder)  # restored after the test: the sink changes to the user's folder
    patch.syspath_prepend(str(SINKS))
    output = folder / "run" / "output"
    output.mkdir(parents=True)
    target = {
        "write": f"sqlite_sinks:{function}", "read": "", "setup": "", "format": "", "options": {}, "spark": {},
        "cwd": str(SINKS), "run": "r", "folder": str(output), "kafka": "", "output": function,
        "columns": SCHEMA.names, "key": "session_key",
    }  # fmt: skip
    for variable in ("ONCEBENCH_OUTPUT", "ONCEBENCH_RUN", "ONCEBENCH_KAFKA", "ONCEBENCH_FAILPOINTS", "PYTHONPATH"):
        patch.setenv(variable, os.environ.get(variable, ""))
    sink = BlackBox(SinkSettings(target, "r", PARTITIONS, folder / "run" / "checkpoint", variant=FUNCTION))
    noting = Noting((), folder / "notes.jsonl", None, database=output / "rows.sqlite")
    spark.sparkContext.environment["ONCEBENCH_OUTPUT"] = str(output)
    rows = deliverable(frame(spark, [rows_for(f"s{part}") for part in range(PARTITIONS)]), sink)
    call(Batch(rows, number, PARTITIONS, noting, Quarantine("", "", {}), 1), sink, None, "")
    return [tuple(json.loads(line)) for line in (folder / "notes.jsonl").read_text().splitlines()]  # type: ignore[misc]


def test_a_kill_amid_the_call_finds_the_rows_of_one_task_in_the_sink(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = len(rows_for("s0"))
    passed = points_of("append", FIRST_BATCH + FAULT_AFTER, spark, tmp_path, monkeypatch)
    assert passed[:3] == [("mid-write", 1, part), ("before-prepare", None, 2 * part), ("after-prepare", None, 2 * part)]
    assert {there for _, _, there in passed[2:]} == {2 * part}


def test_a_function_that_collects_its_rows_is_killed_before_it_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = len(rows_for("s0"))
    passed = points_of("own_numbers", ONE_TASK_BATCH, spark, tmp_path, monkeypatch)
    assert {(point, there) for point, _, there in passed[:3]} == {("mid-write", 0), ("before-prepare", 0)}
    assert passed[3] == ("after-prepare", None, 2 * part)
