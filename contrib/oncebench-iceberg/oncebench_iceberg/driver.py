"""The driver's side of the sink: adds the data files of a batch in one snapshot.

* exactly-once, idempotent: the same commit sets the marker of the batch, a table property. A replay that finds the
  marker writes nothing.
* at-least-once: each attempt at a batch adds its files.
* at-most-once: the batch is claimed in the journal and in a table property first.

Fencing: a driver that was replaced finds another driver's note in the table, and stops (`oncebench_iceberg.commit`).

What can go wrong:

* The table is rolled back. A batch is then missing, and the start is refused (`oncebench_iceberg.marker`).
* A driver dies between the tasks and the commit. Data files that no snapshot names then stay below the table's
  location, until its owner removes orphan files.
* A power cut loses files that the operating system has not written yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from oncebench.delivery import digest
from oncebench.delivery.contract import Holder, Mark, Sink, SinkSettings, Support
from oncebench.delivery.errors import DeliveryFailed, RefusedStart
from oncebench.delivery.failures.cause import RESTART, UNLESS_THERE, Cause, failure, not_claimed, permanent, transient
from oncebench_iceberg.catalogs.catalog import Catalog
from oncebench_iceberg.catalogs.errors import CATALOG_ERRORS, NO_TABLE, cause_of, first_line, start_without_loss
from oncebench_iceberg.catalogs.local import folder_of
from oncebench_iceberg.catalogs.place import Place, place_of
from oncebench_iceberg.columns import difference, iceberg_schema, unsuitable
from oncebench_iceberg.commit import LIMIT_S, Commits, Unanswered
from oncebench_iceberg.files import WarmUp, stage
from oncebench_iceberg.marker import Keys, Marker, holder_of, marks_of


@dataclass(frozen=True)
class Append:
    """Writes a batch as data files and adds them to the table in one snapshot.

    Attributes:
        commits: of this driver.
        marked: whether the same commit sets the marker of the batch.
    """

    commits: Commits
    marked: bool

    def write_batch(self, rows: DataFrame, batch: int) -> dict[str, float]:
        """See `BatchWriter.write_batch`. A batch without rows makes no snapshot."""
        started = time.perf_counter()
        with self._batch_fails(batch):
            access = self.commits.access()
        staged = stage(rows, batch, self.commits.table, access)
        staged_s = time.perf_counter()
        if staged.rows:
            marker = Marker(batch, staged.rows, digest.to_text(staged.digest), self.commits.driver)
            with self._batch_fails(batch):
                self.commits.append(staged.files, marker if self.marked else None)
        return {"write": (staged_s - started) * 1000, "snapshot": (time.perf_counter() - staged_s) * 1000}

    @contextmanager
    def _batch_fails(self, batch: int) -> Iterator[None]:
        """Converts errors of the catalog."""
        try:
            yield
        except (*CATALOG_ERRORS, Unanswered) as error:
            what = f"batch {batch} could not be added to the Iceberg table {self.commits.catalog.place}"
            raise failure(_cause(error, self.marked), f"{what}: {first_line(error)}") from error


class IcebergSink(Sink):
    """Writes rows to an Iceberg table, one snapshot per batch.

    Args:
        place: of the table; a start makes a table that is missing.
        sink_id: names this sink's properties in the table.
        partitions: tasks per batch.
        driver: random name of this start.
    """

    def __init__(self, place: Place, sink_id: str, partitions: int, driver: str) -> None:
        self.partitions = partitions
        self._catalog, self._keys, self._driver = Catalog(place), Keys(sink_id), driver
        self._commits: Commits | None = None
        self._wanted: Schema | None = None
        self._marks: dict[int, Mark] = {}

    def check_schema(self, schema: StructType) -> None:
        """See `Sink.check_schema`; `start` compares the columns with an existing table's."""
        self._wanted = iceberg_schema(schema)

    def identity(self) -> Mapping[str, str]:
        """See `Sink.identity`: the UUID that the table got when it was made."""
        with start_without_loss(self._catalog.place):
            table = self._catalog.find()
            return {} if table is None else {"table": str(table.metadata.table_uuid)}

    def holder(self) -> Holder | None:
        """See `Sink.holder`."""
        with start_without_loss(self._catalog.place):
            table = self._catalog.find()
            return None if table is None else holder_of(table.metadata, self._keys)

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, object]]) -> None:
        """See `Sink.start`: makes or checks the table, and takes the sink_id."""
        del support, decided
        place = self._catalog.place
        with start_without_loss(place):
            table = self._catalog.find()
            if table is None and self._wanted is not None:
                table = self._catalog.make(self._wanted)
            if table is None:
                raise RefusedStart(f"there is no Iceberg table {place}. Make it, or name another one.")
            wrong = unsuitable(table.metadata)
            if wrong is None and self._wanted is not None:
                wrong = difference(table.metadata, self._wanted)
            if wrong is not None:
                raise RefusedStart(
                    f"the Iceberg table {place} does not fit: {wrong}. Nothing was written. Change the table or the "
                    "query, or name another table; a job that has run needs a new checkpoint and sink_id with it."
                )
            _refuse_read_only(table.location())
            commits = Commits(self._catalog, self._keys, self._driver, generation)
            try:
                self._marks = marks_of(commits.take(), self._keys)
            except Unanswered as error:
                raise DeliveryFailed(
                    f"the Iceberg table {place} took no commit of the start within {LIMIT_S:g} s: {error}. No row was "
                    "read or written. Look at the catalog, and for a program that holds its file; then start again."
                ) from error
        self._commits = commits

    def warm_up_writer(self) -> WarmUp:
        return WarmUp()

    def claim(self, batch: int) -> None:
        """See `Sink.claim`: the claim is a table property."""
        where = f"in the Iceberg table {self._catalog.place}"
        try:
            self._started.claim(batch)
        except (*CATALOG_ERRORS, Unanswered) as error:
            raise not_claimed(_cause(error, marked=False), f"{where}: {first_line(error)}", batch) from error

    def unacknowledged_writer(self) -> Append:
        """Returns the writer for at-most-once, see `Sink.unacknowledged_writer`.

        The marker shows a commit with a lost answer whose snapshot has expired.
        """
        return Append(self._started, marked=True)

    def acknowledged_writer(self) -> Append:
        return Append(self._started, marked=False)

    def idempotent_writer(self) -> Append:
        return Append(self._started, marked=True)

    def marks(self) -> Mapping[int, Mark]:
        """See `Sink.marks`."""
        return self._marks

    def close(self) -> None:
        """Closes the connections to the catalog."""
        self._catalog.close()

    @property
    def _started(self) -> Commits:
        assert self._commits is not None, "start() comes first"
        return self._commits


def _cause(error: BaseException, marked: bool) -> Cause:
    """Returns why a commit failed.

    Args:
        marked: whether a restart finds the rows of a commit whose answer was lost, by their marker.
    """
    if isinstance(error, NO_TABLE):
        return permanent(
            "the table was there when this driver started",
            "Restore it, or take a new checkpoint and sink_id with a new table",
        )
    if isinstance(error, Unanswered):
        return transient(f"tried for {LIMIT_S:g} s", restart=UNLESS_THERE if marked else RESTART)
    return cause_of(error)


def _refuse_read_only(location: str) -> None:
    """Raises if this user may not write below a table's location on a local disk."""
    folder = folder_of(location)
    if folder is None:
        return
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        raise RefusedStart(
            f"the folder {folder} of the Iceberg table cannot be written. Nothing was written. Give this user the "
            "right to write there, and mount the disk for writing; then start again."
        )


def open_sink(settings: SinkSettings) -> IcebergSink:
    """Returns the sink of a job's settings."""
    return IcebergSink(place_of(settings.output), settings.sink_id, settings.partitions, settings.driver)
