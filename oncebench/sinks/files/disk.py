"""What an error of the file system means for an output folder, and what to do then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.failures.cause import UNKNOWN
from oncebench.delivery.failures.system import of_errno


@contextmanager
def refused(folder: Path) -> Iterator[None]:
    """Converts errors of the file system at a start to RefusedStart."""
    try:
        yield
    except OSError as error:
        raise RefusedStart(f"{error_text(folder, error)}. Nothing was written.") from error


def error_text(path: Path, error: OSError) -> str:
    """Returns what cannot be written, why, and what to do, without a full stop."""
    cause = of_errno(error.errno)
    where = "" if error.filename in (None, str(path)) else f" at {error.filename}"
    reason = "" if cause is UNKNOWN else f": {cause.reason}"
    return f"cannot write {path} ({error.strerror or error}{where}{reason}). {cause.remedy or 'Check the file system'}"
