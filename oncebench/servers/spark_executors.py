"""Finds Spark's executors among processes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil

# The main class of an executor's JVM.
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def executors_among(pids: Iterable[int]) -> list[psutil.Process]:
    """Returns the executors' JVMs among these processes, ordered by pid."""
    found = []
    for pid in sorted(pids):
        with suppress(psutil.Error):  # the process may have ended meanwhile
            process = psutil.Process(pid)
            if EXECUTOR in process.cmdline():
                found.append(process)
    return found
