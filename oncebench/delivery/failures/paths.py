"""The path that an error of the operating system is about."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_RIGHTS = os.R_OK | os.W_OK


def in_the_way(error: OSError) -> Path | None:
    """Returns the path that must change before the call can pass; None if the error names none.

    An error names the path of its call: that path may be below a file, in a folder without the right, or not there.
    """
    if not error.filename:
        return None
    path = Path(os.fsdecode(error.filename2 or error.filename))  # a rename is refused for its new name
    above = list(reversed(path.parents))
    if error.errno == errno.ENOTDIR:
        return next((each for each in above if each.exists() and not each.is_dir()), path)
    if error.errno == errno.EACCES:
        closed = (each for each in above if each.is_dir() and not os.access(each, os.X_OK))
        inner = path.parent if not os.path.lexists(path) or os.access(path, _RIGHTS) else path
        return next(closed, inner)
    return path


def at(error: OSError, path: Path) -> str:
    """Returns ` at ..` with the path that is in the way of an error.

    Empty if the error names no path, or if the reader has this path already.
    """
    found = in_the_way(error)
    return "" if found in (None, path) else f" at {found}"
