"""Executors beside the driver: what Spark's `local-cluster[N,CORES,MEMORY_MB]` needs of a pyspark that pip installed.

With `local[N]` tasks run in the driver's own JVM; here they run in N more JVMs, as on a cluster, and one of them can
die alone. Promise: nothing is written where pyspark is installed (Spark's workers make their folders below SPARK_HOME,
which is one of this pipeline's own, gone with its temporary files), and the secret by which driver and executors know
each other is drawn anew by each start, stands in a file that nobody else can read, and is in no command line. What can
go wrong: it is a master of Spark's own tests; this suite uses it to kill executors, and nobody should for work.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from pipeline.spark.home import link_spark

PREFIX = "local-cluster"
_SECRET_BYTES = 32  # as many as Spark draws itself


def is_local_cluster(master: str) -> bool:
    """Whether the executors of a master are processes of their own beside the driver."""
    return master.startswith(PREFIX)


def make_home(folder: Path) -> None:
    """Makes a SPARK_HOME in an empty folder, links into the installed one, and lets this process start Spark there."""
    link_spark(folder)
    (folder / "conf").mkdir(mode=0o700)
    # Spark draws a secret by itself on `local[N]` only, and takes it from no environment here (SecurityManager).
    settings = folder / "conf" / "spark-defaults.conf"
    settings.touch(mode=0o600)
    settings.write_text(f"spark.authenticate.secret {secrets.token_hex(_SECRET_BYTES)}\n", "ascii")
    os.environ["SPARK_HOME"] = str(folder)
    os.environ["SPARK_CONF_DIR"] = str(folder / "conf")
