"""The Spark session of the pipeline: its settings, with reasons.

There are two modes of writing checkpoints. `as-shipped` is Spark's default. Without Hadoop's native library, Spark then
starts child processes for every checkpoint file on a local disk: readlink for a rename, chmod for a file and its .crc.
They cost tens of milliseconds a batch. `tuned` writes the same files without child processes, with
FileSystemBasedCheckpointFileManager and a local file system that does not fork. A rename may then replace an existing
file, so only our journal fences a second driver. A checkpoint in an object store has settings of its own, see
`oncebench.jobs.object_store`. HDFS is not supported.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from oncebench.delivery.errors import PipelineError, QueryDied, RefusedStart
from oncebench.delivery.failures.first_cause import first_cause
from oncebench.jobs.object_store import spark_settings
from oncebench.kafka_access.forms import jvm_options
from pipeline.config import CHANGELOG, TUNED, PipelineConfig
from pipeline.spark.cluster.archive import make_archive
from pipeline.spark.cluster.executors import wait_for_executors
from pipeline.spark.cluster.masters import is_local
from pipeline.spark.cluster.settings import ADDED_TO, PYTHON, cluster_settings
from pipeline.spark.jvm_names import keep_names
from pipeline.spark.local_cluster import is_local_cluster, make_home
from pipeline.spark.private_settings import start_jvm
from pipeline.spark.signals import jvm_ignores_signals

_PACKAGE = "org.apache.spark.sql.execution.streaming"
_TUNED = {
    "spark.sql.streaming.checkpointFileManagerClass": f"{_PACKAGE}.checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
}
# Parallel collection has the least overhead on few cores. In a run of minutes, the optimising compiler (C2) costs more
# processor time than it saves: after 40 s at 2,000 events/s on two cores a batch took 534 ms without it, 691 with it.
# Java gives 48 MiB to compiled code if there is only the first compiler, and 240 MiB otherwise. Spark fills 48 MiB
# within 140 batches. Java then drops code and compiles it again: one batch took 1,300 to 1,800 ms, and five more 800.
_JVM = ("-XX:+UseParallelGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
_JAVA = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
# The guarantees rest on these settings, so a job must not change them.
_FIXED = (
    "spark.task.maxFailures", "spark.speculation", "spark.stage.maxConsecutiveAttempts",
    "spark.stage.ignoreDecommissionFetchFailure", "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled",
    "spark.python.daemon.module", "spark.master", "spark.sql.execution.arrow.useLargeVarTypes",
)  # fmt: skip
# Shutdown hooks take some 0.2 s. The first start also writes an archive of classes, which takes 10 s.
END_LIMIT_S = 60.0
# 16 MiB: more than 10,000 events of the suite (150 bytes each), so only larger records make smaller batches.
ARROW_BYTES = 16 * 1024 * 1024
# What remains when Spark's master did not answer for a minute: the context has stopped itself.
_STOPPED = "Cannot call methods on a stopped SparkContext"
# Spark's default configuration prints a warning for each state look-up that finds nothing.
_LOG4J = Path(__file__).absolute().with_name("log4j2.properties").as_uri()


def settings(config: PipelineConfig, of_sink: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Returns Spark's settings: the job's own override the sink's, and those override ours."""
    java = shlex.join(
        [f"-Dlog4j2.configurationFile={_LOG4J}", *_JVM, *config.jvm_options, *jvm_options(config.kafka_client)]
    )
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
        # A failed task may have written. Therefore a new driver, which reads the marks, replays the whole batch.
        "spark.task.maxFailures": "1",
        "spark.speculation": "false",
        # The same if a previous stage's output is lost with its executor, which Spark does not count as a failed task.
        "spark.stage.maxConsecutiveAttempts": "1",
        "spark.stage.ignoreDecommissionFetchFailure": "false",
        "spark.sql.shuffle.partitions": str(config.partitions),
        # Adaptive execution would join small partitions of a query without state (SPARK-53941), and marks are kept per
        # task number.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": f"{_PACKAGE}.state.RocksDBStateStoreProvider",
        "spark.python.daemon.module": "pipeline.spark.workers",
        # A batch writes its changes of the state instead of whole RocksDB snapshots (SPARK-43421).
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": str(
            config.state_store == CHANGELOG
        ).lower(),
        # Workers hold an Arrow batch at a time. By default it has 10,000 rows, whatever their size.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BYTES),
        # Other programs on this machine must not be able to use the driver. Spark makes the secret on `local[N]`,
        # `local_cluster` makes it for separate executors, and on a cluster the operator sets it (spark-defaults.conf).
        "spark.authenticate": str(is_local(config.master)).lower(),
    }
    if is_local_cluster(config.master):
        base |= {
            "spark.executor.extraJavaOptions": java,
            "spark.executor.extraClassPath": os.pathsep.join(config.driver_jars),
            # Spark's own master has pages on loopback: other programs there must not be able to end the pipeline.
            "spark.ui.killEnabled": "false",
            "spark.master.ui.decommission.allow.mode": "DENY",
        }
    if config.sockets is not None:
        base["spark.python.unix.domain.socket.enabled"] = "true"
        base["spark.python.unix.domain.socket.dir"] = config.sockets
    tuned = _TUNED if config.checkpoint_writing == TUNED else {}
    made = {**base, **tuned, **spark_settings(config.checkpoint), **(of_sink or {})}
    own = {**config.spark, **_java_options(config)}
    if is_local(config.master):
        return {**made, **own}
    shared = cluster_settings(config)
    return {**made, **shared, **own, **{name: shared[name] for name in ADDED_TO}}


