"""Turns disk failures into errors that name the place and what to do.

The same applies to paths that a program misreads.

Promise: a full, read-only or forbidden disk reaches the user as `MissingEnvironment`. Every other error passes
unchanged.
"""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncebench.delivery.errors import PipelineError
from oncebench.errors import MissingEnvironment, UserError

_CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the disk is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "not permitted",
    errno.ENOENT: "the folder does not exist and cannot be made",
    errno.EISDIR: "a folder is in its place",
    errno.ENOTDIR: "a file is in its place",
    errno.EEXIST: "a file is in its place",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "its symbolic links form a circle",
    errno.EIO: "the disk reports an error",
}
# Less than any process of a run needs to continue: a broker's log segment or a state store takes more.
_FULL_BYTES = 1_000_000


@contextmanager
def disk_errors(path: Path, remedy: str = "choose another --work-dir") -> Iterator[None]:
    """Turns a disk's `OSError` into `MissingEnvironment` with the place and `remedy`.

    The message names the error's own file, or `path` if the error has none. Other errors pass.
    """
    try:
        yield
    except OSError as error:
        cause = _CAUSES.get(error.errno or 0)
        if cause is None:
            raise
        raise MissingEnvironment(
            f"{error.filename or path} can't be written: {cause}. Correct this, or {remedy}"
        ) from error


def refuse_marks(path: Path, marks: str, program: str, remedy: str = "Choose another --work-dir") -> None:
    """Raises `MissingEnvironment` for a path with one of `marks`.

    `program` would read such a path as another path.
    """
    if found := [mark for mark in marks if mark in str(path)]:
        raise MissingEnvironment(f"{program} can't use the path {path}, because it contains {found[0]!r}. {remedy}")


@contextmanager
def explain_full_disk(path: Path) -> Iterator[None]:
    """Names a full disk as the cause of an error; a child that cannot write rarely does.

    Raises:
        MissingEnvironment: something failed, and the disk of `path` is full.
    """
    try:
        yield
    except (UserError, PipelineError) as error:
        if shutil.disk_usage(path).free >= _FULL_BYTES:
            raise
        raise MissingEnvironment(
            f"the disk of {path} is full. This caused: {error}. Make room, run fewer events, or choose another "
            "--work-dir"
        ) from error
