"""Queries whose sinks skip a batch that they hold, to test Spark's reaction. Not for use.

    python -m tests.skipping PIPELINE.json FOLDER CASE...

This is one attempt of a driver. It starts the named cases concurrently, each with a checkpoint of its own. It writes
the end of each case to `FOLDER/attempt.json`, and waits to be killed.

In its first batch, a case stops when its sink holds the batch (or has claimed it) and Spark's commit log does not. The
kill comes there. Each query reads the lines of `FOLDER/in` and drops lines that it has seen before. This is Spark's
smallest stateful operator, here with the pipeline's settings.

What can go wrong: a query neither ends nor stops. Then there is no `attempt.json`, and the waiting test times out.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from oncebench.sinks.registry import SINKS
from pipeline.config import PipelineConfig, read_config
from pipeline.spark.session import session

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
CHECK = "spark.sql.streaming.stateStore.commitValidation.enabled"
LOST = "STATE_STORE_COMMIT_VALIDATION_FAILED"  # Spark's check after the batch
STUCK = "CheckpointInfo length: 0, numPartitions: 2"  # Spark's assertion before the commit log
NO_STATE = "CANNOT_LOAD_STATE_STORE"  # the next batch looks for state that was never written


def leave(_rows: DataFrame) -> None:
    """Returns at once: the trap."""


def drain(rows: DataFrame) -> None:
    """Drains all rows and writes none: the remedy."""
    rows.write.format("noop").mode("overwrite").save()


def look(rows: DataFrame) -> None:
    """Reads only as many rows as needed to see one."""
    rows.take(1)


Replay = Callable[[DataFrame], None]


class Own:
    """A sink that marks its batches, in `foreachBatch`.

    Attributes:
        again: handles a batch that is already marked.
        claims: whether the sink marks a batch before it writes it.
        mended: handles a marked batch from the second time on.
    """

    def __init__(self, again: Replay, claims: bool = False, mended: Replay | None = None) -> None:
        self.again, self.claims, self.mended = again, claims, mended or again

    def start(self, rows: DataFrame, folder: Path, stand: Callable[[int], None]) -> Any:
        out, marker, replayed = folder / "out", folder / "marker", folder / "replayed"
        out.mkdir(exist_ok=True)

        def mark(number: int) -> None:
            marker.write_text(str(number))
            stand(number)

        def deliver(batch: DataFrame, number: int) -> None:
            if marker.exists() and int(marker.read_text()) >= number:
                again = self.mended if replayed.exists() else self.again
                replayed.touch()
                return again(batch)
            if self.claims:
                mark(number)
            lines = (json.dumps({"value": row["value"]}) for row in batch.collect())
            (out / f"batch-{number}.json").write_text("".join(f"{line}\n" for line in lines))
            return None if self.claims else mark(number)

        return rows.writeStream.foreachBatch(deliver)


class Shipped:
    """A sink of Spark or Delta, which skips a batch that its log holds.

    Its first attempt ends well.
    """

    def __init__(self, form: str) -> None:
        self.form = form

    def start(self, rows: DataFrame, folder: Path, _stand: Callable[[int], None]) -> Any:
        return rows.writeStream.format(self.form).option("path", str(folder / "out"))


@dataclass(frozen=True)
class Case:
    """A sink, Spark's settings, and the expected results.

    Attributes:
        sink: the sink.
        settings: settings of Spark.
        ends: ends of the later attempts: a text in the failure, or None for success.
        rows: the rows in the sink at the end.
        often: whether every test run includes this case.
    """

    sink: Own | Shipped
    settings: Mapping[str, str]
    ends: tuple[str | None, ...]
    rows: tuple[str, ...]
    often: bool = False


V1, V2 = {FORMAT: "1"}, {FORMAT: "2"}
UNCHECKED = {CHECK: "false"}
# Lines that give no row in the second batch if the state of the first exists, and lines that do.
FIRST, SECOND = ("a", "b"), ("c",)
INPUT = (FIRST, (*FIRST, *SECOND))
ALL = FIRST + SECOND
CASES = {
    "v1-skip": Case(Own(leave), V1, (LOST, None), ALL, often=True),
    "v1-skip-claimed": Case(Own(leave, claims=True), V1, (LOST, NO_STATE), (), often=True),
    "v1-drain": Case(Own(drain), V1, (None, None), ALL, often=True),
    "v1-drain-claimed": Case(Own(drain, claims=True), V1, (None, None), SECOND, often=True),
    "v2-skip": Case(Own(leave), V2, (STUCK, STUCK), FIRST, often=True),
    "v2-drain": Case(Own(drain), V2, (None, None), ALL, often=True),
    "v2-skip-mended": Case(Own(leave, mended=drain), V2, (STUCK, None), ALL, often=True),
    "v1-skip-unchecked": Case(Own(leave), V1 | UNCHECKED, (None, None), ALL),
    "v1-skip-claimed-unchecked": Case(Own(leave, claims=True), V1 | UNCHECKED, (NO_STATE, None), ()),
    "v1-look": Case(Own(look), V1, (LOST, None), ALL),
    "v2-skip-unchecked": Case(Own(leave), V2 | UNCHECKED, (STUCK, STUCK), FIRST),
    "v2-skip-claimed": Case(Own(leave, claims=True), V2, (STUCK, STUCK), ()),
    "v2-drain-claimed": Case(Own(drain, claims=True), V2, (None, None), SECOND),
    "v2-look": Case(Own(look), V2, ("CheckpointInfo length: ",) * 2, FIRST),
    "v1-files": Case(Shipped("json"), V1, (None, None), ALL),
    "v2-files": Case(Shipped("json"), V2, (STUCK, STUCK), FIRST),
    "v1-delta": Case(Shipped("delta"), V1, (None, None), ALL),
    "v2-delta": Case(Shipped("delta"), V2, (STUCK, STUCK), FIRST),
}


def failure_of(query: Any) -> str | None:
    """The causes of a query's failure; None if it ended well."""
    failure = query._jsq.exception()
    if failure.isEmpty():
        return None
    causes, cause = [], failure.get().getCause()
    while cause is not None:
        causes.append(str(cause.toString()))
        cause = cause.getCause()
    return " <- ".join(causes)


