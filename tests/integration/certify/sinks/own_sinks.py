"""The sinks of this project as black boxes: a foreachBatch function that knows nothing of the suite's journal."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
from pyspark.sql import DataFrame

from oncebench.delivery.batch import deliverable
from oncebench.delivery.contract import EXACTLY_ONCE, Sink, SinkSettings
from oncebench.delivery.journal import open_journal
from oncebench.delivery.protocols import choose, protocol_of
from oncebench.delivery.quarantine import Quarantine
from oncebench.jobs.batches import Batches
from oncebench.jobs.output import Target
from oncebench.jobs.start import identity_of
from oncebench.sinks.registry import SINKS

TASKS = 2


def _folder() -> Path:
    return Path(os.environ["ONCEBENCH_OUTPUT"])


@cache
def _started(kind_name: str, output: str) -> tuple[Sink, Callable[[DataFrame, int], None]]:
    """Starts the sink once per driver, as `deliver` does for a streaming query."""
    kind = SINKS[kind_name]
    support = choose(kind, EXACTLY_ONCE, None)
    checkpoint = _folder() / "journal"
    checkpoint.mkdir(exist_ok=True)
    settings = SinkSettings(output={"output": output}, sink_id="own", partitions=TASKS, checkpoint=checkpoint)
    journal = open_journal(
        checkpoint, identity_of(Target(kind, support, "own", output, checkpoint), TASKS), settings.driver
    )
    sink = kind.open(settings)
    sink.start(support, journal.generation, journal.newest_prepared())
    nothing = Quarantine("", "", {})
    return sink, Batches(protocol_of(kind, support), sink, journal, TASKS, nothing)


def files(df: DataFrame, batch_id: int) -> None:
    """Writes with the exactly-once file sink."""
    output = _folder() / "rows"
    output.mkdir(exist_ok=True)
    sink, deliver = _started("files-parquet", str(output))
    deliver(deliverable(df, sink), batch_id)


def read_files() -> list[dict[str, Any]]:
    """Returns the rows of all visible files."""
    found = sorted((_folder() / "rows").glob("*.parquet"))
    return [row for path in found for row in parquet.ParquetFile(path).read().to_pylist()]
