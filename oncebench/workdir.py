"""The work dir: the folder of a run, and the only place where files are deleted.

Promise: a work dir belongs to one run at a time. Its lock is exclusive, and the kernel releases the lock when the
process dies. Only its owner can read the folder (0700). Nothing is deleted outside a folder that carries the suite's
own marker file. No symbolic link is followed out of such a folder.

Failures, each a clear `UserError`: the folder belongs to somebody else, is in use, was used by an earlier run, or is
on a read-only or full disk.
"""

import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from oncebench.disk_errors import disk_errors
from oncebench.errors import ExitCode, MissingEnvironment, UserError

WORK_FOLDER_FILE = "oncebench-work.json"
_SCHEMA = 1
_PRIVATE = 0o700
# Files that a run (alone or in a series), a load or timed batches leave behind.
_USED = ("cell.json", "cells/*/cell.json", "load.jsonl", "load.json", "plan.json")


class WorkDir:
    """A locked work dir, made by `open_work_dir`.

    The lock is held until `close` or the end of the context. If an error ends the context, the folder is removed
    again, provided that it was made for this work dir and is still empty.
    """

    def __init__(self, path: Path, lock: IO[str], made: bool = False) -> None:
        self.path = path
        self._lock = lock
        self._made = made

    def close(self) -> None:
        """Releases the lock; the files stay."""
        self._lock.close()

    def delete(self) -> None:
        """Deletes the work dir and everything in it, the marker last, and releases the lock."""
        for child in self.path.iterdir():
            if child.name != WORK_FOLDER_FILE:
                delete_below(self.path, child)
        (self.path / WORK_FOLDER_FILE).unlink()
        self.path.rmdir()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None and self._made and [child.name for child in self.path.iterdir()] == [WORK_FOLDER_FILE]:
                self.delete()
        except FileNotFoundError:
            pass  # somebody removed the folder; the error that ended the context matters more
        finally:
            self.close()


def open_work_dir(path: Path) -> WorkDir:
    """Makes (or reopens) and locks the work dir `path`.

    An existing folder is accepted only if it is empty or carries the marker.

    Raises:
        UserError: the folder is not a work dir (exit code 2), or is in use (the message names the pid).
        MissingEnvironment: the folder can't be written.
    """
    with disk_errors(path):
        made = not path.exists()
        path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        path = path.resolve()
        marker = path / WORK_FOLDER_FILE
        if not marker.is_file() and any(path.iterdir()):
            raise UserError(
                f"{path} contains files but no {WORK_FOLDER_FILE}, so it is not a work dir of this suite. "
                "Choose a folder that is empty or does not exist yet",
                exit_code=ExitCode.USAGE,
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
            holder = "another process"  # the holder has not written its pid yet
        raise UserError(
            f"the work dir {path} is in use by {holder}. Wait until it ends, or choose another --work-dir"
        ) from None


def refuse_used(path: Path) -> None:
    """Refuses an open work dir that holds files of an earlier command.

    Call this before anything is started: the files would be mixed up with those of the new run.

    Raises:
        UserError: there are such files (exit code 2).
    """
    found = next((file for pattern in _USED for file in sorted(path.glob(pattern))), None)
    if found is not None:
        raise UserError(
            f"the work dir {path} was used by an earlier command: it contains {found.relative_to(path)}. "
            "Choose another --work-dir",
            exit_code=ExitCode.USAGE,
        )


def delete_below(marked: Path, target: Path) -> None:
    """Deletes the file or tree `target`, which must lie below the work dir `marked`.

    Links are removed, not followed. A missing `target` is ignored.

    Raises:
        UserError: `marked` carries no marker, or `target` does not really lie below it; nothing is deleted.
    """
    if not (marked / WORK_FOLDER_FILE).is_file():
        raise UserError(f"nothing is deleted below {marked}: it carries no {WORK_FOLDER_FILE}")
    real = target.parent.resolve() / target.name  # the target itself may be a link: then the link is removed
    root = marked.resolve()
    if target.name in ("", ".", "..") or root not in real.parents or real == root / WORK_FOLDER_FILE:
        raise UserError(f"{target} is not deleted: it does not lie below the work dir {marked}")
    if real.is_dir() and not real.is_symlink():
        shutil.rmtree(real)  # rmtree walks by folder handles, so it does not follow a link that appears meanwhile
    else:
        real.unlink(missing_ok=True)


def require_free(path: Path, needed_bytes: int) -> None:
    """Checks that the disk of the existing folder `path` has `needed_bytes` free.

    Raises:
        MissingEnvironment: it has less.
    """
    free = shutil.disk_usage(path).free
    if free < needed_bytes:
        raise MissingEnvironment(
            f"the disk of {path} has {_megabytes(free)} free; about {_megabytes(needed_bytes)} are needed. "
            "Make room, run fewer events, or choose another --work-dir"
        )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
