"""Makes an archive of Spark's loaded classes (AppCDS), which halves the start of a pipeline.

The archive is made once for each Java and pyspark, and kept in the cache. A pipeline writes it after it has read two
sessions from a Kafka of its own. A killed pipeline recovers sooner with it, equally under every guarantee.

Promise: the archive is optional. If it is missing or the JVM refuses it, a pipeline starts more slowly. If it can't be
made (no Kafka, no room in the cache), one warning line is logged, and no command fails.
"""

import hashlib
import logging
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark

from loadgen.config import LoadConfig
from loadgen.errors import LoadError
from loadgen.producer import run_load
from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.disk_errors import disk_errors
from oncebench.downloads.cache import CACHE_VARIABLE, cache_dir
from oncebench.downloads.java import Java
from oncebench.downloads.made_once import RETRY, has, made_once, made_or_failed
from oncebench.errors import UserError
from oncebench.home import HOME
from oncebench.processes import child as process
from oncebench.processes.child import Child
from oncebench.record.json_lines import read_lines
from oncebench.record.schema import BATCH
from oncebench.servers.kafka.broker import KafkaBroker, start_kafka
from pipeline.config import PipelineConfig, write_config
from pipeline.spark.sockets import sweep

_LOG = logging.getLogger(__name__)

# Limit for Spark's start with a first batch, and for writing the archive. Each takes 10 s on an idle machine.
_TIMEOUT_S = 120.0
_POLL_S = 0.05
_SLOWER = "Spark will start more slowly, because no archive of its classes could be made"
_ARCHIVE, _MADE_FOR, LOG_FILE = "classes.jsa", "made-for", "pipeline.log"
# Writes an archive with files in a folder; returns None, or why there is no archive.
Write = Callable[[Path, Path], str | None]


