"""A Spark job with an Iceberg table, as a process of its own.

The job can kill itself (SIGKILL) around a commit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from oncebench.downloads.java import find_java

LIMIT_S = 900.0  # a start of Spark takes 10 s, on a busy machine minutes
LOOK_S = 0.2
# One batch per file of lines, into a local warehouse, or into the REST catalog at a URI.
JOB = """
import os, signal, sys
from pathlib import Path
from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.jobs import deliver
from oncebench.jobs.session import AT_START, SHUFFLES
from oncebench_iceberg.commit import Commits
from oncebench_iceberg.job import IcebergRestTable, IcebergTable
from pyspark.sql import SparkSession

folder, uri, killed, append = Path(sys.argv[1]), sys.argv[2], sys.argv[3], Commits.append

def appends(self, files, marker):
    if killed == f"before {marker.batch}":
        os.kill(os.getpid(), signal.SIGKILL)
    append(self, files, marker)
    if killed == f"after {marker.batch}":
        os.kill(os.getpid(), signal.SIGKILL)

Commits.append = appends
(folder / "events").mkdir(exist_ok=True)
settings = {
    **AT_START,
    SHUFFLES: "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.log.level": "INFO",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": (folder / "events").as_uri(),
}
session = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    session = session.config(name, value)
spark = session.getOrCreate()
read = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "input"))
rows = read.selectExpr("value AS key", "length(value) AS n").repartition(2, "key")
if uri:
    sink = IcebergRestTable(uri, "shop.orders", sink_id="job")
else:
    sink = IcebergTable(str(folder / "warehouse"), "shop.orders", sink_id="job")
writer = deliver(rows, sink, guarantee=EXACTLY_ONCE, checkpoint=folder / "checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
"""


def run_job(folder: Path, killed: str = "", uri: str = "", look: Callable[[], None] = lambda: None) -> tuple[int, str]:
    """Runs the job until its input is read, or until it is killed.

    Returns the job's exit code and its messages.

    Args:
        folder: of input, checkpoint and log.
        killed: `before 1` kills it when the files of batch 1 are written, `after 1` when batch 1 is committed.
        uri: of a REST catalog; empty: a local warehouse.
        look: is called from time to time while the job runs.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-c", JOB, str(folder), uri, killed]
    ends = time.monotonic() + LIMIT_S
    with (folder / "job.log").open("w+") as log:
        child = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            while child.poll() is None:
                if time.monotonic() > ends:  # else its end would look like the end that the test wants
                    raise TimeoutError(
                        f"the job has not ended within {LIMIT_S:g} s: {(folder / 'job.log').read_text()}"
                    )
                look()
                time.sleep(LOOK_S)
        finally:
            child.kill()
            child.wait()
        log.seek(0)
        return child.returncode, log.read()


def write(folder: Path, *lines: str) -> None:
    """Adds a file of lines to the input."""
    (folder / "input").mkdir(exist_ok=True)
    (folder / "input" / f"{lines[0]}.txt").write_text("\n".join(lines))
