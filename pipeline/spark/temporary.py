"""Puts a pipeline's temporary files into a folder of its own, below its record.

When they are killed, Spark, RocksDB and Python leave 30 MB and more (block folders, unpacked native code). In the
system's temporary folder these files would stay forever. Here the next attempt of the pipeline removes them. What can
go wrong: the record's file system is mounted noexec, and native code cannot be loaded.
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

_PREFIX = "tmp-"  # followed by the pid of its process


@contextmanager
def own_temporary(config: PipelineConfig) -> Iterator[PipelineConfig]:
    """Puts temporary files of this process, its JVM and its workers below the record.

    Removes those of dead pipelines first. Yields the configuration with the JVM's option.
    """
    sweep_temporary(config.record)
    folder = config.record.absolute() / f"{_PREFIX}{os.getpid()}"
    folder.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = str(folder)
    tempfile.tempdir = None  # Python then reads the environment again
    try:
        yield replace(config, jvm_options=(*config.jvm_options, f"-Djava.io.tmpdir={folder}"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_temporary(record: Path) -> None:
    """Removes the temporary files of this record's dead pipelines."""
    for left in record.glob(f"{_PREFIX}*"):
        if not _alive(left.name.removeprefix(_PREFIX)):
            shutil.rmtree(left, ignore_errors=True)


def _alive(pid: str) -> bool:
    return pid.isdigit() and Path("/proc", pid).exists()
