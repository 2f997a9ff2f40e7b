"""Makes a folder of the cache once, for all runs that need it.

Promise: the folder is complete or absent. Runs that need it at the same time wait for the first one. What a killed run
has left unfinished is removed by the next run that makes something.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from oncebench.downloads.cache import locked

_UNFINISHED = ".preparing-"


def made_once(folder: Path, lock: str, make: Callable[[Path], object], is_made: Callable[[Path], bool]) -> None:
    """Puts `folder` into the cache, unless it is there.

    Args:
        folder: below the cache; its parent holds nothing but such folders.
        lock: the name of the lock that all runs with the same parent folder take.
        make: fills the empty folder that it gets. Its parent is a temporary folder for other files.
        is_made: whether the folder exists and needs not be made again.
    """
    if is_made(folder):
        return
    with locked(lock):
        if is_made(folder):  # another run may have made it while this run waited for the lock
            return
        folder.parent.mkdir(exist_ok=True)
        for unfinished in folder.parent.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(unfinished, ignore_errors=True)  # no other run writes to it, because this one holds the lock
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_UNFINISHED) as temporary:
            made = Path(temporary) / "made"
            made.mkdir()
            make(made)
            shutil.rmtree(folder, ignore_errors=True)  # what `is_made` has rejected
            made.rename(folder)
