"""Makes a folder of the cache once, for all runs that need it.

Promise: the folder is complete or absent, also after a power failure. Runs that need it at the same time wait for the
first one. What a killed run has left unfinished is removed by the next run that makes something.
"""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from oncebench.downloads.cache import locked

_UNFINISHED = ".preparing-"
_RETRY_S = 86_400.0  # a failed attempt takes up to minutes, so it is repeated once a day at most
RETRY = f"The next attempt is in {_RETRY_S / 3600:.0f} hours, or at the next run if you delete"


def made_once(folder: Path, lock: str, make: Callable[[Path], object], is_made: Callable[[Path], bool]) -> None:
    """Puts `folder` into the cache, unless it is there.

    Args:
        folder: below the cache; its parent holds nothing but such folders.
        lock: the name of the lock that all runs with the same parent folder take.
        make: fills the empty folder that it gets. Its parent is a temporary folder for other files.
        is_made: whether the folder exists and needs not be made again.
    """
    if is_made(folder):
        return
    with locked(lock):
        if is_made(folder):  # another run may have made it while this run waited for the lock
            return
        folder.parent.mkdir(exist_ok=True)
        for unfinished in folder.parent.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(unfinished, ignore_errors=True)  # no other run writes to it, because this one holds the lock
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_UNFINISHED) as temporary:
            made = Path(temporary) / "made"
            made.mkdir()
            make(made)
            _sync(made)
            shutil.rmtree(folder, ignore_errors=True)  # what `is_made` has rejected
            made.rename(folder)


def has(file: Path) -> bool:
    """Whether a file has content."""
    return file.is_file() and file.stat().st_size > 0


def made_or_failed(folder: Path, optional: str) -> bool:
    """Returns whether the folder needs no attempt to make its optional file.

    The file is there, or an attempt to make it failed less than a day ago.
    """
    return folder.is_dir() and (has(folder / optional) or time.time() - folder.stat().st_mtime < _RETRY_S)


def _sync(folder: Path) -> None:
    """Writes a folder's content to the disk.

    Otherwise a power failure could leave empty files behind its name.
    """
    for path in (*folder.rglob("*"), folder):
        if not path.is_symlink():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot for a folder
                    raise
            finally:
                os.close(handle)
