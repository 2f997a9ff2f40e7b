"""Folders on the disk: made so that a power cut takes none of them back, and their names forced.

Promise: a folder that `make_folder` has made is there after a power cut, with all folders above it; also if a driver
before this one was killed half-way. What can go wrong: a file system without fsync of folders.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def is_uri(text: str) -> bool:
    """Whether Spark (Hadoop's Path) takes this for a URI, `file:/data` say: it has a colon before its first slash.

    For Python it is a relative path: the two would work in two places.
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
    """Makes a folder, and those above it that are not there: from the top, each forced before the next is made."""
    if folder.is_dir():
        with suppress(PermissionError):  # who may not read the folder above has not made this one
            fsync_folder(folder.parent)
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_folder(folder.parent)
