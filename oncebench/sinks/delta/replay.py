"""The newest batch of a Delta table, for the comparison with its replay.

Promise: the rows that a batch's commit added are compared by number and digest, also after a compaction. What can go
wrong: the data files were vacuumed, or the log entry was cleaned up. The table's transaction identifier (txnAppId,
txnVersion) still proves the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from oncebench.delivery import digest
from oncebench.delivery.contract import Mark
from oncebench.sinks.delta.log import files_of, row_count


@dataclass
class Replayable:
    """The newest batch in the table.

    Attributes:
        batch: its number.
        files: the data files that its commit added; none if the batch will not be replayed.
        rows: number of rows in the files.
        gone: the error of the file or log entry that is missing; empty if the rows can be read.
    """

    batch: int
    files: Sequence[Path] = ()
    rows: int = 0
    gone: str = ""
    _digest: int | None = None

    @staticmethod
    def of(table: Path, app_id: str, batch: int) -> Replayable:
        """Finds the files of an open batch, which is in the table."""
        try:
            files = [table / name for name in files_of(table / "_delta_log", app_id, batch)]
            return Replayable(batch, files, row_count(files))
        except (FileNotFoundError, LookupError) as gone:
            return Replayable(batch, gone=repr(gone))

    def lacks(self, columns: Sequence[str]) -> str | None:
        """Returns the first of these columns that the rows of the batch do not have."""
        there = {name.lower() for file in self.files[:1] for name in pq.read_schema(file).names}
        return next((name for name in columns if self.files and name.lower() not in there), None)

    def mark(self, columns: Sequence[str]) -> Mark:
        """Returns the batch's marker; the first call reads the data files."""
        if self.files and self._digest is None:
            self._digest = _digest_of(self.files, list(columns))
        return Mark(self.batch, self.rows, self._digest)


def for_spark(path: Path) -> str:
    """Returns a path as a URI with a scheme.

    Without a scheme, Spark looks in its default file system, which may be a cluster's HDFS.
    """
    return f"file://{path}"


def _digest_of(files: Sequence[Path], columns: list[str]) -> int:
    spark = SparkSession.builder.getOrCreate()  # the session of the query
    rows = spark.read.parquet(*map(for_spark, files)).select(*map(digest.quoted, columns))
    hashes = digest.with_hash(rows, columns).select(digest.HASH).toArrow().column(0)
    return digest.digest(hashes.combine_chunks())
