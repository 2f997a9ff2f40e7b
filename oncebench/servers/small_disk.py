"""A small disk (tmpfs) under one folder of a run, which a fault can fill.

The host's disk is never filled.

Promise: the disk is mounted in the suite's own mount namespace. Only the suite and the processes that it starts later
see the disk. When the last of them has ended, even by SIGKILL, the kernel removes the disk and leaves an empty folder.
When the context of the disk ends, its content is copied to the folder on the host's disk.

Failure modes: mounting needs root, and most containers forbid it. `cannot_mount` returns the reason;
`MissingEnvironment` is raised if only the attempt shows it. A namespace belongs to a thread. A thread that is older
than `own_namespace`, for example in a library's pool, sees the host's folder instead of the disk.
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

# The disk is memory of the machine. A run that needs a larger disk is too large for a laptop.
MOST_BYTES = 512_000_000
BALLAST = ".ballast-"  # readers of an output folder skip names that begin with a dot
_FRESH_NAMESPACE = 0x0002_0000  # CLONE_NEWNS
_PRIVATE = (1 << 14) | (1 << 18)  # MS_REC | MS_PRIVATE
_PLAIN = 2 | 4 | 8  # MS_NOSUID | MS_NODEV | MS_NOEXEC
_LAZILY = 2  # MNT_DETACH
_SYS_ADMIN = 21  # the capability that mounting needs


def cannot_mount() -> str | None:
    """Why no small disk can be mounted here; None if that looks possible without an attempt."""
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return "a small disk is mounted on Linux only"
    capabilities = int(status.split("CapEff:", 1)[1].split(None, 1)[0], 16)
    return None if capabilities >> _SYS_ADMIN & 1 else "a small disk is mounted by root only (CAP_SYS_ADMIN)"


@cache
def own_namespace() -> None:
    """Moves this thread, and everything that it starts later, into a new mount namespace.

    It acts once per process. Call it before there are other threads (see the module docstring). Raises OSError if the
    kernel forbids it.
    """
    # A new mount namespace still shares mounts with the old one, so mounts are made private.
    _call("unshare", ctypes.c_int(_FRESH_NAMESPACE))
    _mount(None, Path("/"), None, _PRIVATE, None)


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[None]:
    """Mounts a disk of this size at `folder`, which must not exist yet.

    Raises:
        MissingEnvironment: the kernel forbids it, or the disk would be larger than MOST_BYTES.
    """
    if size_bytes > MOST_BYTES:
        raise MissingEnvironment(
            f"a small disk is memory and may have {MOST_BYTES / 1e6:.0f} MB, but this run would need "
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
            f"no small disk can be mounted at {folder}: {why}. Leave out the fill- faults"
        ) from error
    try:
        yield
    finally:
        _unmount_and_keep(folder)


def fill(disk: Path) -> Path:
    """Fills a small disk with one file and returns the file. On a full disk the file is empty.

    Raises:
        ValueError: the folder is no small disk, so the host's disk would be filled.
    """
    if not os.path.ismount(disk) or shutil.disk_usage(disk).total > MOST_BYTES:
        raise ValueError(f"{disk} is no small disk, so it is not filled")
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
                most = free // 2  # another process has written meanwhile
    return Path(file.name)


def _unmount_and_keep(folder: Path) -> None:
    """Unmounts the disk and puts its content into the folder."""
    kept = folder.with_name(f"{folder.name}.kept")
    try:
        shutil.copytree(folder, kept, symlinks=True)
    finally:
        _call("umount2", ctypes.c_char_p(os.fsencode(folder)), ctypes.c_int(_LAZILY))
    folder.rmdir()
    kept.rename(folder)


def _mount(source: str | None, target: Path, kind: str | None, flags: int, options: str | None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    c_source, c_target, c_kind, c_options = map(ctypes.c_char_p, texts)
    _call("mount", c_source, c_target, c_kind, ctypes.c_ulong(flags), c_options)


def _call(name: str, *arguments: object) -> None:
    """Calls a libc function. Raises OSError if it fails."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
