"""The committed reader: returns the rows of the data files that each snapshot adds.

Promise: the rows of a snapshot are returned together, in the order of the snapshots. The first poll returns the rows of
the newest snapshot. A poll without a new commit reads one row of the catalog's file, or loads the table from a REST
catalog.

A compaction adds files whose rows are in the table already: the reader skips its snapshot (operation `replace`).

What can go wrong:

* Snapshots expired between two polls, the table was rolled back, or a file is gone: `ReadError`.
* A REST catalog is away: polls return nothing for AWAY_S, then `ReadError`.
* Somebody overwrites or deletes rows: the reader returns the rows of new files, and does not take rows back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow.fs import FileSelector
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from oncebench.delivery.errors import ReadError
from oncebench.sinks.reader import NotAnsweredError, Rows, now_us, place_in_file, rows_of
from oncebench_iceberg.catalogs.catalog import Catalog
from oncebench_iceberg.catalogs.errors import CATALOG_ERRORS, described, may_pass
from oncebench_iceberg.catalogs.local import folder_of
from oncebench_iceberg.catalogs.place import Place

# The rows of a poll become Python objects, so a reader that starts late takes them in parts, each of whole snapshots.
FILES_A_POLL = 50
# A restart of a catalog takes some seconds, on a busy machine half a minute.
AWAY_S = 60.0


class SnapshotFollower:
    """Follows a table and returns the rows of its new data files."""

    def __init__(self, place: Place, key: str) -> None:
        self._place, self._key, self._catalog = place, key, Catalog(place)
        self._location = ""  # the newest metadata file that was read
        self._snapshot: int | None = None  # the newest snapshot that was read
        self._waiting: list[tuple[int, list[DataFile]]] = []  # time of a snapshot (epoch ms), and its new files
        self._seen: set[str] = set()
        self._table: Table | None = None
        self._answered_s = time.monotonic()

    def fresh(self) -> Rows:
        """Returns the rows of snapshots that were not returned before."""
        with self._readable():
            if self._location and self._place.poll_s:
                time.sleep(self._place.poll_s)
            if not self._place.unchanged(self._location):
                table = self._catalog.find()
                if table is not None and table.metadata_location != self._location:
                    self._follow(table)
            taken = self._next()
            read = [(file, ms, self._columns(file)) for ms, files in taken for file in files]
        del self._waiting[: len(taken)]
        seen_us = now_us()
        places = [place_in_file(Path(file.file_path).name, line) for file, _, rows in read for line in range(len(rows))]
        times = [ms for _, ms, rows in read for _ in range(len(rows))]
        return rows_of(places, times, [row for _, _, rows in read for row in rows.to_pylist()], self._key, seen_us)

    def leftovers(self) -> list[str]:
        """Lists data files that no snapshot has named: their writers died before the commit."""
        with self._readable(waits=False):
            table = self._catalog.find()
            if table is None:
                return []
            named = {entry.data_file.file_path for each in table.snapshots() for entry in _entries(table, each)}
            there = (path for path in _data_files(table) if path.endswith(".parquet"))
            return sorted(f"orphan file {Path(path).name}" for path in there if path not in named)

    def close(self) -> None:
        """Closes the connections to the catalog."""
        self._catalog.close()

    @contextmanager
    def _readable(self, *, waits: bool = True) -> Iterator[None]:
        try:
            yield
            self._answered_s = time.monotonic()
        except CATALOG_ERRORS as error:
            if waits and may_pass(error) and time.monotonic() - self._answered_s < AWAY_S:
                raise NotAnsweredError from error
            advice = "Read it again; if that fails too, restore the table."
            raise ReadError(described(error, self._place, advice)) from error

    def _follow(self, table: Table) -> None:
        """Takes the new data files of each snapshot that was not read, oldest first."""
        self._table = table
        new: list[Snapshot] = []
        newest = table.current_snapshot()
        for snapshot in ancestors_of(newest, table.metadata):
            if snapshot.snapshot_id == self._snapshot:
                break
            new.append(snapshot)
        else:
            if self._snapshot is not None and not (new and new[-1].parent_snapshot_id == self._snapshot):
                raise ReadError(
                    f"{self._place} was rolled back, or its snapshots expired before this reader has read them: "
                    "nothing shows which rows are new. Read the table from its beginning by a new reader."
                )
        if self._snapshot is None and newest is not None:
            self._add_all(table, newest)
            new = []
        for snapshot in reversed(new):
            if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
                added = list(_entries(table, snapshot, only_new=True))
                self._add(snapshot.timestamp_ms, [each.data_file for each in added])
        # Not before: an error above must not hide a snapshot from the next poll.
        self._snapshot, self._location = None if newest is None else newest.snapshot_id, table.metadata_location

    def _add_all(self, table: Table, newest: Snapshot) -> None:
        """Takes all files of a snapshot, grouped by the snapshot that has added them."""
        by_snapshot: dict[int, list[DataFile]] = {}
        sequence: dict[int, int] = {}
        for entry in _entries(table, newest):
            by_snapshot.setdefault(entry.snapshot_id or 0, []).append(entry.data_file)
            sequence[entry.snapshot_id or 0] = entry.sequence_number or 0
        for number in sorted(by_snapshot, key=sequence.__getitem__):
            made = table.metadata.snapshot_by_id(number)
            self._add((made or newest).timestamp_ms, by_snapshot[number])

    def _add(self, ms: int, files: Sequence[DataFile]) -> None:
        fresh = sorted((file for file in files if file.file_path not in self._seen), key=lambda file: file.file_path)
        self._seen |= {file.file_path for file in fresh}
        if fresh:
            self._waiting.append((ms, fresh))

    def _next(self) -> list[tuple[int, list[DataFile]]]:
        """Returns snapshots with up to FILES_A_POLL files together, or one snapshot if it has more."""
        taken, total = 0, 0
        for _, files in self._waiting:
            total += len(files)
            if taken and total > FILES_A_POLL:
                break
            taken += 1
        return self._waiting[:taken]

    def _columns(self, file: DataFile) -> pa.Table:
        """Returns the rows of a data file under the names of the table's columns."""
        assert self._table is not None
        table = self._table
        return ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table([FileScanTask(file)])


def _data_files(table: Table) -> Iterator[str]:
    """Yields the paths of all files in a table's data folder, as snapshots name them."""
    folder = folder_of(table.location())
    if folder is not None:
        yield from map(str, Path(folder, "data").rglob("*"))
    elif isinstance(table.io, PyArrowFileIO):
        scheme, host, path = table.io.parse_location(f"{table.location()}/data")
        every = FileSelector(path, allow_not_found=True, recursive=True)
        yield from (f"{scheme}://{each.path}" for each in table.io.fs_by_scheme(scheme, host).get_file_info(every))


def _entries(table: Table, snapshot: Snapshot, *, only_new: bool = False) -> Iterator[ManifestEntry]:
    """Yields the data files that a snapshot contains.

    Args:
        only_new: only files that this snapshot has added. They are in manifests that it has written.
    """
    for manifest in snapshot.manifests(table.io):
        if only_new and manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io):
            if only_new and entry.snapshot_id != snapshot.snapshot_id:
                continue
            if entry.status != ManifestEntryStatus.DELETED:
                yield entry
