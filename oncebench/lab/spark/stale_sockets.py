"""Removes stale socket folders that killed pipelines left in the temp folder.

A pipeline removes its own folder unless it is killed together with the suite; then the next start removes it.

Promise: only folders are removed that belong to this user, carry a pipeline's name (`pipeline/spark/sockets.py`), and
whose pipeline is dead. Limits: if another process has the pid of the dead pipeline, the folder stays until that process
ends. The same holds if a container shares /tmp and its processes are not visible here.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

TEMP = Path("/tmp")  # noqa: S108  pipelines create theirs by mkdtemp
PROC = Path("/proc")
_NAME = re.compile(r"oncebench-[0-9a-f]{12}-(\d+)-.+")


def remove_stale_sockets(temp: Path = TEMP) -> None:
    """Removes the socket folders of dead pipelines; none without /proc, which lists processes."""
    if not (PROC / "self").exists():
        return
    for folder in temp.glob("oncebench-*"):
        name = _NAME.fullmatch(folder.name)
        if name is not None and not (PROC / name[1]).exists() and _is_mine(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_mine(folder: Path) -> bool:
    with suppress(OSError):  # another start may have removed it meanwhile
        return not folder.is_symlink() and folder.stat().st_uid == os.getuid()
    return False
