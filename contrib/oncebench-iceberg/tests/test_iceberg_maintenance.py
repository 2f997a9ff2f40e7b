"""A table that Spark 4.0 and Iceberg's runtime maintain.

They maintain it while the job is down, and while a batch is open.

The maintenance script needs Spark 4.0 in an environment of its own: see the docstring of `readers/by_spark.py`.
ONCEBENCH_SPARK40 names the environment's folder, with Iceberg's runtime as a jar in it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import orjson
import pytest
from iceberg_jobs import LIMIT_S, run_job, write
from iceberg_tables import EXACTLY_ONCE, Tables, marker
from oncebench_iceberg.catalogs.local import LocalPlace
from oncebench_iceberg.reader import SnapshotFollower

from oncebench.downloads.java import find_java
from oncebench.downloads.maven import jars

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3 * int(LIMIT_S))]
SCRIPT = Path(__file__).parents[1] / "maintenance" / "by_spark.py"
OLD_S = 4 * 24 * 3600  # the procedure keeps files that are younger than three days


@pytest.fixture
def spark40() -> Path:
    """The folder of the environment with Spark 4.0."""
    folder = os.environ.get("ONCEBENCH_SPARK40")
    if not folder:
        pytest.skip("needs ONCEBENCH_SPARK40")
    return Path(folder)


def maintain(spark40: Path, warehouse: Path) -> dict[str, list[dict[str, int | str]]]:
    """Runs the script; returns the rows of each procedure."""
    (runtime,) = spark40.glob("iceberg-spark-runtime-4.0_*.jar")
    (sqlite,) = (jar for jar in jars("iceberg-rest-server") if jar.name.startswith("sqlite-jdbc"))
    command = [spark40 / "bin" / "python", SCRIPT, f"{runtime}{os.pathsep}{sqlite}", warehouse, "shop.orders"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "SPARK_"))}
    environment |= {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=warehouse.parent
    )
    assert ended.returncode == 0, ended.stderr
    parts = (line.split(maxsplit=1) for line in ended.stdout.splitlines())
    return {name: json.loads(rows) for name, rows in parts}


def test_a_job_goes_on_in_a_table_that_another_engine_compacts(spark40: Path, tmp_path: Path) -> None:
    tables = Tables(LocalPlace(tmp_path / "warehouse", "shop.orders"))
    write(tmp_path, "a", "b")
    write(tmp_path, "c", "d")
    code, messages = run_job(tmp_path, "after 1")
    assert code == -signal.SIGKILL, messages
    assert not (tmp_path / "checkpoint" / "commits" / "1").exists()
    follower = SnapshotFollower(tables.place, "key")
    read = [*follower.fresh().value]
    noted = tables.properties()["oncebench.marker.job"]
    (dead,) = tables.files("of a dead driver")
    old = time.time() - OLD_S
    os.utime(dead.file_path, (old, old))
    (young,) = tables.files("of an open batch")

    done = maintain(spark40, tables.place.warehouse)
    assert done["rewrite_data_files"][0]["added_data_files_count"] == 1
    assert (
        done["expire_snapshots"][0]["deleted_data_files_count"]
        == done["rewrite_data_files"][0]["rewritten_data_files_count"]
    )
    assert [Path(str(row["orphan_file_location"])).name for row in done["remove_orphan_files"]] == [
        Path(dead.file_path).name
    ]
    assert Path(young.file_path).exists()
    assert len(tables.load().metadata.snapshots) == 1
    assert tables.properties()["oncebench.marker.job"] == noted

    write(tmp_path, "e")
    code, messages = run_job(tmp_path)
    assert code == 0, messages
    assert tables.keys() == ["a", "b", "c", "d", "e"]
    while found := [*follower.fresh().value]:
        read += found
    assert sorted(orjson.loads(value or b"")["key"] for value in read) == ["a", "b", "c", "d", "e"]


def test_a_running_driver_commits_after_another_engines_compaction(spark40: Path, tables: Tables) -> None:
    driver, follower = tables.started("one", 1), SnapshotFollower(tables.place, "key")
    for batch, key in enumerate("abc"):
        driver.append(tables.files(key), marker(batch))
    read = [*follower.fresh().value]
    files = tables.files("d")
    maintain(spark40, tables.place.warehouse)
    driver.append(files, marker(3))
    read += [*follower.fresh().value]
    assert [orjson.loads(value or b"")["key"] for value in read] == ["a", "b", "c", "d"]
    assert tables.keys() == ["a", "b", "c", "d"]
    successor = tables.sink("two")
    successor.start(EXACTLY_ONCE, 2, [])
    assert [mark.batch for mark in successor.marks().values()] == [3]
