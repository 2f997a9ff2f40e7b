"""A Spark job with a table in an object store, killed (SIGKILL) before and after a commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from iceberg_s3 import SECRET, lake
from iceberg_tables import Tables
from oncebench_iceberg.catalogs.rest import RestPlace
from oncebench_iceberg.reader import SnapshotFollower

from oncebench.downloads.java import find_java

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3 * 900)]

LIMIT_S = 900.0  # a start of Spark takes 10 s, on a busy machine minutes
LOOK_S = 0.2
# One batch per file of lines. Kills itself before or after the commit of a batch.
JOB = """
import os, signal, sys
from pathlib import Path
from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.jobs import deliver
from oncebench.jobs.session import AT_START, SHUFFLES
from oncebench_iceberg.commit import Commits
from oncebench_iceberg.job import IcebergRestTable
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
sink = IcebergRestTable(uri, "shop.orders", sink_id="job")
writer = deliver(rows, sink, guarantee=EXACTLY_ONCE, checkpoint=folder / "checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
"""


def command_lines() -> Iterator[bytes]:
    """Yields what `ps` shows of every process."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes()
        except OSError:  # the process has ended
            continue


def run_job(folder: Path, uri: str, killed: str = "") -> int:
    """Runs the job until its input is read, or until it is killed; returns its exit code."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-c", JOB, str(folder), uri, killed]
    ends = time.monotonic() + LIMIT_S
    with (folder / "job.log").open("a") as log:
        child = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            while child.poll() is None and time.monotonic() < ends:
                assert not any(SECRET.encode() in line for line in command_lines())
                time.sleep(LOOK_S)
        finally:
            child.kill()
            child.wait()
    return child.returncode


def test_a_killed_job_writes_each_row_once_to_s3_and_shows_no_key(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "input" / f"{name}.txt").write_text(f"{name}1\n{name}2\n{name}3")
        time.sleep(0.01)  # Spark takes the oldest file first
    with lake(tmp_path / "lake") as running:
        uri, log = running.catalog.uri, tmp_path / "job.log"
        tables = Tables(RestPlace(uri, "shop.orders"))
        assert run_job(tmp_path, uri, "after 0") == -signal.SIGKILL, log.read_text()
        assert len(tables.keys()) == 3
        assert not (tmp_path / "checkpoint" / "commits" / "0").exists()
        follower = SnapshotFollower(tables.place, "key")
        read = [*follower.fresh().value]
        assert run_job(tmp_path, uri, "before 1") == -signal.SIGKILL, log.read_text()
        assert len(tables.keys()) == 3
        assert len(follower.leftovers()) > 0, "the tasks of batch 1 have written their files"
        assert run_job(tmp_path, uri) == 0, log.read_text()
        expected = sorted(f"{name}{number}" for name in "abc" for number in (1, 2, 3))
        assert tables.keys() == expected
        while found := [*follower.fresh().value]:
            read += found
        assert sorted(orjson.loads(value or b"")["key"] for value in read) == expected
    with_secret = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert with_secret == []
    assert list((tmp_path / "events").iterdir())
