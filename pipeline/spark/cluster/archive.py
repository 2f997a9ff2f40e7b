"""Packs the installed code into an archive for executors.

Executors may have no file of this machine.

Promise: the archive has the modules of PACKAGES, as they are installed here, and nothing else. Spark sends it to every
executor before the first task. Requirement: the executors' Python has the other packages, such as pyarrow.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

# What tasks import: the delivery library with its sinks, and the operator.
PACKAGES = ("oncebench", "pipeline")
# Executors have it in their working folder, where their Python starts.
NAME = "oncebench.zip"


def make_archive(folder: Path) -> Path:
    """Writes the archive into a folder; returns its path. Raises OSError."""
    path = folder / NAME
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            root = _folder(package)
            for source in sorted(root.rglob("*.py")):
                archive.write(source, Path(package) / source.relative_to(root))
    return path


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None, "this module is a part of it"
    return Path(spec.origin).parent
