"""Makes an archive of the classes of a cluster's executors, which halves the time of their start.

The archive is made once for each Java and pyspark, and kept in the cache. A pipeline on a cluster of one worker reads
two sessions, and the executor writes the archive when it ends. Master and workers have the executors' class path, and
start from the same archive.

Promise and failures: as `class_archive`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from oncebench.downloads.cache import cache_dir
from oncebench.downloads.java import Java
from oncebench.lab.spark.class_archive import archive_of, run_two_sessions, written
from oncebench.servers.spark_cluster import Start, start_spark_cluster

# An executor writes the archive within 5 s on idle cores. Its worker kills it after 10 s (`ExecutorRunner`).
_WRITE_LIMIT_S = 20.0
_POLL_S = 0.05


def prepare_executors(java: Java, class_path: Sequence[Path], environment: Mapping[str, str]) -> Start:
    """Returns how the processes of a cluster start fast.

    Args:
        class_path: the jars that the driver gives to the executors.
        environment: of the driver.
    """
    # The JVM compares the class path, which begins with this folder. It stays empty, as an archive requires.
    settings = cache_dir() / "spark" / "no-settings"
    settings.mkdir(parents=True, exist_ok=True)

    def write(archive: Path, folder: Path) -> str | None:
        with start_spark_cluster(folder / "cluster", java, 1, start=Start(settings)) as cluster:
            options = {"spark.executor.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive}"}
            own = {"master": cluster.address, "spark": options}
            failure = run_two_sessions(folder, java, class_path, environment, own)
            end = time.monotonic() + _WRITE_LIMIT_S
            while cluster.executors() and time.monotonic() < end:
                time.sleep(_POLL_S)
            return written(archive, failure)

    return Start(settings, archive_of("executors", java, (), environment, write))