def _java_options(config: PipelineConfig) -> Mapping[str, str]:
    """Returns a job's own options of the JVMs, each with those that Kafka's client needs."""
    needed = shlex.join(jvm_options(config.kafka_client))
    own = {name: config.spark[name] for name in _JAVA if name in config.spark}
    return {name: f"{needed} {value}" for name, value in own.items()} if needed else {}


def refuse_fixed_settings(settings: Mapping[str, str], place: str = "`spark`") -> None:
    """Raises RefusedStart for a job's own settings that would break a guarantee.

    These settings would let Spark try tasks again, change their number, or change the form of their rows.

    Args:
        place: where the user has written them.
    """
    for name in _FIXED:
        if name in settings:
            raise RefusedStart(f"the guarantees rest on {name} as the pipeline sets it. Remove it from {place}.")


def refuse_task_retries(master: str) -> None:
    """Raises RefusedStart for a local master that tries failed tasks again.

    Rows that the first try prepared would stay, or be written twice. All other masters obey `spark.task.maxFailures`.
    """
    tries = re.fullmatch(r"local\[[^,]+,\s*(\d+)\s*\]", master)
    if tries is not None and int(tries[1]) > 1:
        once = master.split(",", maxsplit=1)[0] + "]"
        raise RefusedStart(f"master {master} tries failed tasks again, which breaks every guarantee. Take {once}.")


def session(config: PipelineConfig, of_sink: Mapping[str, str] | None = None) -> SparkSession:
    """Starts Spark with `settings`; workers run this interpreter and can import this package.

    Raises:
        RefusedStart: the JVM does not start, or Spark refuses its settings.
        QueryDied: Spark's master does not answer.
    """
    given = settings(config, of_sink)
    os.environ["PYSPARK_PYTHON"] = given.get(PYTHON, sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local(config.master):
        os.environ.setdefault("SPARK_LOCAL_IP", given["spark.driver.bindAddress"])
    else:
        os.environ["SPARK_LOCAL_IP"] = given["spark.driver.bindAddress"]
    home = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    if is_local_cluster(config.master):
        make_home(Path(tempfile.mkdtemp(prefix="spark-")))
    builder = SparkSession.builder.master(config.master)
    for name, value in given.items():
        builder = builder.config(name, value)
    at_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with jvm_ignores_signals():
            start_jvm({"spark.master": config.master, **given})
            spark = builder.getOrCreate()
    except (PySparkRuntimeError, OSError) as error:  # the JVM ended before it answered, or could not be run
        memory = given["spark.driver.memory"]
        raise RefusedStart(
            f"Spark's JVM did not start; the lines above have its own message. JAVA_HOME, here {_java_home()}, must "
            f"have Java 17, 21 or 25, and this machine must have the memory of spark.driver.memory, {memory}. Correct "
            "what does not fit, or the setting that those lines name, then start again."
        ) from error
    except Py4JError as error:
        raise not_started(config.master, first_cause(error)) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, at_interrupt)  # Spark's own handler would end the process with a traceback
    keep_names(spark.sparkContext._jvm)
    if not is_local(config.master):
        _share(spark, config)
    return spark


def _share(spark: SparkSession, config: PipelineConfig) -> None:
    """Gives a cluster's executors this pipeline's code, and checks that they can run it.

    Raises:
        RefusedStart, QueryDied: see `wait_for_executors`.
    """
    try:
        spark.sparkContext.addFile(str(make_archive(Path(tempfile.gettempdir()))))
        wait_for_executors(spark, config.master)
    except BaseException:
        stop(spark)
        raise


def not_started(master: str, cause: str) -> PipelineError:
    """Returns the error of a session whose JVM runs, and whose Spark does not."""
    if _STOPPED in cause:
        return QueryDied(
            f"the Spark master {master} did not take this job; the lines above say why. Check that it runs, and "
            "its address. No row was read or written; start again."
        )
    return RefusedStart(
        f"Spark did not start: {cause}. Correct `master`, `spark` or `jars`, whichever this names, then start again."
    )


def _java_home() -> str:
    return os.environ.get("JAVA_HOME") or f"not set, and java on the PATH is {shutil.which('java') or 'missing'}"


def stop(spark: SparkSession) -> None:
    """Stops Spark and returns when its JVM has ended, after END_LIMIT_S at the latest."""
    spark.stop()
    jvm = getattr(SparkContext._gateway, "proc", None)  # not needed further: a process runs one pipeline
    if jvm is not None:
        jvm.stdin.close()  # Spark's gateway ends with it
        jvm.wait(END_LIMIT_S)
