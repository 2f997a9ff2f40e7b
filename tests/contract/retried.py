"""`python -m tests.contract.retried FOLDER`: removes executors during a task.

It does so first for a plain Spark task, then for a task of our delivery code. It runs in a process of its own, because
a process has one Spark, and this one needs separate executors. Every attempt appends a line to a file when it writes.
The first attempt at partition 1 then waits until it is killed.

The results are printed as JSON: {"bare": [attempts that wrote], "ours": [..], "said": class of our error}.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from oncebench.delivery import digest
from oncebench.delivery.batch import Batch
from oncebench.delivery.errors import PipelineError
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.journal import Identity, open_journal
from oncebench.delivery.quarantine import Quarantine
from pipeline.config import AS_SHIPPED, PipelineConfig
from pipeline.failures import explain
from pipeline.rows import SCHEMA
from pipeline.spark.session import session, stop
from tests.contract.attempts import PARTITIONS, ROW

LIMIT_S = 240.0  # an executor starts in some seconds on idle cores


@dataclass(frozen=True)
class Slow:
    """Writes its attempt's number into a file; the first attempt at partition 1 then waits."""

    file: Path

    def write(self, _task: Any, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        context = TaskContext.get()
        assert context is not None, "it runs in a worker"
        for _ in rows:
            pass
        if context.partitionId() == 1:
            with self.file.open("a") as file:
                file.write(f"{context.attemptNumber()}\n")
            if context.attemptNumber() == 0:
                time.sleep(LIMIT_S)
        return {}, {}


@dataclass(frozen=True)
class Bare:
    """The same write without our delivery code around it."""

    writer: Slow

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.writer.write(None, batches)
        yield pa.RecordBatch.from_pydict({"done": [1]})


def main(folder: Path) -> None:
    config = PipelineConfig(
        "localhost:1", "in", {"output": "out"}, "bad", "kafka", "exactly-once", "two-phase", "id",
        folder / "checkpoint", folder, partitions=PARTITIONS, checkpoint_writing=AS_SHIPPED,
        master="local-cluster[2,1,1024]",
    )  # fmt: skip
    spark = session(config)
    try:
        found = {"bare": _bare(spark, folder / "bare"), **_ours(spark, config, folder / "ours")}
    finally:
        stop(spark)
    print(json.dumps(found))


def _bare(spark: SparkSession, file: Path) -> list[int]:
    rows = _rows(spark)
    _robbed(spark, file, rows.mapInArrow(Bare(Slow(file)).__call__, "done long").collect)
    return _attempts(file)


def _ours(spark: SparkSession, config: PipelineConfig, file: Path) -> dict[str, Any]:
    identity = Identity(config.sink_id, config.sink, config.guarantee, config.variant, config.partitions)
    journal = open_journal(config.checkpoint, identity)
    rows = _rows(spark)
    batch = Batch(rows, 0, config.partitions, Failpoints((), Path("/dev/null"), None), Quarantine("bad", "in", {}))
    said: PipelineError | None = None
    try:
        _robbed(spark, file, lambda: batch.run(Slow(file)))
    except Exception as failure:
        said = explain(failure, journal)
    return {"ours": _attempts(file), "said": type(said).__name__}


def _rows(spark: SparkSession) -> DataFrame:
    """Some rows in each partition."""
    numbers = spark.range(0, 20 * PARTITIONS, 1, PARTITIONS)
    made = {"session_key": "concat('session-', id)", **dict.fromkeys(ROW[1:], "id")}
    kinds = {field.name: field.dataType.simpleString() for field in SCHEMA}
    rows = numbers.selectExpr(*(f"cast({made[name]} as {kind}) as {name}" for name, kind in kinds.items()))
    return digest.with_hash(rows, list(ROW))


def _robbed(spark: SparkSession, file: Path, job: Callable[[], Any]) -> None:
    """Runs a job, and removes its executors as soon as the first attempt of the task waits."""
    thread = threading.Thread(target=_rob, args=(spark, file), daemon=True)
    thread.start()
    job()
    thread.join()


def _rob(spark: SparkSession, file: Path) -> None:
    end = time.monotonic() + LIMIT_S
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.05)
    context = spark._jsc.sc()
    # All executors, because Spark decides which one has the task. They are replaced and count as no failure, as when a
    # cluster's manager gives them to another application.
    replaced, failed, at_once = True, False, True
    context.schedulerBackend().killExecutors(context.getExecutorIds(), not replaced, failed, at_once)


def _attempts(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
