"""The folder for downloads, and the lock with which parallel runs share it.

Promise: `cache_dir()` creates nothing. `locked()` is exclusive between processes. The kernel releases the lock when its
holder dies, so a killed run never leaves the cache locked.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from oncebench.disk_errors import refuse_marks
from oncebench.errors import MissingEnvironment

CACHE_VARIABLE = "ONCEBENCH_CACHE"


def cache_dir() -> Path:
    """The folder for downloads: ``$ONCEBENCH_CACHE``, else the user's cache folder.

    Raises `MissingEnvironment` if the user has no home, and for a path that separates the jars of a list: Java's class
    path (a colon), or Spark's and Kafka's lists (a comma).
    """
    override = os.environ.get(CACHE_VARIABLE)
    try:
        folder = Path(override).expanduser().absolute() if override else platformdirs.user_cache_path("oncebench")
    except RuntimeError as error:  # a container whose user is not in /etc/passwd, without HOME
        raise MissingEnvironment(
            "there is no folder for downloads, because this user has no home. "
            f"Set {CACHE_VARIABLE} to a folder on a disk with a few hundred MB free, without ~"
        ) from error
    refuse_marks(folder, ",:", "Java", f"Set {CACHE_VARIABLE} to another folder")
    return folder


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """Holds the lock `name` of the cache and yields the cache folder.

    Creates the folder if necessary. Waits while another process holds the lock: that process downloads the same thing.
    """
    root = cache_dir()
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle = (root / f"{name}.lock").open("a")
    except OSError as error:
        raise MissingEnvironment(
            f"the cache folder {root} can't be written ({error.strerror}). "
            f"Set {CACHE_VARIABLE} to a folder on a disk with a few hundred MB free"
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield root
