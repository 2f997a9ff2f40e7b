"""How much is written below a folder, by looking into it again and again.

Promise: every file that was there at a look counts once, with the largest size that it was seen at, also if it is gone
by the next. What can go wrong: a file that comes and goes between two looks is missed; of one that is written anew
under the same name only the largest size counts. Of a checkpoint neither happens: Spark names each file after its
batch, and keeps it for a hundred batches.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# A look at a thousand files takes some 5 ms, a tenth of a percent of a core; a hundred batches take longer than this.
LOOK_S = 5.0
# In the name of a file that is renamed when it is whole (Spark's file managers), and in that of its checksum.
_UNFINISHED = ".tmp"


class Written:
    """Counts what is written below `folder`, which need not be there yet."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._sizes: dict[str, int] = {}
        self._before = (0, 0)
        self._next = 0.0

    def look(self) -> None:
        """Looks, unless it has done so less than LOOK_S ago: to be called often."""
        now = self._clock()
        if now >= self._next:
            self._next = now + LOOK_S
            self._look()

    def mark(self) -> None:
        """Counts from now on."""
        self._look()
        self._before = self._all()

    def total(self) -> dict[str, int]:
        """`bytes` and `files` written since the mark, after a last look."""
        self._look()
        (size, files), (size_before, files_before) = self._all(), self._before
        return {"bytes": size - size_before, "files": files - files_before}

    def _all(self) -> tuple[int, int]:
        return sum(self._sizes.values()), len(self._sizes)

    def _look(self) -> None:
        for path, size in _files(str(self._folder)):
            self._sizes[path] = max(size, self._sizes.get(path, 0))


def _files(folder: str) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except OSError:  # not there yet, or no longer
        return
    for entry in found:
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif _UNFINISHED not in entry.name:
                yield entry.path, entry.stat(follow_symlinks=False).st_size
        except OSError:  # deleted since
            continue
