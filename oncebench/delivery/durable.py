"""Makes folders that survive a power cut.

Promise: a folder made by `make_folder` exists after a power cut, with all folders above it. That is true even if an
earlier driver was killed halfway. What can go wrong: a file system without fsync of folders.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.failures.paths import at
from oncebench.delivery.failures.system import not_now, passes

# Errors that another attempt in the same place would meet again.
_WRONG_PLACE = frozenset(
    {
        errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP,
        errno.ENAMETOOLONG, errno.EOPNOTSUPP, errno.EINVAL,
    }
)  # fmt: skip


def is_uri(text: str) -> bool:
    """Whether Spark (Hadoop's Path) reads this path as a URI: a colon precedes any slash.

    For example `file:/data`. Python reads such a path as a relative path, so Spark and Python would use different
    folders.
    """
    return ":" in text.split("/", maxsplit=1)[0]


def fsync_folder(folder: Path) -> None:
    """Forces the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Makes a folder and its missing parents, from the top.

    Each folder is forced to the disk before the next one is made.
    """
    if folder.is_dir():
        with suppress(PermissionError):  # a process that may not read the folder above has not made this one
            fsync_folder(folder.parent)
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_folder(folder.parent)


@contextmanager
def refuse_wrong_place(setting: str, folder: Path) -> Iterator[None]:
    """Converts errors in a folder with files to errors that name path and reason.

    Args:
        setting: what names the folder.
        folder: of the files that are made.

    Raises:
        RefusedStart: no files can be made there.
        DeliveryFailed: the disk is full or fails, so a later attempt may pass.
    """
    try:
        yield
    except OSError as error:
        if passes(error):
            raise not_now(error, f"{setting} {folder} cannot be used", folder) from error
        if error.errno not in _WRONG_PLACE:
            raise
        raise RefusedStart(
            f"{setting} is {str(folder)!r}, and no file can be made there: {error.strerror}{at(error, folder)}. "
            "Make it a folder that this user can write or, in a new job, take another one. Its file system must have "
            "hard links and fsync."
        ) from error
