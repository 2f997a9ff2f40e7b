"""The sockets between Spark's JVM and its Python workers: files in a folder with a short name, on one machine.

Over TCP each Python stage of a batch begins with 40 ms of silence: the JVM's second small segment waits for the first
one's acknowledgement, which the worker's kernel delays (SPARK-51667 tells of the same in Spark's state server; measured
here: a job of two empty Python tasks takes 68 ms by TCP and 22 by these). Spark has them since 4.1, off as shipped.

Promise: the folder is this user's alone, and gone when the pipeline ends; what a kill has left, the next life of the
same record or `sweep` removes. What can go wrong: on other machines than the driver's the folder is not there, so
masters that are not local stay with TCP.
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

# The name of a socket has room for 107 bytes (sun_path), and Spark's own part takes 42 of them. A record's folder may
# be deep, and so may TMPDIR.
_PLACE = Path("/tmp")  # noqa: S108  the folder in it is made by mkdtemp, readable by nobody else


@contextmanager
def short_sockets(config: PipelineConfig) -> Iterator[PipelineConfig]:
    """Yields the configuration with the folder in which Spark is to make its sockets."""
    if not config.master.startswith("local"):
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