def begin(case: Case, spark: SparkSession, folder: Path) -> Callable[[], dict[str, Any] | None]:
    """Starts a case; returns a function that gives its result, or None while it runs."""
    folder.mkdir(exist_ok=True)
    standing = threading.Event()

    def stand(number: int) -> None:
        if number == 0:
            standing.set()
            threading.Event().wait()

    own = spark.newSession()
    for name, value in case.settings.items():
        own.conf.set(name, value)
    checkpoint = folder / "checkpoint"
    rows = own.readStream.text(str(folder.parent / "in")).dropDuplicates(["value"])
    writer = case.sink.start(rows, folder, stand)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()

    def result() -> dict[str, Any] | None:
        if query.isActive and not standing.is_set():
            return None
        commits = sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
        ended = None if standing.is_set() else failure_of(query)
        return {"standing": standing.is_set(), "ended": ended, "commits": commits}

    return result


def attempt(config: PipelineConfig, folder: Path, names: list[str], more: Mapping[str, str]) -> None:
    """Runs one attempt; never returns."""
    spark = session(config, more)
    running = {name: begin(CASES[name], spark, folder / name) for name in names}
    while None in [result() for result in running.values()]:
        time.sleep(0.05)
    unfinished = folder / "attempt.json.tmp"
    unfinished.write_text(json.dumps({name: result() for name, result in running.items()}))
    unfinished.rename(folder / "attempt.json")
    threading.Event().wait()


if __name__ == "__main__":
    chosen = read_config(Path(sys.argv[1]))
    attempt(chosen, Path(sys.argv[2]), sys.argv[3:], SINKS[chosen.sink].spark)
