"""Waits until a name in a folder changes: the kernel says so (inotify(7)), and until then waiting costs nothing.

Promise: `wait` ends as soon as a file was shown in one of the folders, by a rename or by a writer that closed it, also
if that was before the call and after the last; and when its time is over in any case. A file that is only made, and
still empty, is not told: a reader would take it for read. What can go wrong: no word comes of a hard link, of a folder
that was deleted and made anew, nor of what another machine changes on a network file system. So its user looks from
time to time all the same, and that is also how he finds a folder that has come.
"""

from __future__ import annotations

import errno
import sys
import time
from math import ceil
from pathlib import Path

from inotify_simple import INotify, flags

from oncebench.sinks.reader import POLL_S

SHOWN = flags.MOVED_TO | flags.CLOSE_WRITE


class FolderChanges:
    """Of the names in some folders, which need not be there yet; see `reading.Changes`."""

    def __init__(self, inotify: INotify, folders: tuple[Path, ...]) -> None:
        self._inotify, self._unwatched = inotify, list(folders)

    def wait(self, at_most_s: float) -> None:
        """See `Changes.wait`; of a folder that is heard of for the first time something may have changed."""
        try:
            come = self._watch()
        except OSError:  # there are no watches left: as if nobody told
            time.sleep(min(POLL_S, at_most_s))
            return
        if not come:
            self._inotify.read(timeout=ceil(at_most_s * 1000))

    def close(self) -> None:
        """See `Changes.close`."""
        self._inotify.close()

    def _watch(self) -> bool:
        """Whether a folder has come."""
        before = len(self._unwatched)
        self._unwatched = [folder for folder in self._unwatched if not self._watched(folder)]
        return len(self._unwatched) < before

    def _watched(self, folder: Path) -> bool:
        try:
            self._inotify.add_watch(folder, SHOWN)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            return False
        return True


def changes_in(*folders: Path) -> FolderChanges | None:
    """None where nobody tells: not on Linux, or this user has as many of them as he may."""
    if sys.platform != "linux":
        return None
    try:
        return FolderChanges(INotify(), folders)
    except OSError:
        return None
