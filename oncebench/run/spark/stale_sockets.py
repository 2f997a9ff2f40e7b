"""Socket folders in /tmp that pipelines have left which were killed together with the suite: removed at the next start.

Promise: only folders of this user that are named as a pipeline names them (`pipeline/spark/sockets.py`), and whose
pipeline
is dead. What can go wrong: its number belongs to another process by now, and the folder stays until that one has ended;
or /tmp is shared with a container whose processes cannot be seen from here.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

PLACE = Path("/tmp")  # noqa: S108  pipelines make theirs by mkdtemp
PROC = Path("/proc")
_NAME = re.compile(r"oncebench-[0-9a-f]{12}-(\d+)-.+")


def sweep_left(place: Path = PLACE) -> None:
    """Removes the folders of the dead; none where nobody tells who lives (no /proc)."""
    if not (PROC / "self").exists():
        return
    for folder in place.glob("oncebench-*"):
        named = _NAME.fullmatch(folder.name)
        if named is not None and not (PROC / named[1]).exists() and _is_mine(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_mine(folder: Path) -> bool:
    with suppress(OSError):  # another start may have removed it meanwhile
        return not folder.is_symlink() and folder.stat().st_uid == os.getuid()
    return False
