"""Names in a folder of output files: which files readers see, and where the others are."""

from __future__ import annotations

import os
from pathlib import Path

PENDING = ".pending"
SPARK_METADATA, SPARK_TEMPORARY = "_spark_metadata", "_temporary"
HIDDEN = (".", "_")


def names_in(folder: Path) -> set[str]:
    """Returns the files that are visible in a folder; none if there is no folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if not entry.name.startswith(HIDDEN) and entry.is_file()}
    except FileNotFoundError:
        return set()
