"""Makes folders that survive a power cut.

Promise: a folder made by `make_folder` exists after a power cut, with all folders above it. That is true even if an
earlier driver was killed halfway. What can go wrong: a file system without fsync of folders.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


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
