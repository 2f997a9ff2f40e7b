"""Errors of the operating system by errno, for sinks that write files."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from oncebench.delivery.failures.cause import UNKNOWN, Cause, permanent, transient

ERRNOS: Mapping[int, Cause] = {
    errno.EACCES: permanent("this user lacks a right on the file or folder", "Grant the right with chmod or chown"),
    errno.EPERM: permanent("this user lacks a right on the file or folder", "Grant the right with chmod or chown"),
    errno.EROFS: permanent("the file system is mounted read-only", "Mount the file system for writing"),
    errno.EFBIG: permanent("a file would be longer than allowed", "Raise the limit (ulimit -f)"),
    errno.ENAMETOOLONG: permanent("a name is too long", "Take a shorter sink_id or folder"),
    errno.ENOTDIR: permanent("a part of the path is a file, not a folder", "Correct the path"),
    errno.EXDEV: permanent("the folder spans two file systems", "Take a folder within one file system"),
    errno.ENOSPC: transient("the disk is full", "Make room on the disk"),
    errno.EDQUOT: transient("the quota is used up", "Raise the quota, or make room"),
    errno.EIO: transient("the disk or its connection failed", "Look at the disk"),
    errno.EMFILE: transient("this process has too many open files", "Raise the limit (ulimit -n)"),
    errno.ENFILE: transient("this machine has too many open files", "Close other programs"),
    errno.ENOENT: transient("the file or folder is gone", "If the folder was removed, the next start refuses"),
    errno.ESTALE: transient("the network file system was mounted anew"),
    errno.ETIMEDOUT: transient("the network file system did not answer"),
}


def of_errno(code: int | None) -> Cause:
    """Returns the entry for an errno."""
    return UNKNOWN if code is None else ERRNOS.get(code, UNKNOWN)