def prepare_spark(java: Java, class_path: Sequence[Path], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns JVM options that make Spark start fast, for a driver with this class path.

    The archive comes from the cache, or is made now, which takes about 30 s once.
    """
    return archive_of(
        "", java, class_path, environment,
        lambda archive, folder: _write_archive(archive, folder, java, class_path, environment),
    )  # fmt: skip


def archive_of(
    user: str, java: Java, class_path: Sequence[Path], environment: Mapping[str, str], write: Write
) -> tuple[str, ...]:
    """Returns the JVM option with the archive of one kind of process; empty without an archive.

    Args:
        user: the kind of process that loads the classes; empty: the driver.
    """
    home = Path(pyspark.__file__).parent
    jars = [*class_path, *sorted((home / "jars").glob("spark-core_*.jar"))]
    # The JVM itself compares these.
    state = [
        *filter(None, (user,)),
        java.version,
        str(java.home),
        environment.get("SPARK_HOME", ""),
        *(f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars),
    ]
    folder = cache_dir() / "spark" / hashlib.sha256("\n".join(state).encode()).hexdigest()[:16]
    try:
        with disk_errors(folder, f"set {CACHE_VARIABLE} to another folder"):
            _make(folder, java, user, write)
    except (UserError, OSError) as error:
        _LOG.warning(f"{_SLOWER}: {error}")
    archive = folder / _ARCHIVE
    return (f"-XX:SharedArchiveFile={archive}",) if has(archive) else ()


def _make(folder: Path, java: Java, user: str, write: Write) -> None:
    """Puts the archive, or the log of a failed attempt, into its folder, unless it is there."""
    made_for = "\n".join(filter(None, (str(Path(pyspark.__file__).parent), str(java.home), user)))

    def make(made: Path) -> None:
        _LOG.info(
            "preparing an archive of Spark's classes for Java %s (once; 30 s, or some minutes on a busy machine)",
            java.version,
        )
        _remove_unused(folder.parent, made_for)
        (made / _MADE_FOR).write_text(made_for, "utf-8")
        failure = write(made / _ARCHIVE, made.parent)
        if failure is not None:
            shutil.copy(made.parent / LOG_FILE, made / LOG_FILE)
            _LOG.warning(_describe(failure, folder))

    made_once(folder, "spark", make, lambda found: made_or_failed(found, _ARCHIVE))


def _remove_unused(folder: Path, made_for: str) -> None:
    """Deletes unused archives, each of 180 MB.

    They are those that the new one replaces, and those of a removed pyspark.
    """
    for note in folder.glob(f"*/{_MADE_FOR}"):
        before = note.read_text("utf-8")
        if before == made_for or not Path(before.split("\n")[0]).is_dir():
            shutil.rmtree(note.parent)


def _describe(failure: str, folder: Path) -> str:
    """Returns the warning about a failed attempt, as one line."""
    return f"{_SLOWER}: {failure}. {RETRY} {folder}. See the log {folder / LOG_FILE}"


def _write_archive(
    archive: Path, folder: Path, java: Java, class_path: Sequence[Path], environment: Mapping[str, str]
) -> str | None:
    """Runs a pipeline that writes the archive; returns None, or why there is no archive."""
    own = {"jvm_options": (f"-XX:ArchiveClassesAtExit={archive}",)}
    failure = run_two_sessions(folder, java, class_path, environment, own)
    return written(archive, failure)


def written(archive: Path, failure: str | None) -> str | None:
    """Returns why there is no archive, or None. A failure leaves no half-written archive."""
    if failure is None and not archive.is_file():
        failure = "the JVM wrote no archive"
    if failure is not None:
        archive.unlink(missing_ok=True)
    return failure


def run_two_sessions(
    folder: Path, java: Java, class_path: Sequence[Path], environment: Mapping[str, str], own: Mapping[str, Any]
) -> str | None:
    """Runs a pipeline until it has read two sessions, and ends it; returns None or the failure.

    Args:
        own: further fields of the pipeline's configuration.
    """
    try:
        with start_kafka(folder, java) as kafka:
            config = _config(kafka, folder, class_path, own)
            ledger = folder / "ledger"
            run_load(LoadConfig(kafka.bootstrap_servers, config.input_topic, "max", sessions=2, ledger_dir=ledger))
            write_config(config, folder / "pipeline.json")
            command = [sys.executable, "-m", "pipeline", str(folder / "pipeline.json")]
            try:
                with process.start("the pipeline", command, folder / LOG_FILE, cwd=HOME, env=environment) as child:
                    return _run_one_batch(child, folder)
            finally:
                sweep(folder)  # a killed pipeline leaves its sockets
    except (UserError, LoadError) as error:
        return logged(error, folder)


def logged(error: Exception, folder: Path) -> str:
    """Appends an error to the log of the attempt; returns the beginning of its message."""
    with (folder / LOG_FILE).open("a", encoding="utf-8") as log:
        log.write(f"{error}\n")
    return re.split("[;\n]", str(error))[0]  # the rest may be the end of a log


def _run_one_batch(child: Child, folder: Path) -> str | None:
    """Waits for a batch and stops the pipeline, which then writes the archive.

    Returns None or the failure.
    """
    slow = f"within {_TIMEOUT_S:g} s, probably because the machine is busy"
    deadline = time.monotonic() + _TIMEOUT_S
    while child.alive and not _has_batch(folder):
        if time.monotonic() > deadline:
            return f"no batch was finished {slow}"
        time.sleep(_POLL_S)
    try:
        child.stop_gently(_TIMEOUT_S)
    except UserError as error:
        return str(error)
    if child.returncode == -signal.SIGKILL:
        return f"the archive was not written {slow}"
    return None if child.returncode == 0 else f"the pipeline ended with exit code {child.returncode}"


def _has_batch(folder: Path) -> bool:
    return any(line["kind"] == BATCH for line in read_lines(folder / "progress.jsonl").items)


def _config(kafka: KafkaBroker, folder: Path, class_path: Sequence[Path], own: Mapping[str, Any]) -> PipelineConfig:
    return PipelineConfig(
        bootstrap_servers=kafka.bootstrap_servers,
        input_topic=kafka.create_topic("in", 2),
        output={"output": kafka.create_topic("out", 2)},
        quarantine_topic=kafka.create_topic("quarantine", 2),
        sink="kafka",
        guarantee=EXACTLY_ONCE,
        variant="two-phase",
        sink_id="prepared",
        checkpoint=folder / "checkpoint",
        record=folder,
        driver_jars=tuple(map(str, class_path)),
        **own,
    )
