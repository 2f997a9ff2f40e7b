"""Delta's committed reader: the rows of the data files that the table's newest version names, each file once.

Promise: what is shown of a version is shown at once, as a reader of the table sees it. What is there at the first look
is told by delta-rs, an implementation not Spark's. From there on each version is the entry in the log that has its
number, as for any program that follows a table: asking for its name takes microseconds, where delta-rs takes two
milliseconds of a core to find nothing, and six to find something.

What can go wrong: the table was compacted or vacuumed meanwhile, or cannot be understood (`ReadError`); one that is
changed so while it is followed is noticed by the next that opens it, as the read at the end of a run does.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from oncebench.delivery.errors import ReadError
from oncebench.sinks.delta.log import actions, commits, readable, version_of
from oncebench.sinks.reader import Rows, now_us, place_in_file, rows_of

# Rows of one look become Python objects: a reader that comes late takes them in pieces, each of whole versions.
FILES_A_LOOK = 50


class TableFollower:
    """The data files of a table as they are named by one version after the other."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder, self._key = folder, key
        self._seen: set[str] = set()
        self._waiting: list[list[tuple[str, int]]] = []  # files that are to be shown at once
        self._version = -1  # the newest that was looked at

    def fresh(self) -> Rows:
        """Rows of files that a version names and that were not given before."""
        try:
            self._look()
            read = [(name, ms, _columns(self._folder / name)) for name, ms in self._taken()]
        except OSError as error:
            raise ReadError(
                f"the Delta table {self._folder}: {error}. Was it compacted or vacuumed meanwhile?"
            ) from error
        seen_us = now_us()
        places = [place_in_file(name, line) for name, _, rows in read for line in range(rows.num_rows)]
        times = [ms for _, ms, rows in read for _ in range(rows.num_rows)]
        return rows_of(places, times, [row for _, _, rows in read for row in rows.to_pylist()], self._key, seen_us)

    def _look(self) -> None:
        with readable(ReadError, self._folder, "Read it again; if that fails too, its log is damaged."):
            self._look_at_table()

    def _look_at_table(self) -> None:
        if self._version < 0:
            self._open()
        while (entry := self._folder / "_delta_log" / f"{self._version + 1:020}.json").exists():
            adds = [action["add"] for action in actions(entry, "add")]
            self._show_fresh([(unquote(add["path"]), add["modificationTime"]) for add in adds])
            self._version += 1

    def _open(self) -> None:
        if not DeltaTable.is_deltatable(str(self._folder)):
            return
        table = DeltaTable(str(self._folder))
        adds = pa.table(table.get_add_actions()).select(["path", "modification_time"]).to_pylist()
        files = [(add["path"], add["modification_time"]) for add in adds]
        for shown in self._in_versions(sorted(files, key=lambda file: file[1])):
            self._show_fresh(shown)
        self._version = table.version()

    def _show_fresh(self, files: Sequence[tuple[str, int]]) -> None:
        fresh = [(name, ms) for name, ms in files if name not in self._seen]
        self._seen.update(name for name, _ in fresh)
        self._waiting += [fresh] if fresh else []

    def _taken(self) -> list[tuple[str, int]]:
        """FILES_A_LOOK of the files that wait, or one version if that has more."""
        taken: list[tuple[str, int]] = []
        while self._waiting and (not taken or len(taken) + len(self._waiting[0]) <= FILES_A_LOOK):
            taken += self._waiting.pop(0)
        return taken

    def _in_versions(self, files: list[tuple[str, int]]) -> list[list[tuple[str, int]]]:
        """The files by the version that added them; all in one where they are few, for no look tears a version then."""
        if len(files) <= FILES_A_LOOK:
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
        """Data files with rows that no version names: of writers that died before their commit."""
        self._look()
        named = {unquote(add["add"]["path"]) for path in commits(self._folder / "_delta_log")
                 for add in actions(path, "add")}  # fmt: skip
        found = (path for path in self._folder.glob("*.parquet") if path.name not in named | self._seen)
        return sorted(path.name for path in found if _has_rows(path))


def _columns(path: Path) -> pa.Table:
    with pq.ParquetFile(path) as file:  # a quarter of what `read_table` takes
        return file.read(use_threads=False)


def _has_rows(path: Path) -> bool:
    with suppress(pa.ArrowInvalid):  # torn: its writer died
        return bool(pq.read_metadata(path).num_rows)
    return True
