"""What an error of the file system means for an output folder, and what to do then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncebench.delivery.errors import DeliveryFailed, RefusedStart
from oncebench.delivery.failures.cause import UNKNOWN
from oncebench.delivery.failures.paths import at
from oncebench.delivery.failures.system import of_errno


@contextmanager
def refused(folder: Path) -> Iterator[None]:
    """Converts errors of the file system at a start: to RefusedStart if the same start would meet it again."""
    try:
        yield
    except OSError as error:
        kind = RefusedStart if of_errno(error.errno).permanent else DeliveryFailed
        raise kind(f"{error_text(folder, error)}, then start again. Nothing was written.") from error


def error_text(path: Path, error: OSError) -> str:
    """Returns what cannot be used, why, and what to do, without a full stop."""
    cause = of_errno(error.errno)
    reason = "" if cause is UNKNOWN else f": {cause.reason}"
    what = f"{error.strerror or error}{at(error, path)}{reason}"
    return f"cannot use {path} ({what}). {cause.remedy or 'Check the file system'}"
