"""Waits for new files in a folder, which the kernel reports (inotify(7)), without polling.

Promise: `wait` returns when a file becomes visible in one of the folders, by a rename or when its writer closes it. A
file that came between two calls ends the second call. `wait` always returns after its time limit. A file that was only
created is not reported: a reader would take the empty file for read.

What can go wrong: the kernel does not report hard links, folders that were deleted and made again, and changes that
another machine makes on a network file system. Therefore a caller must also poll from time to time. Polling also finds
folders that did not exist before.
"""

from __future__ import annotations

import errno
import sys
import time
from math import ceil
from pathlib import Path

from inotify_simple import INotify, flags

from oncebench.sinks.reader import POLL_S

NEW_FILE = flags.MOVED_TO | flags.CLOSE_WRITE


class FolderChanges:
    """Reports new files in some folders, which need not exist yet; see `Changes`."""

    def __init__(self, inotify: INotify, folders: tuple[Path, ...]) -> None:
        self._inotify, self._unwatched = inotify, list(folders)

    def wait(self, at_most_s: float) -> None:
        """See `Changes.wait`. Returns at once if a folder is new, because it may hold files already."""
        try:
            found = self._watch()
        except OSError:  # the kernel has no watches left: poll instead
            time.sleep(min(POLL_S, at_most_s))
            return
        if not found:
            self._inotify.read(timeout=ceil(at_most_s * 1000))

    def close(self) -> None:
        """See `Changes.close`."""
        self._inotify.close()

    def _watch(self) -> bool:
        """Watches folders that exist by now; returns whether there was one."""
        before = len(self._unwatched)
        self._unwatched = [folder for folder in self._unwatched if not self._watched(folder)]
        return len(self._unwatched) < before

    def _watched(self, folder: Path) -> bool:
        try:
            self._inotify.add_watch(folder, NEW_FILE)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            return False
        return True


def changes_in(*folders: Path) -> FolderChanges | None:
    """Returns None if there are no reports: not on Linux, or no inotify instance is left."""
    if sys.platform != "linux":
        return None
    try:
        return FolderChanges(INotify(), folders)
    except OSError:
        return None
