"""Notes how often a function reads the rows of a batch, and which keys it has read.

A function may read its rows several times: a count first, then the write. A fault amid the first pass would come before
the function writes. So a fault waits for the last pass, by the count of passes in an earlier batch.

Promise: a note is on disk before its rows reach the function. Tasks are processes of their own, so the notes are files
in the folder of the run. Only runs with a fault that needs the notes make them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Passes:
    """The notes about one batch. It is sent to every worker, so it must be cheap to pickle.

    Attributes:
        path: the notes are files whose names begin with this one's.
        expected: (partition, passes) of an earlier batch with rows; empty: not known.
    """

    path: Path
    expected: tuple[tuple[int, int], ...] = ()

    def begin(self, partition: int) -> bool:
        """Notes that a pass over a partition begins; returns whether it is the last one.

        The number of passes is that of an earlier batch (`expected`), or 1 if none is known.
        """
        handle = os.open(self._file(f"passes-{partition}"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, b".")
            number = os.lseek(handle, 0, os.SEEK_CUR)
        finally:
            os.close(handle)
        return number >= dict(self.expected).get(partition, 1)

    def note(self, keys: Iterable[object]) -> None:
        """Notes the keys of rows that a pass is about to hand over."""
        text = "".join(f"{key}\n" for key in dict.fromkeys(map(str, keys)))
        handle = os.open(self._file("keys"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)

    def keys(self) -> set[str]:
        """Returns the keys of the rows that the function has read so far."""
        path = self._file("keys")
        return set(path.read_text().splitlines()) if path.exists() else set()

    def take(self) -> tuple[tuple[int, int], ...]:
        """Returns (partition, passes) of the batch, and deletes the notes."""
        found: Counter[int] = Counter()
        for path in self.path.parent.glob(f"{self.path.name}.passes-*"):
            found[int(path.name.rpartition("-")[2])] = path.stat().st_size
            path.unlink()
        self._file("keys").unlink(missing_ok=True)
        return tuple(sorted(found.items()))

    def _file(self, what: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{what}")
