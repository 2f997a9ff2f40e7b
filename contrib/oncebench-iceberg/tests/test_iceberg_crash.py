"""A job that is killed (SIGKILL) after a commit, and a table that other programs change before the restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from iceberg_tables import Tables
from oncebench_iceberg.catalogs.local import LocalPlace

from oncebench.downloads.java import find_java

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2 * 900)]

LIMIT_S = 900.0  # a start of Spark takes 10 s, on a busy machine minutes
# One batch per file of lines. Kills itself when the table has the batch, before Spark notes it.
JOB = """
import os, signal, sys
from pathlib import Path
from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.jobs import deliver
from oncebench.jobs.session import AT_START, SHUFFLES
from oncebench_iceberg.commit import Commits
from oncebench_iceberg.job import IcebergTable
from pyspark.sql import SparkSession

folder, killed_at, append = Path(sys.argv[1]), int(sys.argv[2]), Commits.append

def appends(self, files, marker):
    append(self, files, marker)
    if marker.batch == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)

Commits.append = appends
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
for name, value in {**AT_START, SHUFFLES: "2", "spark.sql.session.timeZone": "UTC"}.items():
    session = session.config(name, value)
spark = session.getOrCreate()
read = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "input"))
rows = read.selectExpr("value AS key", "length(value) AS n").repartition(2, "key")
sink = IcebergTable(str(folder / "warehouse"), "shop.orders", sink_id="job")
writer = deliver(rows, sink, guarantee=EXACTLY_ONCE, checkpoint=folder / "checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
"""


def run_job(folder: Path, killed_at: int = -1) -> tuple[int, str]:
    """Runs the job until its input is read, or until it is killed; returns its exit code and its messages."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-c", JOB, str(folder), str(killed_at)]
    with (folder / "job.log").open("w+") as log:
        ended = subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=LIMIT_S, check=False)
        log.seek(0)
        return ended.returncode, log.read()


def write(folder: Path, *lines: str) -> None:
    (folder / "input").mkdir(exist_ok=True)
    (folder / "input" / f"{lines[0]}.txt").write_text("\n".join(lines))


def test_a_killed_job_repeats_nothing_in_a_table_others_changed(tmp_path: Path) -> None:
    tables = Tables(LocalPlace(tmp_path / "warehouse", "shop.orders"))
    write(tmp_path, "a", "b")
    code, messages = run_job(tmp_path, killed_at=0)
    assert code == -signal.SIGKILL, messages
    assert tables.keys() == ["a", "b"]
    assert not (tmp_path / "checkpoint" / "commits" / "0").exists()

    tables.load().overwrite(tables.load().scan().to_arrow())  # a compaction: the same rows in another file
    tables.append_by_other("a", "other")  # another writer, also with a row of ours
    tables.expire_all_but_newest()  # neither the batch's snapshot nor its summary is left
    before = tables.keys()
    assert before == ["a", "a", "b", "other"]

    write(tmp_path, "c")
    code, messages = run_job(tmp_path)
    assert code == 0, messages
    assert tables.keys() == sorted([*before, "c"])
