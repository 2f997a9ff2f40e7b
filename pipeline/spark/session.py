"""The Spark session of the pipeline: what is set, and why.

Checkpoint writing comes in two ways. `as-shipped` is what Spark does by default: without Hadoop's native library,
every checkpoint file on a local disk is written by way of child processes (readlink for a rename, chmod for a file
and its .crc), which costs tens of milliseconds a batch. `tuned` writes the same files without them, by way of
FileSystemBasedCheckpointFileManager and a local file system that doesn't fork; there a rename may replace an existing
file, so that the fence against a second driver is our journal. Neither is of use on HDFS or object stores.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from oncebench.delivery.errors import RefusedStart
from pipeline.config import CHANGELOG, TUNED, PipelineConfig
from pipeline.spark.local_cluster import is_local_cluster, make_home

_PACKAGE = "org.apache.spark.sql.execution.streaming"
_TUNED = {
    "spark.sql.streaming.checkpointFileManagerClass": f"{_PACKAGE}.checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
}
# Parallel collection has the least overhead on few cores. The optimising compiler (C2) takes more processor time from a
# run of minutes than it gives back: after 40 s at 2,000 events/s on two cores a batch took 534 ms without it, 691 with.
_JVM = ("-XX:+UseParallelGC", "-XX:TieredStopAtLevel=1")
# What the guarantees rest on: not for a job's own settings.
_OURS = (
    "spark.task.maxFailures", "spark.speculation", "spark.stage.maxConsecutiveAttempts",
    "spark.stage.ignoreDecommissionFetchFailure", "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled",
    "spark.python.daemon.module", "spark.master", "spark.sql.execution.arrow.useLargeVarTypes",
)  # fmt: skip
# Shutdown hooks take some 0.2 s; writing an archive of classes, which only the first start does, 10 s.
END_LIMIT_S = 60.0
# Quiet: Spark's defaults print a warning for each state look-up that finds nothing.
_LOG4J = Path(__file__).with_name("log4j2.properties")


def settings(config: PipelineConfig, of_sink: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Spark's settings for a run: ours, the sink's, and the job's own over both."""
    java = shlex.join([f"-Dlog4j2.configurationFile=file:{_LOG4J}", *_JVM, *config.jvm_options])
    base = {
        "spark.app.name": f"oncebench {config.sink} {config.guarantee} {config.variant}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": java,
        "spark.driver.extraClassPath": os.pathsep.join(config.driver_jars),
        "spark.jars": ",".join(config.jars),
        # A task that failed may have written: the whole batch is replayed, by a new driver that looks at the marks.
        "spark.task.maxFailures": "1",
        "spark.speculation": "false",
        # The same where output of the stage before is gone, with its executor: no failure of a task in Spark's eyes.
        "spark.stage.maxConsecutiveAttempts": "1",
        "spark.stage.ignoreDecommissionFetchFailure": "false",
        "spark.sql.shuffle.partitions": str(config.partitions),
        # It would join small partitions of a query without state (SPARK-53941): marks are kept by number of task.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": f"{_PACKAGE}.state.RocksDBStateStoreProvider",
        "spark.python.daemon.module": "pipeline.spark.workers",
        # The state's changes of a batch are written instead of whole RocksDB snapshots (SPARK-43421).
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": str(
            config.state_store == CHANGELOG
        ).lower(),
        # A trigger without new data would only move the watermark, at the price of a whole batch.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # Another program on this machine must not be able to talk to the driver. Spark makes the secret itself on
        # local masters, for executors beside the driver we do; for a cluster it is the operator's to set
        # (spark-defaults.conf).
        "spark.authenticate": str(config.master.startswith("local")).lower(),
    }
    if is_local_cluster(config.master):
        base |= {
            "spark.executor.extraJavaOptions": java,
            "spark.executor.extraClassPath": os.pathsep.join(config.driver_jars),
            # Pages of Spark's own master, on loopback: another program there must not end the pipeline by a click.
            "spark.ui.killEnabled": "false",
            "spark.master.ui.decommission.allow.mode": "DENY",
        }
    if config.sockets is not None:
        base["spark.python.unix.domain.socket.enabled"] = "true"
        base["spark.python.unix.domain.socket.dir"] = config.sockets
    return {**base, **(_TUNED if config.checkpoint_writing == TUNED else {}), **(of_sink or {}), **config.spark}


def refuse_fixed_settings(settings: Mapping[str, str]) -> None:
    """Raises RefusedStart for a job's own settings that would undo a guarantee: tasks tried again, or another number of
    them, or another form of their rows."""
    for name in _OURS:
        if name in settings:
            raise RefusedStart(f"the guarantees rest on {name} as it is set here: take it out of `spark`")


def refuse_task_retries(master: str) -> None:
    """Raises RefusedStart for a local master that tries failed tasks again: what the first try has prepared would stay,
    or be written twice. (Spark heeds `spark.task.maxFailures` on all other masters.)"""
    tries = re.fullmatch(r"local\[[^,]+,\s*(\d+)\s*\]", master)
    if tries is not None and int(tries[1]) > 1:
        once = master.split(",", maxsplit=1)[0] + "]"
        raise RefusedStart(f"master {master} tries a failed task again, and no guarantee here covers that: take {once}")


def session(config: PipelineConfig, of_sink: Mapping[str, str] | None = None) -> SparkSession:
    """Starts Spark with `settings`; workers run this interpreter and find this package."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    home = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    if is_local_cluster(config.master):
        make_home(Path(tempfile.mkdtemp(prefix="spark-")))
    builder = SparkSession.builder.master(config.master)
    for name, value in settings(config, of_sink).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def stop(spark: SparkSession) -> None:
    """Stops Spark, and returns when its JVM has ended (after END_LIMIT_S at the latest)."""
    spark.stop()
    jvm = getattr(SparkContext._gateway, "proc", None)  # of no other use: a process runs one pipeline
    if jvm is not None:
        jvm.stdin.close()  # Spark's gateway ends with it
        jvm.wait(END_LIMIT_S)
