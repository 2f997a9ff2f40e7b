"""A pipeline's temporary files in a folder of its own, below its record.

Spark, RocksDB and Python leave 30 MB and more behind when they are killed (block folders, unpacked native code). In the
system's temporary folder nobody would ever remove them; here the next life of the pipeline does. What can go wrong: the
record's file system is mounted noexec, and the native code can't be loaded.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pipeline.config import PipelineConfig

_PREFIX = "tmp-"  # then the pid of whose it is


@contextmanager
def own_temporary(config: PipelineConfig) -> Iterator[PipelineConfig]:
    """Lets this process, its JVM and its workers put temporary files below the record; removes those of the dead.

    Yields the configuration that tells the JVM.
    """
    sweep_temporary(config.record)
    folder = config.record.absolute() / f"{_PREFIX}{os.getpid()}"
    folder.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = str(folder)
    tempfile.tempdir = None  # Python asks the environment again
    try:
        yield replace(config, jvm_options=(*config.jvm_options, f"-Djava.io.tmpdir={folder}"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_temporary(record: Path) -> None:
    """Removes what dead pipelines of this record have left."""
    for left in record.glob(f"{_PREFIX}*"):
        if not _alive(left.name.removeprefix(_PREFIX)):
            shutil.rmtree(left, ignore_errors=True)


def _alive(pid: str) -> bool:
    return pid.isdigit() and Path("/proc", pid).exists()
