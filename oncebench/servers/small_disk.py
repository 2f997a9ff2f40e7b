"""A disk of some megabytes under one folder of a run (a tmpfs), so that it can be filled and the host's never is.

Promise: it is mounted in a mount namespace of this suite's own: only the suite sees it, and what it starts from then
on; when the last of them has ended, even by SIGKILL, the kernel takes it away, and an empty folder is left. When its
context ends, the folder holds on the disk beneath what was written to it. What can go wrong: mounting needs root and is
forbidden in most containers (`cannot_mount` says why; `MissingEnvironment` where it is found out later). A namespace
belongs to a thread: one that was there before `own_namespace` (a library's pool, say) does not see the disk, but the
folder beneath.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from oncebench.errors import MissingEnvironment

# The ballast is memory of the machine: a run that needs a larger disk than this is not one for a laptop.
MOST_BYTES = 512_000_000
BALLAST = ".ballast-"  # readers of an output folder leave out names that begin with a dot
_FRESH_NAMESPACE = 0x0002_0000  # CLONE_NEWNS
_PRIVATE = (1 << 14) | (1 << 18)  # MS_REC | MS_PRIVATE
_PLAIN = 2 | 4 | 8  # MS_NOSUID | MS_NODEV | MS_NOEXEC
_LAZILY = 2  # MNT_DETACH
_SYS_ADMIN = 21  # the capability that mounting asks for


def cannot_mount() -> str | None:
    """Why no small disk can be mounted here; None: as far as can be told without trying, one can."""
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return "a small disk is mounted on Linux only"
    capabilities = int(status.split("CapEff:", 1)[1].split(None, 1)[0], 16)
    return None if capabilities >> _SYS_ADMIN & 1 else "a small disk is mounted by root only (CAP_SYS_ADMIN)"


@cache
def own_namespace() -> None:
    """Takes this thread, and all that it starts from then on, into a mount namespace of their own; once in a process,
    and better before there are other threads (see the module). Raises OSError where the kernel does not allow it."""
    # The fork of a mount namespace begins as shared as the one it comes from.
    _call("unshare", ctypes.c_int(_FRESH_NAMESPACE))
    _mount(None, Path("/"), None, _PRIVATE, None)


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[None]:
    """Mounts a disk of this size at `folder`, which must not be there yet.

    Raises:
        MissingEnvironment: the kernel does not allow it, or it would be larger than MOST_BYTES.
    """
    if size_bytes > MOST_BYTES:
        raise MissingEnvironment(
            f"a disk that is filled may have {MOST_BYTES / 1e6:.0f} MB, for it is memory, and this run would need "
            f"{size_bytes / 1e6:.0f} MB: run fewer events"
        )
    folder.mkdir(mode=0o700)
    try:
        own_namespace()
        _mount("oncebench", folder, "tmpfs", _PLAIN, f"size={size_bytes},mode=0700")
    except OSError as error:
        folder.rmdir()
        why = os.strerror(error.errno or 0)
        raise MissingEnvironment(
            f"no small disk can be mounted at {folder}: {why}. Leave the fill- faults out"
        ) from error
    try:
        yield
    finally:
        _put_beneath(folder)


def fill(disk: Path) -> Path:
    """Takes all that is free on a small disk by a file of its own, and returns it; on a full disk it is an empty one.

    Raises:
        ValueError: there is no small disk: what would be filled is the host's.
    """
    if not os.path.ismount(disk) or shutil.disk_usage(disk).total > MOST_BYTES:
        raise ValueError(f"{disk} is no small disk, and is not filled")
    taken = 0
    with NamedTemporaryFile(prefix=BALLAST, dir=disk, delete=False) as file:
        most = MOST_BYTES
        while free := min(shutil.disk_usage(disk).free, most):
            try:
                os.posix_fallocate(file.fileno(), taken, free)
                taken += free
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                most = free // 2  # somebody has written meanwhile
    return Path(file.name)


def _put_beneath(folder: Path) -> None:
    """Unmounts, and leaves what was there in the folder."""
    kept = folder.with_name(f"{folder.name}.kept")
    try:
        shutil.copytree(folder, kept, symlinks=True)
    finally:
        _call("umount2", ctypes.c_char_p(os.fsencode(folder)), ctypes.c_int(_LAZILY))
    folder.rmdir()
    kept.rename(folder)


def _mount(source: str | None, target: Path, kind: str | None, flags: int, options: str | None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    what, where, how, more = map(ctypes.c_char_p, texts)
    _call("mount", what, where, how, ctypes.c_ulong(flags), more)


def _call(name: str, *arguments: object) -> None:
    """One of the kernel's calls by its name in libc; OSError where it fails."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
