"""The folder in which a run keeps everything, and the only place where anything may be deleted.

Promise: a work dir belongs to one run at a time (an exclusive lock that the kernel releases when its holder dies) and
nobody else can read it (0700). Nothing is ever deleted except below a folder that carries the suite's own marker file,
and no symbolic link is followed out of it.

What can go wrong, each a clear `UserError`: the folder is somebody else's, in use, has served already, or is on a
read-only or full disk.
"""

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from oncebench.delivery.errors import PipelineError
from oncebench.errors import ExitCode, MissingEnvironment, UserError

MARKER = "oncebench-work.json"
_SCHEMA = 1
_PRIVATE = 0o700
# What a run leaves, alone or in a series; a load; timed batches.
_USED = ("cell.json", "cells/*/cell.json", "load.jsonl", "plan.json")

_DISK_TROUBLE = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the disk is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "not permitted",
    errno.ENOENT: "there is no such folder, and none can be made",
    errno.EISDIR: "there is a folder in the way",
    errno.ENOTDIR: "there is a file in the way",
    errno.EEXIST: "there is a file in the way",
}


class WorkDir:
    """A locked work dir; `open_work_dir` makes it. The lock is held until `close` or the end of its context, which
    takes the folder away again if an error ends it, the folder was made for it, and nothing was put into it."""

    def __init__(self, path: Path, lock: IO[str], made: bool = False) -> None:
        self.path = path
        self._lock = lock
        self._made = made

    def close(self) -> None:
        """Release the lock; the files stay."""
        self._lock.close()

    def delete(self) -> None:
        """Delete the work dir and everything in it, the marker last, and release the lock."""
        for child in self.path.iterdir():
            if child.name != MARKER:
                delete_below(self.path, child)
        (self.path / MARKER).unlink()
        self.path.rmdir()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None and self._made and [child.name for child in self.path.iterdir()] == [MARKER]:
                self.delete()
        except FileNotFoundError:
            pass  # somebody has removed it; what went wrong is what is to be told
        finally:
            self.close()


def open_work_dir(path: Path) -> WorkDir:
    """Make (or take again) and lock the work dir `path`.

    An existing folder is taken only if it is empty or carries the marker. Raises `UserError` if it is not ours or is
    in use (naming the pid), and `MissingEnvironment` if it can't be written.
    """
    with disk_errors(path):
        made = not path.exists()
        path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        path = path.resolve()
        marker = path / MARKER
        if not marker.is_file() and any(path.iterdir()):
            raise UserError(
                f"{path} holds files and is no work dir of this suite (there is no {MARKER} in it): "
                "choose a folder that is empty or does not exist yet"
            )
        lock = os.fdopen(os.open(marker, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+", encoding="utf-8")
        try:
            _lock(path, lock)
            path.chmod(_PRIVATE)
            lock.truncate(0)
            json.dump({"schema": _SCHEMA, "pid": os.getpid(), "opened_us": time.time_ns() // 1000}, lock)
            lock.flush()
        except BaseException:
            lock.close()
            raise
    return WorkDir(path, lock, made)


def _lock(path: Path, lock: IO[str]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            holder = f"process {json.load(lock)['pid']}"
        except (ValueError, KeyError, TypeError):
            holder = "another process"  # it has not written its name yet
        raise UserError(
            f"the work dir {path} is in use by {holder}: wait for it, or choose another --work-dir"
        ) from None


def refuse_used(path: Path) -> None:
    """To be called before anything is started in an open work dir: what an earlier command has left there would be
    taken for this one's.

    Raises:
        UserError: there is something of that kind (exit code 2).
    """
    left = next((found for mark in _USED for found in sorted(path.glob(mark))), None)
    if left is not None:
        raise UserError(
            f"the work dir {path} has served already (there is {left.relative_to(path)}): choose another --work-dir",
            exit_code=ExitCode.USAGE,
        )


def delete_below(marked: Path, target: Path) -> None:
    """Delete the file or tree `target`, which must lie below the work dir `marked`; links are removed, not followed.

    Raises `UserError` and deletes nothing if `marked` carries no marker or `target` does not really lie below it.
    Nothing happens if there is no `target`.
    """
    if not (marked / MARKER).is_file():
        raise UserError(f"nothing is deleted below {marked}: it carries no {MARKER}")
    real = target.parent.resolve() / target.name  # the target itself may be a link: the link is what would go
    root = marked.resolve()
    if target.name in ("", ".", "..") or root not in real.parents or real == root / MARKER:
        raise UserError(f"{target} is not deleted: it does not lie below the work dir {marked}")
    if real.is_dir() and not real.is_symlink():
        shutil.rmtree(real)  # walks by folder handles: a link put in its way meanwhile is not followed
    else:
        real.unlink(missing_ok=True)


def require_free(path: Path, needed_bytes: int) -> None:
    """Raise `MissingEnvironment` if the disk of the existing folder `path` has less than `needed_bytes` free."""
    free = shutil.disk_usage(path).free
    if free < needed_bytes:
        raise MissingEnvironment(
            f"the disk of {path} has {_megabytes(free)} free and about {_megabytes(needed_bytes)} are needed: "
            "make room, run fewer events, or choose another --work-dir"
        )


@contextmanager
def disk_errors(path: Path, way_out: str = "choose another --work-dir") -> Iterator[None]:
    """Turn a full, read-only or forbidden disk met inside into `MissingEnvironment` that names the place and `way_out`.

    `path` is named where the error itself names no file. Other errors pass.
    """
    try:
        yield
    except OSError as error:
        trouble = _DISK_TROUBLE.get(error.errno or 0)
        if trouble is None:
            raise
        raise MissingEnvironment(
            f"{error.filename or path} can't be written: {trouble}. Mend that, or {way_out}"
        ) from error


# Less than any of a run's processes needs to go on: a broker's log segment or a state store wants more.
_FULL_BYTES = 1_000_000


@contextmanager
def full_disk_told(path: Path) -> Iterator[None]:
    """Names a full disk as the cause of an error met inside: a child that could not write says so rarely.

    Raises:
        MissingEnvironment: something failed, and the disk of `path` is full.
    """
    try:
        yield
    except (UserError, PipelineError) as error:
        if shutil.disk_usage(path).free >= _FULL_BYTES:
            raise
        raise MissingEnvironment(
            f"the disk of {path} is full, and so {error}. Make room, run fewer events, or choose another --work-dir"
        ) from error


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
