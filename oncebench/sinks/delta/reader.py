"""Delta's committed reader: returns the rows of the table's data files, each file once.

Promise: the rows of a version are returned together, as a reader of the table sees them. The first poll lists the files
with delta-rs, an implementation that is not Spark's. Later polls read the log entry with the next version's number, as
any program that follows a table. Testing for that file takes microseconds; delta-rs takes two milliseconds of a core if
there is no new version, and six if there is one.

What can go wrong: the table was compacted or vacuumed in between, or cannot be understood (`ReadError`). This reader
does not notice a compaction while it follows the table. The next reader that opens the table reports it, for example
the final read of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from oncebench.delivery.errors import ReadError
from oncebench.sinks.delta.log import actions, commits, readable, version_of
from oncebench.sinks.reader import Rows, now_us, place_in_file, rows_of

# The rows of a poll become Python objects, so a reader that starts late takes them in parts, each of complete versions.
FILES_A_POLL = 50


class TableFollower:
    """Follows the versions of a table and returns the rows of their new data files."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder, self._key = folder, key
        self._seen: set[str] = set()
        self._waiting: list[list[tuple[str, int]]] = []  # lists of files whose rows are returned together
        self._version = -1  # the newest version that was read

    def fresh(self) -> Rows:
        """Returns the rows of files that a version names and that were not returned before."""
        try:
            with self._readable():
                self._read_new_versions()
            read = [(name, ms, _columns(self._folder / name)) for name, ms in self._taken()]
        except OSError as error:
            raise ReadError(
                f"the Delta table {self._folder}: {error}. Was it compacted or vacuumed in between?"
            ) from error
        seen_us = now_us()
        places = [place_in_file(name, line) for name, _, rows in read for line in range(rows.num_rows)]
        times = [ms for _, ms, rows in read for _ in range(rows.num_rows)]
        return rows_of(places, times, [row for _, _, rows in read for row in rows.to_pylist()], self._key, seen_us)

    def _readable(self) -> AbstractContextManager[None]:
        return readable(ReadError, self._folder, "Read it again; if that fails too, its log is damaged.")

    def _read_new_versions(self) -> None:
        if self._version < 0:
            self._open()
        while (entry := self._folder / "_delta_log" / f"{self._version + 1:020}.json").exists():
            adds = [action["add"] for action in actions(entry, "add")]
            self._add_fresh([(unquote(add["path"]), add["modificationTime"]) for add in adds])
            self._version += 1

    def _open(self) -> None:
        if not DeltaTable.is_deltatable(str(self._folder)):
            return
        table = DeltaTable(str(self._folder))
        adds = pa.table(table.get_add_actions()).select(["path", "modification_time"]).to_pylist()
        files = [(add["path"], add["modification_time"]) for add in adds]
        for together in self._in_versions(sorted(files, key=lambda file: file[1])):
            self._add_fresh(together)
        self._version = table.version()

    def _add_fresh(self, files: Sequence[tuple[str, int]]) -> None:
        fresh = [(name, ms) for name, ms in files if name not in self._seen]
        self._seen.update(name for name, _ in fresh)
        self._waiting += [fresh] if fresh else []

    def _taken(self) -> list[tuple[str, int]]:
        """Takes up to FILES_A_POLL of the waiting files, or one version if it has more."""
        taken: list[tuple[str, int]] = []
        while self._waiting and (not taken or len(taken) + len(self._waiting[0]) <= FILES_A_POLL):
            taken += self._waiting.pop(0)
        return taken

    def _in_versions(self, files: list[tuple[str, int]]) -> list[list[tuple[str, int]]]:
        """Groups files by the version that added them; a few files are one group for one poll."""
        if len(files) <= FILES_A_POLL:
            return [files] if files else []
        log = self._folder / "_delta_log"
        version = {
            unquote(add["add"]["path"]): version_of(path) for path in commits(log) for add in actions(path, "add")
        }
        found: dict[int, list[tuple[str, int]]] = {}
        for file in files:
            found.setdefault(version.get(file[0], -1), []).append(file)
        return [found[number] for number in sorted(found)]

    def leftovers(self) -> list[str]:
        """Lists data files with rows that no version names: their writers died before the commit."""
        with self._readable():
            self._read_new_versions()
            named = {unquote(add["add"]["path"]) for path in commits(self._folder / "_delta_log")
                     for add in actions(path, "add")}  # fmt: skip
        found = (path for path in self._folder.glob("*.parquet") if path.name not in named | self._seen)
        return sorted(path.name for path in found if _has_rows(path))


def _columns(path: Path) -> pa.Table:
    with pq.ParquetFile(path) as file:  # takes a quarter of the time of `read_table`
        return file.read(use_threads=False)


def _has_rows(path: Path) -> bool:
    with suppress(pa.ArrowInvalid):  # torn: its writer died
        return bool(pq.read_metadata(path).num_rows)
    return True
