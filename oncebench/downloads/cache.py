"""The folder in which downloads are kept between runs, and the lock that lets parallel runs share it.

Promise: `cache_dir()` never creates anything; `locked()` is exclusive between processes and is released by the
kernel when its holder dies, so a killed run never leaves the cache locked.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from oncebench.errors import MissingEnvironment

CACHE_VARIABLE = "ONCEBENCH_CACHE"


def cache_dir() -> Path:
    """The folder for downloads: ``$ONCEBENCH_CACHE``, else the user's cache folder of this platform."""
    override = os.environ.get(CACHE_VARIABLE)
    if override:
        return Path(override).expanduser().absolute()
    return platformdirs.user_cache_path("oncebench")


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """Hold the cache's lock `name` and yield the cache folder, which exists by then.

    Waits as long as another process holds it: that process is downloading the same thing.
    """
    root = cache_dir()
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle = (root / f"{name}.lock").open("a")
    except OSError as error:
        raise MissingEnvironment(
            f"the cache folder {root} can't be written ({error.strerror}); "
            f"set {CACHE_VARIABLE} to a folder on a disk with a few hundred MB free"
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield root
