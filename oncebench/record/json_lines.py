"""JSON lines files: append to one, read one whole, follow one that grows.

Promise: a reader gets every line that a killed writer finished. A line that was cut off is skipped. If the next process
appended to that line, its own object is kept.

What can go wrong: nothing here calls fsync, so a power cut may lose the last lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from oncebench.record.validation import OBJECT, RecordError, require


@dataclass(frozen=True)
class Lines:
    """The objects of one JSON lines file."""

    items: tuple[dict[str, Any], ...]


class LineWriter:
    """Appends objects to a JSON lines file, one write per line: a kill cuts the last line only."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        if self._file.tell() and not path.read_bytes().endswith(b"\n"):
            self._file.write(b"\n")  # an earlier writer was killed inside its last line

    def append(self, item: Mapping[str, Any]) -> None:
        """Appends one object as one line."""
        self._file.write(json.dumps(item, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> LineWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_lines(path: Path, schema: Any = OBJECT) -> Lines:
    """Reads a JSON lines file; a missing file has no lines.

    Raises:
        RecordError: a line is no JSON object at all, or does not fit `schema`.
    """
    if not path.exists():
        return Lines(())
    if not path.is_file():
        raise RecordError(f"{path} is no file; take the folder from a sound copy")
    items: list[dict[str, Any]] = []
    parser = _Parser()
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        if not line.startswith(b"{"):
            raise RecordError(
                f"{path}, line {number} is no JSON object ({line[:40]!r}). Either oncebench did not write the file, or "
                "it is damaged: run the cell again, or take the folder from a sound copy"
            )
        item = parser.parse(line)
        if item is not None:
            require(item, schema, path)
            items.append(item)
    return Lines(tuple(items))


class Tail:
    """Follows a file: each call reads only what was appended since the last call.

    Callers ask many times a second, so a file that has not grown is not opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = self._size = 0
        self._last: dict[str, Any] = {}
        self._parser = _Parser()

    def fresh(self) -> list[dict[str, Any]]:
        """Returns the lines that were not returned before; a last line waits until it is finished."""
        try:
            if self._path.stat().st_size == self._size:
                return []
        except FileNotFoundError:
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._size = self._offset + len(data)
        finished = data[: data.rfind(b"\n") + 1]
        self._offset += len(finished)
        parsed = (self._parser.parse(line) for line in finished.split(b"\n"))
        found = [item for item in parsed if item is not None]
        if found:
            self._last = found[-1]
        return found

    def last(self) -> dict[str, Any]:
        """Returns the newest line; empty before the first."""
        self.fresh()
        return self._last


class AllLines:
    """All lines of a file that grows. Each line is parsed once."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self._items: tuple[dict[str, Any], ...] = ()

    def read(self) -> tuple[dict[str, Any], ...]:
        """Returns the finished lines, oldest first.

        A missing file has none. A line that is not an object is skipped.
        """
        if found := self._tail.fresh():
            self._items += tuple(found)
        return self._items


def whole_lines(text: str) -> list[str]:
    """Returns the lines of a file that is appended to, without a last line that was cut off."""
    *lines, last = text.splitlines(keepends=True) or [""]
    try:
        json.loads(last)
    except ValueError:
        return lines if not last.endswith("\n") else [*lines, last]
    return [*lines, last]


class _Parser:
    """Parses the lines of one file, in their order."""

    def __init__(self) -> None:
        self._openings: set[bytes] = set()  # how whole lines of this file begin, such as {"kind":

    def parse(self, line: bytes) -> dict[str, Any] | None:
        """Returns the object of a line, if there is one."""
        item = _object(line)
        if item is None:
            return self._appended_object(line)
        self._openings.add(line[: line.find(b":") + 1])
        return item

    def _appended_object(self, line: bytes) -> dict[str, Any] | None:
        """The object that another writer appended to a cut-off line; never a nested object."""
        starts = [line.rfind(opening, 1) for opening in self._openings if opening]
        return _object(line[max(starts) :]) if max(starts, default=-1) > 0 else None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        item = json.loads(text)
    except ValueError:
        return None
    return item if isinstance(item, dict) else None
