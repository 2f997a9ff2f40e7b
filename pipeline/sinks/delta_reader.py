"""Delta's committed reader: the rows of the data files that the table's newest version names, each file once.

Promise: what is shown of a version is shown at once, as a reader of the table sees it. What can go wrong: the table was
compacted or vacuumed meanwhile, or cannot be understood (`ReadError`).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pipeline.errors import ReadError
from pipeline.sinks.delta_log import COLUMNS, actions, commits, difference, readable, version_of
from pipeline.sinks.reading import Rows, place_in_file, rows_of

# Rows of one look become Python objects: a reader that comes late takes them in pieces, each of whole versions.
FILES_A_LOOK = 50


class Following:
    """The data files of a table as they are named by one version after the other, by an implementation not Spark's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._table: DeltaTable | None = None
        self._seen: set[str] = set()
        self._waiting: list[list[tuple[str, int]]] = []  # files that are to be shown at once
        self._version = -1

    def fresh(self) -> Rows:
        """Rows of files that a version names and that were not given before."""
        try:
            self._look()
            read = [(name, ms, pq.read_table(self._folder / name, columns=list(COLUMNS))) for name, ms in self._taken()]
        except OSError as error:
            raise ReadError(
                f"the Delta table {self._folder}: {error}. Was it compacted or vacuumed meanwhile?"
            ) from error
        places = [place_in_file(name, line) for name, _, rows in read for line in range(rows.num_rows)]
        times = [ms for _, ms, rows in read for _ in range(rows.num_rows)]
        return rows_of(places, times, [row for _, _, rows in read for row in rows.to_pylist()])

    def _look(self) -> None:
        with readable(ReadError, self._folder, "Read it again; if that fails too, its log is damaged."):
            self._look_at_table()

    def _look_at_table(self) -> None:
        if self._table is None:
            if not DeltaTable.is_deltatable(str(self._folder)):
                return
            if (wrong := difference(self._folder)) is not None:
                raise ReadError(f"the Delta table {self._folder} was made for other rows: {wrong}")
            self._table = DeltaTable(str(self._folder))
        else:
            self._table.update_incremental()
        if self._table.version() == self._version:
            return
        adds = pa.table(self._table.get_add_actions()).select(["path", "modification_time"]).to_pylist()
        fresh = [(add["path"], add["modification_time"]) for add in adds if add["path"] not in self._seen]
        self._seen.update(name for name, _ in fresh)
        self._waiting += self._in_versions(sorted(fresh, key=lambda file: file[1]))
        self._version = self._table.version()

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


def _has_rows(path: Path) -> bool:
    with suppress(pa.ArrowInvalid):  # torn: its writer died
        return bool(pq.read_metadata(path).num_rows)
    return True
