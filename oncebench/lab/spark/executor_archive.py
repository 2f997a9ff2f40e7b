"""Makes an archive of the classes of a cluster's executors, so that they start fast.

The archive is made once for each Java and pyspark, and kept in the cache. A pipeline on a cluster of one worker reads
two sessions, and the executor lists the classes that it loads. Another JVM then writes the archive: a worker gives an
executor 10 s to end (`ExecutorRunner`), which is not always enough to write it. Master and workers have the executors'
class path, and start from the same archive.

Promise and failures: as `class_archive`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from oncebench.downloads.cache import cache_dir
from oncebench.downloads.java import Java
from oncebench.errors import UserError
from oncebench.lab.spark.class_archive import LOG_FILE, archive_of, logged, run_two_sessions, written
from oncebench.processes import child as process
from oncebench.processes.language import in_english
from oncebench.servers.spark_cluster import JVM, Start, start_spark_cluster

# Writing takes 10 s on idle cores.
_WRITE_LIMIT_S = 120.0


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
        classes = folder / "classes.txt"
        try:
            with start_spark_cluster(folder / "cluster", java, 1, start=Start(settings)) as cluster:
                options = {"spark.executor.extraJavaOptions": f"-XX:DumpLoadedClassList={classes}"}
                own = {"master": cluster.address, "spark": options}
                failure = run_two_sessions(folder, java, class_path, environment, own)
                used = _class_path(cluster.workers[0].pid)
        except UserError as error:
            failure = logged(error, folder)
        return written(archive, failure or _dump(archive, classes, folder, java, used))

    return Start(settings, archive_of("executors", java, (), environment, write))


def _class_path(pid: int) -> str:
    """Returns the class path of a worker, which is that of its executors.

    Spark's launcher composes it.
    """
    command: list[str] = psutil.Process(pid).cmdline()
    return command[command.index("-cp") + 1]


def _dump(archive: Path, classes: Path, folder: Path, java: Java, class_path: str) -> str | None:
    """Writes the archive of listed classes; returns None or the failure."""
    command: list[str | Path] = [
        java.home / "bin" / "java", *JVM.split(), "-Xshare:dump", f"-XX:SharedClassListFile={classes}",
        f"-XX:SharedArchiveFile={archive}", "-cp", class_path,
    ]  # fmt: skip
    with process.start("the JVM that writes the archive", command, folder / LOG_FILE, env=in_english()) as jvm:
        if not jvm.wait(_WRITE_LIMIT_S):
            return f"the archive was not written within {_WRITE_LIMIT_S:g} s, probably because the machine is busy"
    code = jvm.returncode
    return None if code == 0 else f"the JVM that writes the archive ended with exit code {code}"
