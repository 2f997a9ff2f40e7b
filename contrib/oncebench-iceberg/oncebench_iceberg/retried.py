"""The broken sink in the driver: commits with pyiceberg's own retries. Not for use.

It sets the same marker in the same commit, and reads it at the start only. pyiceberg retries a failed append on the
newest snapshot, four times by default, and does not read the marker in between. So a stopped driver that continues
appends its batch after the same batch of its successor. With the table property `commit.retry.num-retries` = 0 its
append fails.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import DataFile
from pyiceberg.table import Transaction

from oncebench.delivery import digest
from oncebench.delivery.contract import SinkSettings
from oncebench_iceberg.catalogs.place import place_of
from oncebench_iceberg.driver import IcebergSink
from oncebench_iceberg.files import stage
from oncebench_iceberg.marker import Marker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


@dataclass
class Staging:
    """Writes a batch as data files and stages their commit."""

    sink: RetriedAppend

    def write_batch(self, rows: DataFrame, batch: int) -> dict[str, float]:
        """See `BatchWriter.write_batch`."""
        started = time.perf_counter()
        staged = stage(rows, batch, self.sink.written_for, self.sink.access())
        self.sink.stage_commit(staged.files, Marker(batch, staged.rows, digest.to_text(staged.digest), ""))
        return {"write": (time.perf_counter() - started) * 1000}


class RetriedAppend(IcebergSink):
    """Leaves the retries of a failed commit to pyiceberg."""

    _staged: Transaction | None = None

    @property
    def written_for(self) -> Any:
        """The table's state after the start."""
        return self._started.table

    def access(self) -> Any:
        """See `Commits.access`."""
        return self._started.access()

    def staging_writer(self) -> Staging:
        """Returns a writer that stages a commit."""
        return Staging(self)

    def stage_commit(self, files: Sequence[DataFile], marker: Marker) -> None:
        """Stages a snapshot of data files with the marker; no files: nothing."""
        self._staged = None
        if not files:
            return
        table = self._catalog.load()
        self._staged = Transaction(table)
        producer = self._staged._append_snapshot_producer({})
        named = replace(marker, snapshot=producer.snapshot_id, sequence=table.metadata.next_sequence_number())
        producer.snapshot_properties = {self._keys.marker: named.text()}
        for file in files:
            producer.append_data_file(file)
        producer.commit()
        self._staged.set_properties({self._keys.marker: named.text()})

    def commit_staged(self) -> None:
        """Commits what is staged, as `Table.append` does."""
        if self._staged is not None:
            self._staged.commit_transaction()


def open_sink(settings: SinkSettings) -> RetriedAppend:
    """Returns the sink of a job's settings."""
    return RetriedAppend(place_of(settings.output), settings.sink_id, settings.partitions, settings.driver)
