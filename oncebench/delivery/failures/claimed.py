"""The writer of a batch that at-most-once has claimed: no restart writes the missing rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from oncebench.delivery.contract import BatchWriter, TaskView, Writer
from oncebench.delivery.errors import DeliveryFailed
from oncebench.delivery.failures.cause import of_claimed


@dataclass(frozen=True)
class ClaimedWriter:
    """Writes by another writer, whose failures then say what a restart drops.

    Rejected records are copied while the writer takes its rows. A failed copy is reported unchanged, because a restart
    copies them again.
    """

    writer: Writer

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        """See `Writer.write`."""
        of_rows: list[DeliveryFailed] = []

        def taken() -> Iterator[pa.RecordBatch]:
            try:
                yield from rows
            except DeliveryFailed as error:
                of_rows.append(error)
                raise

        try:
            return self.writer.write(task, taken())
        except DeliveryFailed as error:
            if error in of_rows:
                raise
            raise type(error)(of_claimed(str(error), task.batch)) from error.__cause__  # the first words are wrong here


@dataclass(frozen=True)
class ClaimedBatchWriter:
    """Writes like `ClaimedWriter`, for a writer in the driver.

    Errors of the query and of a copy do not count as the writer's.
    """

    writer: BatchWriter

    def write_batch(self, rows: DataFrame, batch: int) -> dict[str, float]:
        """See `BatchWriter.write_batch`."""
        try:
            return self.writer.write_batch(rows, batch)
        except DeliveryFailed as error:
            raise type(error)(of_claimed(str(error), batch)) from error.__cause__


def claimed(writer: Writer | BatchWriter) -> Writer | BatchWriter:
    """Returns the writer of a claimed batch."""
    return ClaimedBatchWriter(writer) if isinstance(writer, BatchWriter) else ClaimedWriter(writer)
