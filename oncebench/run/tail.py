"""Follows a JSON lines file that another process appends to, cheaply: only what is new is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Tail:
    """Reads whole lines as they come; a torn last line waits until it is whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._last: dict[str, Any] = {}

    def fresh(self) -> list[dict[str, Any]]:
        """Lines that were not returned before; what a killed writer left unfinished is passed over."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
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
