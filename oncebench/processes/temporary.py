"""Gives a JVM a folder of its own for temporary files.

A JVM unpacks native code there (RocksDB: 15 MB) and deletes it when it ends. A killed JVM leaves the files. In the
system's temporary folder they would stay for ever; here the next start of the same program removes them, and the rest
is deleted with the run's folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from oncebench.disk_errors import disk_errors


def emptied(folder: Path) -> Path:
    """Deletes what a killed process has left in `folder`, and returns the folder.

    Creates the folder if it is missing.
    """
    shutil.rmtree(folder, ignore_errors=True)
    with disk_errors(folder.parent):
        folder.mkdir(parents=True)
    return folder


def jvm_option(folder: Path) -> str:
    """Returns the option that puts a JVM's temporary files into `folder`."""
    return f"-Djava.io.tmpdir={folder.absolute()}"
