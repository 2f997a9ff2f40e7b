"""The file sinks' committed reader: reads a folder, or the files in `_spark_metadata`.

Promise: a file is read once and completely, when its name is first seen. Names that begin with `.` or `_` are left out.
In a folder of Spark's own streaming sink, only the files that its log names count, as they do for Spark.
`respect_metadata=False` reads such a folder as every other program does, for comparison.

What can go wrong: with `respect_metadata=False` a file may be read while Spark is still writing it. A file may
disappear between two polls; the audit reports rows that were seen and disappear.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from oncebench.sinks.files.folder import HIDDEN, PENDING, SPARK_METADATA, SPARK_TEMPORARY, names_in
from oncebench.sinks.files.formats import Content, Format
from oncebench.sinks.folder_events import changes_in
from oncebench.sinks.reader import Rows, Snapshots, now_us, place_in_file, rows_of

# A folder's time stamp has steps of up to 10 ms, so a younger stamp may hide a later change.
STAMP_NS = 50_000_000


class FolderReader:
    """The functions that `Snapshots` needs; see the module."""

    def __init__(self, form: Format, folder: Path, key: str, *, respect_metadata: bool = True) -> None:
        self._form, self._folder, self._key = form, folder, key
        self._metadata = folder / SPARK_METADATA if respect_metadata else None
        self._read: set[str] = set()
        self._stamp: tuple[Path, int] | None = None

    def fresh(self) -> Rows:
        """Returns the rows of files that are new since the last call."""
        read: list[tuple[str, int, Content]] = []
        for name in sorted(self._fresh_names()):
            path = self._folder / name
            try:
                stamp_ms = path.stat().st_mtime_ns // 1_000_000
                read.append((name, stamp_ms, self._form.read(path)))
            except FileNotFoundError:  # removed after it was listed
                continue
            self._read.add(name)
        seen_us = now_us()
        places: list[tuple[int, int]] = []
        written_ms: list[int] = []
        rows: list[dict[str, Any]] = []
        for name, stamp_ms, content in read:
            found = content()
            places += [place_in_file(name, line) for line in range(len(found))]
            written_ms += [stamp_ms] * len(found)
            rows += found
        return rows_of(places, written_ms, rows, self._key, seen_us)

    def leftovers(self) -> list[str]:
        """Lists invisible files: prepared, temporary ones of Spark, and those not in Spark's log."""
        hidden = [
            path.relative_to(self._folder)
            for below in (PENDING, SPARK_TEMPORARY)
            for path in (self._folder / below).rglob("*")
            if path.is_file() and not path.name.startswith(HIDDEN)
        ]
        unnamed = names_in(self._folder) - self._visible()
        return sorted([f"temporary file {path}" for path in hidden] + [f"unreferenced file {name}" for name in unnamed])

    def _fresh_names(self) -> set[str]:
        """Returns new names; one call of stat is enough if folder and Spark's log are unchanged."""
        log = self._log()
        watched = self._folder if log is None else log
        now = time.time_ns()
        try:
            changed = watched.stat().st_mtime_ns
        except FileNotFoundError:
            return set()
        if self._stamp == (watched, changed):
            return set()
        names = self._visible()
        self._stamp = (watched, changed) if now - changed > STAMP_NS else None
        return names - self._read

    def _visible(self) -> set[str]:
        log = self._log()
        return names_in(self._folder) if log is None else set(named_in(log))

    def _log(self) -> Path | None:
        return self._metadata if self._metadata is not None and self._metadata.is_dir() else None


def named_in(log: Path) -> Iterable[str]:
    """Yields the files that Spark's log names.

    Batch N is the log file `N`, or `N.compact`, which also contains all earlier batches.
    """
    batches: dict[int, str] = {}
    for name in names_in(log):
        number, _, compacted = name.partition(".")
        if number.isdecimal() and (compacted == "compact" or int(number) not in batches):
            batches[int(number)] = name
    for _, name in sorted(batches.items()):
        for line in (log / name).read_text("utf-8").splitlines()[1:]:  # the first line is the log's version
            yield Path(unquote(urlsplit(json.loads(line)["path"]).path)).name


def read_folder(form: Format, folder: Path, key: str, *, respect_metadata: bool = True) -> Snapshots:
    """Returns a reader of a folder of files; `key` is the field that is the key of a row."""
    reader = FolderReader(form, folder, key, respect_metadata=respect_metadata)
    return Snapshots(reader.fresh, reader.leftovers, changes=changes_in(folder, folder / SPARK_METADATA))
