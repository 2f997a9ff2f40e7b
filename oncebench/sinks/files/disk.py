"""What an error of the file system means for an output folder, and what to do then."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncebench.delivery.errors import RefusedStart

_WHAT_TO_DO = {
    errno.ENOSPC: "Make room on the disk (see df, and df -i for the number of files)",
    errno.EDQUOT: "Raise the quota, or make room",
    errno.EACCES: "Give this user the right to write there, or take another folder",
    errno.EROFS: "Mount the file system for writing, or take another folder",
    errno.EXDEV: "Put the folder and its subfolders on one file system, because renames are atomic only within one",
    errno.ENAMETOOLONG: "Take a shorter folder or sink_id: every file's name contains the sink_id",
    errno.EEXIST: "Take another folder: a file has this name",
    errno.ENOTDIR: "Take another folder: a part of its path is a file",
    errno.ENOENT: "Run one driver per sink_id, and give every node of a cluster this folder under the same path",
}


@contextmanager
def refused(folder: Path) -> Iterator[None]:
    """Converts errors of the file system at a start to RefusedStart."""
    try:
        yield
    except OSError as error:
        raise RefusedStart(f"{error_text(folder, error)}. Nothing was written.") from error


def error_text(path: Path, error: OSError) -> str:
    """Returns what cannot be written, why, and what to do, without a full stop."""
    what_to_do = _WHAT_TO_DO.get(error.errno or 0, "Check the file system")
    return f"cannot write {path} ({error.strerror or error}). {what_to_do}"
