"""A job whose checkpoint, state and journal are in an object store.

The job can kill itself after a decision.

    python -m tests.object_store_job CHECKPOINT FOLDER BATCH

reads `FOLDER/input`, one file of numbers per batch, and writes the running count of each remainder by 7 into
`FOLDER/output`. It kills itself with SIGKILL when batch BATCH is decided and not committed; -1: never.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from oncebench.delivery.journal import Journal
from oncebench.delivery.stores.choose import place_at
from oncebench.downloads.maven import jars
from oncebench.jobs import FilesSink, deliver
from oncebench.jobs.object_store import spark_settings

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def run(checkpoint: str, folder: Path, kill_in: int) -> None:
    """Delivers all input that is there."""
    settings = {
        **spark_settings(place_at(checkpoint)),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars("spark-s3"))),
        "spark.stage.maxConsecutiveAttempts": "1",
        "spark.stage.ignoreDecommissionFetchFailure": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if kill_in >= 0:
        _die_after_decision(kill_in)
    numbers = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "input"))
    rows = numbers.selectExpr("cast(cast(value AS int) % 7 AS string) AS k").groupBy("k").count()
    sink = FilesSink(str(folder / "output"), sink_id="counts", form="jsonl")
    writer = deliver(rows, sink, guarantee="exactly-once", checkpoint=checkpoint).outputMode("update")
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def _die_after_decision(batch: int) -> None:
    decide = Journal.decide

    def decide_and_die(journal: Journal, decided: int, attempt: int, entry: dict[str, Any]) -> None:
        decide(journal, decided, attempt, entry)
        if decided == batch:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.decide = decide_and_die  # type: ignore[method-assign]


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
