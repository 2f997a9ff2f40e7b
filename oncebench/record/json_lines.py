"""Follows a JSON lines file that another process appends to, cheaply: it is read only when it has grown.

Both are asked many times a second, and mostly nothing is new.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oncebench.record.streams import read_lines


class Tail:
    """Reads whole lines as they come; a torn last line waits until it is whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = self._size = 0
        self._last: dict[str, Any] = {}

    def fresh(self) -> list[dict[str, Any]]:
        """Lines that were not returned before; what a killed writer left unfinished is passed over."""
        try:
            if self._path.stat().st_size == self._size:
                return []
        except FileNotFoundError:
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._size = self._offset + len(data)
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        found = []
        for line in whole.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        if found:
            self._last = found[-1]
        return found

    def last(self) -> dict[str, Any]:
        """The newest line; empty before the first."""
        self.fresh()
        return self._last


class AllLines:
    """All lines so far, also one that stands behind what a killed writer left unfinished."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = -1
        self._items: tuple[dict[str, Any], ...] = ()

    def read(self) -> tuple[dict[str, Any], ...]:
        """The lines, oldest first; none of a file that is not there.

        Raises:
            RecordError: see `read_lines`.
        """
        size = self._path.stat().st_size if self._path.exists() else -1
        if size != self._size:
            self._items, self._size = read_lines(self._path).items, size  # grown since: read again next time
        return self._items
