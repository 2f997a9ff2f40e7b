"""The failpoints amid a user's function, in a real Spark session.

The tests compare what the function's sink holds at each of them.
"""

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
    asked: tuple[str, ...] = ()

    def asks_for(self, point: str) -> bool:
        return point in self.asked

    def reach(self, point: str, batch: int, rows: int | None = None, partition: int | None = None) -> None:
        with closing(sqlite3.connect(self.database, timeout=60)) as connection, self.hits.open("a") as notes:
            there = 0
            with suppress(sqlite3.OperationalError):  # no table yet
                query = "SELECT count(*) FROM rows WHERE session_key LIKE ?"
                (there,) = connection.execute(query, (f"{batch}-%",)).fetchone()
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
    function: str, number: int, spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch, *asked: str
) -> list[tuple[str, int | None, int]]:
    """Runs a batch through a function; returns (point, partition, its rows in the sink).

    The points are in the order of time. Another batch runs before it, whose points do not count.
    """
    patch.chdir(folder)  # restored after the test: the sink changes to the user's folder
    patch.syspath_prepend(str(SINKS))
    output = folder / "run" / "output"
    output.mkdir(parents=True)
    target = {
        "write": f"sqlite_sinks:{function}", "read": "sqlite_sinks:read_rows", "setup": "", "format": "",
        "options": {}, "spark": {},
        "cwd": str(SINKS), "run": "r", "folder": str(output), "kafka": "", "output": function,
        "columns": SCHEMA.names, "key": "session_key",
    }  # fmt: skip
    for variable in ("ONCEBENCH_OUTPUT", "ONCEBENCH_RUN", "ONCEBENCH_KAFKA", "ONCEBENCH_FAILPOINTS", "PYTHONPATH"):
        patch.setenv(variable, os.environ.get(variable, ""))
    sink = BlackBox(SinkSettings(target, "r", PARTITIONS, folder / "run" / "checkpoint", variant=FUNCTION))
    spark.sparkContext.environment["ONCEBENCH_OUTPUT"] = str(output)
    for batch, notes in ((number - 1, "earlier.jsonl"), (number, "notes.jsonl")):
        noting = Noting((), folder / notes, None, database=output / "rows.sqlite", asked=asked)
        rows = deliverable(frame(spark, [rows_for(f"{batch}-{part}") for part in range(PARTITIONS)]), sink)
        call(Batch(rows, batch, PARTITIONS, noting, Quarantine("", "", {}), 1), sink, None, "")
    return [tuple(json.loads(line)) for line in (folder / "notes.jsonl").read_text().splitlines()]  # type: ignore[misc]


def test_a_kill_amid_the_call_finds_the_rows_of_one_task_in_the_sink(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = len(rows_for("s0"))
    number = FIRST_BATCH + FAULT_AFTER
    passed = points_of("append", number, spark, tmp_path, monkeypatch, "mid-write", "before-prepare")
    assert passed[:3] == [("mid-write", 1, part), ("before-prepare", None, 2 * part), ("after-prepare", None, 2 * part)]
    assert {there for _, _, there in passed[2:]} == {2 * part}


def test_a_function_that_collects_its_rows_is_killed_before_it_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = len(rows_for("s0"))
    passed = points_of("own_numbers", ONE_TASK_BATCH, spark, tmp_path, monkeypatch, "mid-write", "before-prepare")
    assert {(point, there) for point, _, there in passed[:3]} == {("mid-write", 0), ("before-prepare", 0)}
    assert passed[3] == ("after-prepare", None, 2 * part)


def test_a_kill_amid_the_call_waits_until_a_function_that_counts_first_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = len(rows_for("s0"))
    passed = points_of(
        "count_then_write", FIRST_BATCH + FAULT_AFTER, spark, tmp_path, monkeypatch, "mid-write", "before-prepare"
    )
    assert passed[:2] == [("mid-write", 1, part), ("before-prepare", None, 2 * part)]


@pytest.mark.parametrize(
    ("function", "there"), [("mark_after_write", 1), ("count_then_write", None), ("upsert", None), ("own_numbers", 40)]
)
def test_a_kill_amid_the_write_finds_rows_of_the_batch_and_a_function_that_has_not_returned(
    function: str, there: int | None, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = points_of(function, FIRST_BATCH + FAULT_AFTER, spark, tmp_path, monkeypatch, "after-prepare")
    (found,) = [found for point, _, found in passed if point == "after-prepare"]
    assert found == there if there else found > 0
