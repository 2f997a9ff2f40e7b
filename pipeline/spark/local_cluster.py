"""Separate executors with pip's pyspark: Spark's master `local-cluster[N,CORES,MEMORY_MB]`.

With `local[N]`, tasks run in the driver's own JVM. Here they run in N more JVMs, as on a cluster, and one of them can
die alone.

Promise: nothing is written where pyspark is installed. Spark's workers make their folders below SPARK_HOME, which is a
temporary folder of this pipeline. Driver and executors share a secret. Each start makes a new one, in a file that only
this user can read, and no command line contains it.

What can go wrong: this master is for Spark's own tests. The suite uses it to kill executors; do not use it in
production.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from pipeline.spark.home import link_spark

PREFIX = "local-cluster"
_SECRET_BYTES = 32  # as in Spark's own secrets


def is_local_cluster(master: str) -> bool:
    """Whether a master runs executors in processes of their own."""
    return master.startswith(PREFIX)


def make_home(folder: Path) -> None:
    """Makes a SPARK_HOME with links in an empty folder, and sets it for this process."""
    link_spark(folder)
    (folder / "conf").mkdir(mode=0o700)
    # Spark makes a secret itself on `local[N]` only, and here it reads none from the environment (SecurityManager).
    settings = folder / "conf" / "spark-defaults.conf"
    settings.touch(mode=0o600)
    settings.write_text(f"spark.authenticate.secret {secrets.token_hex(_SECRET_BYTES)}\n", "ascii")
    os.environ["SPARK_HOME"] = str(folder)
    os.environ["SPARK_CONF_DIR"] = str(folder / "conf")
