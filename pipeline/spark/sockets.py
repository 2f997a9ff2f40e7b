"""Unix sockets between Spark's JVM and its Python workers, in a folder with a short name.

Over TCP, each Python stage of a batch begins with a pause of 40 ms. The JVM's second small segment waits for the
acknowledgement of the first segment, and the worker's kernel delays this acknowledgement. SPARK-51667 describes the
same pause in Spark's state server. A job of two empty Python tasks takes 68 ms over TCP and 22 ms over Unix sockets.
Spark has them since 4.1, off by default.

Promise: only this user can read the folder, and it is removed when the pipeline ends. After a kill, the next attempt
with the same record removes it, or `sweep` does. What can go wrong: the folder does not exist on other machines, so
masters that are not local use TCP.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pipeline.config import PipelineConfig
from pipeline.spark.cluster.masters import is_local

# A socket's name has at most 107 bytes (sun_path), and Spark's own part takes 42 of them. The paths of the record's
# folder and of TMPDIR may be too long.
_PLACE = Path("/tmp")  # noqa: S108  mkdtemp makes the folder in it, readable by this user only


@contextmanager
def short_sockets(config: PipelineConfig) -> Iterator[PipelineConfig]:
    """Yields the configuration with the folder in which Spark must make its sockets."""
    if not is_local(config.master):
        yield config
        return
    sweep(config.record)
    folder = Path(tempfile.mkdtemp(prefix=f"{_prefix(config.record)}{os.getpid()}-", dir=_PLACE))
    try:
        yield replace(config, sockets=str(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(record: Path) -> None:
    """Removes the sockets of dead pipelines of this record."""
    prefix = _prefix(record)
    for left in _PLACE.glob(f"{prefix}*"):
        pid = left.name.removeprefix(prefix).split("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(left, ignore_errors=True)


def _prefix(record: Path) -> str:
    return f"oncebench-{hashlib.sha256(os.fsencode(record.absolute())).hexdigest()[:12]}-"
