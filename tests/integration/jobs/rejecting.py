"""A query that rejects some of its rows, and the records in its quarantine topic.

A plain consumer reads these records.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from oncebench.delivery.quarantine import COLUMN, TYPE, Quarantine
from oncebench.lab.lab import Lab
from tests.reading import committed_records

GOOD, BAD = ("7", "8"), ("bad",)


class Rejecting:
    """Good and bad lines of a text file."""

    def __init__(self, lab: Lab, spark: SparkSession, folder: Path) -> None:
        self._spark, self._input, self._servers = spark, folder / "input", lab.kafka.bootstrap_servers
        self._topic = lab.kafka.fresh_topic("bad", 1)
        self.quarantine = Quarantine(self._topic, "", {"bootstrap.servers": self._servers})
        self._input.mkdir()
        (self._input / "0.txt").write_text("\n".join((*GOOD, *BAD)))

    def rows(self) -> DataFrame:
        rejected = "named_struct('r', 'wrong', 'p', null, 'o', null, 'k', null, 'v', CAST(value AS BINARY))"
        column = f"CASE WHEN value = 'bad' THEN CAST({rejected} AS {TYPE}) END AS {COLUMN}"
        rows = self._spark.readStream.text(str(self._input)).selectExpr("value AS key", "value", column)
        return rows.repartition(2, "key")

    def copies(self) -> Counter[str]:
        """The copies in the quarantine topic."""
        return Counter((record.value() or b"").decode() for record in committed_records(self._servers, self._topic))
