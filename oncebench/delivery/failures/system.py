"""Errors of the operating system by errno, for sinks that write files."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from oncebench.delivery.errors import DeliveryFailed
from oncebench.delivery.failures.cause import UNKNOWN, Cause, permanent, transient
from oncebench.delivery.failures.paths import at

DISK_FAILED = transient(
    "the disk or its connection failed", "Look for errors of the disk in dmesg; mend it, or mount its file system anew"
)
_LACKS = permanent(
    "this file system lacks rename, links or fsync of a folder, or takes no such name",
    "Take a folder on another file system; a job that has run needs a new checkpoint and sink_id with it",
)
_FILE = "Move that file away or, in a new job, take another folder"
ERRNOS: Mapping[int, Cause] = {
    errno.EACCES: permanent(
        "this user lacks a right on that file or folder",
        "Give this user the right to read and write there, with chmod or chown",
    ),
    errno.EPERM: permanent(
        "its owner or a flag forbids this, or the file system has no hard links",
        "Look at its owner and flags (ls -l, lsattr) or, in a new job, take a folder on another file system",
    ),
    errno.EROFS: permanent("the file system is mounted read-only", "Mount the file system for writing"),
    errno.EFBIG: permanent("a file would be longer than allowed", "Raise the limit (ulimit -f)"),
    errno.ENAMETOOLONG: permanent(
        "a name is too long",
        "Take a shorter folder or, with a new checkpoint, a shorter sink_id, which is in every name",
    ),
    errno.ENOTDIR: permanent("a part of the path is a file, not a folder", _FILE),
    errno.EEXIST: permanent("a file has the folder's name", _FILE),
    errno.EISDIR: permanent("a folder has the file's name", "Move that folder away"),
    errno.EXDEV: permanent(
        "the folder spans two file systems, and a rename is atomic only within one",
        "Put its subfolder .pending, with the files in it, on the file system of the folder",
    ),
    errno.ELOOP: permanent("the path contains a loop of symbolic links", "Correct the links"),
    errno.ENOSYS: _LACKS,
    errno.EOPNOTSUPP: _LACKS,
    errno.ENOSPC: transient("the disk is full", "Make room on the disk (see df, and df -i for the number of files)"),
    errno.EDQUOT: transient("the quota is used up", "Raise the quota, or make room"),
    errno.EIO: DISK_FAILED,
    errno.EMFILE: transient("this process has too many open files", "Raise the limit (ulimit -n)"),
    errno.ENFILE: transient("this machine has too many open files", "Close other programs"),
    errno.ENOENT: transient(
        "the file or folder is gone",
        "Run one driver per sink_id, and give every node of a cluster this folder under the same path",
    ),
    errno.ESTALE: transient("the network file system was mounted anew"),
    errno.ETIMEDOUT: transient("the network file system did not answer"),
}


def of_errno(code: int | None) -> Cause:
    """Returns the entry for an errno."""
    return UNKNOWN if code is None else ERRNOS.get(code, UNKNOWN)


def passes(error: OSError) -> bool:
    """Whether a later call may pass with the path unchanged: a full or failed disk, a limit."""
    cause = of_errno(error.errno)
    return cause is not UNKNOWN and not cause.permanent and error.errno != errno.ENOENT


def not_now(error: OSError, what: str, path: Path) -> DeliveryFailed:
    """Returns the error of a file or folder that cannot be used now.

    Args:
        error: for which `passes` is true.
        what: names the file or folder, and says what cannot be done.
        path: the file or folder that `what` names.
    """
    cause = of_errno(error.errno)
    remedy = f"{cause.remedy}, then start again." if cause.remedy else "Start again."
    return DeliveryFailed(f"{what} ({error.strerror}{at(error, path)}: {cause.reason}). {remedy}")
