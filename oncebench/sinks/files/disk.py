"""What an error of the file system means for an output folder, and what to do then."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncebench.delivery.errors import DeliveryFailed, RefusedStart
from oncebench.delivery.failures.cause import UNKNOWN, Cause
from oncebench.delivery.failures.paths import at
from oncebench.delivery.failures.system import of_errno


@contextmanager
def refused(folder: Path) -> Iterator[None]:
    """Converts errors of the file system at a start.

    An error becomes RefusedStart if the same start would meet it again.
    """
    try:
        yield
    except OSError as error:
        # So some file systems answer to what they lack. A batch may meet EINVAL for another reason.
        cause = of_errno(errno.EOPNOTSUPP if error.errno == errno.EINVAL else error.errno)
        kind = RefusedStart if cause.permanent else DeliveryFailed
        raise kind(f"{error_text(folder, error, cause)}, then start again. Nothing was written.") from error


def error_text(path: Path, error: OSError, cause: Cause | None = None) -> str:
    """Returns what cannot be used, why, and what to do, without a full stop."""
    cause = cause or of_errno(error.errno)
    reason = "" if cause is UNKNOWN else f": {cause.reason}"
    what = f"{error.strerror or error}{at(error, path)}{reason}"
    return f"cannot use {path} ({what}). {cause.remedy or 'Check the file system'}"
