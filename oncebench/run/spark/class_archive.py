"""What is made once for each Java and pyspark, and kept in the cache, so that every pipeline starts fast.

An archive of loaded classes (AppCDS), written by a pipeline that takes two sessions from a Kafka of its own. With it
Spark is up, and its first job done, in half the time; so a killed pipeline recovers sooner, under every guarantee
alike. It is only a help: without it, or where the JVM refuses it, a pipeline starts as ever, and what goes wrong
while it is made (no Kafka, no room in the cache) is told in one line and ends no command.
"""

import hashlib
import logging
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from loadgen.config import LoadConfig
from loadgen.errors import LoadError
from loadgen.producer import run_load
from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.downloads.cache import CACHE_VARIABLE, cache_dir, locked
from oncebench.downloads.java import Java
from oncebench.errors import UserError
from oncebench.home import HOME
from oncebench.processes import child as process
from oncebench.processes.child import Child
from oncebench.record.json_lines import read_lines
from oncebench.run.workdir import disk_errors
from oncebench.servers.kafka.broker import KafkaBroker, start_kafka
from pipeline.config import PipelineConfig, write_config
from pipeline.spark.sockets import sweep

_LOG = logging.getLogger(__name__)

# For Spark's start and a batch, or for writing the archive at the end: 10 s each, unless the machine is starved.
_TIMEOUT_S = 120.0
_POLL_S = 0.05
_RETRY_S = 86_400.0  # what can't be made on this machine costs its half minute once a day
_UNFINISHED = ".preparing-"
_SLOWER = "Spark will start more slowly, because no archive of its classes could be made"
_ARCHIVE, _MADE_FOR, _LOG_FILE = "classes.jsa", "made-for", "pipeline.log"


def prepare_spark(java: Java, class_path: Sequence[Path], environment: Mapping[str, str]) -> tuple[str, ...]:
    """JVM options that make starts fast, with a driver's class path: from the cache, or made now (about 30 s, once)."""
    home = Path(pyspark.__file__).parent
    jars = [*class_path, *sorted((home / "jars").glob("spark-core_*.jar"))]
    # What the JVM itself compares.
    state = [
        java.version,
        str(java.home),
        environment.get("SPARK_HOME", ""),
        *(f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars),
    ]
    folder = cache_dir() / "spark" / hashlib.sha256("\n".join(state).encode()).hexdigest()[:16]
    if ":" in str(folder):
        return ()  # the JVM would take it for two archives
    try:
        with disk_errors(folder, f"set {CACHE_VARIABLE} to another folder"):
            _make(folder, java, class_path, environment)
    except (UserError, OSError) as error:
        _LOG.warning(f"{_SLOWER}: {error}")
    archive = folder / _ARCHIVE
    return (f"-XX:SharedArchiveFile={archive}",) if archive.is_file() else ()


def _make(folder: Path, java: Java, class_path: Sequence[Path], environment: Mapping[str, str]) -> None:
    """Puts the archive into its folder, or what there is to know of a try that failed; at once, if it is there."""
    if _is_made(folder):
        return
    with locked("spark"):
        if _is_made(folder):  # another run may have made it while this one waited
            return
        _LOG.info("preparing Spark's start-up for Java %s (once, about 30 s)", java.version)
        folder.parent.mkdir(exist_ok=True)
        made_for = f"{Path(pyspark.__file__).parent}\n{java.home}"
        _sweep(folder.parent, made_for)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_UNFINISHED) as temporary:
            made = Path(temporary) / "made"
            made.mkdir()
            (made / _MADE_FOR).write_text(made_for, "utf-8")
            why = _train(made / _ARCHIVE, Path(temporary), java, class_path, environment)
            if why is not None:
                shutil.copy(Path(temporary) / _LOG_FILE, made / _LOG_FILE)
                _LOG.warning(_told(why, folder))
            shutil.rmtree(folder, ignore_errors=True)  # an attempt that failed
            made.rename(folder)


def _is_made(folder: Path) -> bool:
    """Whether there is an archive, or it was tried in vain not long ago."""
    if not folder.is_dir():
        return False
    return (folder / _ARCHIVE).is_file() or time.time() - folder.stat().st_mtime < _RETRY_S


def _sweep(folder: Path, made_for: str) -> None:
    """Deletes what this one replaces, what was made for a pyspark that is gone, and what a killed run left.

    An archive takes 180 MB.
    """
    for left in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(left)  # nobody works on it: the lock is ours
    for note in folder.glob(f"*/{_MADE_FOR}"):
        before = note.read_text("utf-8")
        if before == made_for or not Path(before.split("\n")[0]).is_dir():
            shutil.rmtree(note.parent)


def _told(why: str, folder: Path) -> str:
    """What a person is told of a failure, in one line."""
    return (
        f"{_SLOWER}: {why}. It is tried again in {_RETRY_S / 3600:.0f} hours, or at the next run if you delete "
        f"{folder}; the log is {folder / _LOG_FILE}"
    )


def _train(
    archive: Path, folder: Path, java: Java, class_path: Sequence[Path], environment: Mapping[str, str]
) -> str | None:
    """Has a pipeline write the archive; returns why it did not."""
    try:
        with start_kafka(folder, java) as kafka:
            config = _config(kafka, folder, class_path, f"-XX:ArchiveClassesAtExit={archive}")
            ledger = folder / "ledger"
            run_load(LoadConfig(kafka.bootstrap_servers, config.input_topic, "max", sessions=2, ledger_dir=ledger))
            write_config(config, folder / "pipeline.json")
            command = [sys.executable, "-m", "pipeline", str(folder / "pipeline.json")]
            try:
                with process.start("the pipeline", command, folder / _LOG_FILE, cwd=HOME, env=environment) as child:
                    why = _why_not(child, folder)
            finally:
                sweep(folder)  # a killed pipeline leaves its sockets
    except (UserError, LoadError) as error:
        with (folder / _LOG_FILE).open("a", encoding="utf-8") as log:
            log.write(f"{error}\n")
        why = re.split("[;\n]", str(error))[0]  # the rest may be the end of a log
    if why is None and not archive.is_file():
        why = "the JVM wrote none"
    if why is not None:
        archive.unlink(missing_ok=True)  # it may be half written
    return why


def _why_not(child: Child, folder: Path) -> str | None:
    """Waits for a batch and ends the pipeline, which then writes the archive; why it could not, in a few words."""
    slow = f"within {_TIMEOUT_S:g} s, probably because the machine is busy"
    deadline = time.monotonic() + _TIMEOUT_S
    while child.alive and not _has_batch(folder):
        if time.monotonic() > deadline:
            return f"no batch was done {slow}"
        time.sleep(_POLL_S)
    try:
        child.stop_gently(_TIMEOUT_S)
    except UserError as error:
        return str(error)
    if child.returncode == -signal.SIGKILL:
        return f"it was not written {slow}"
    return None if child.returncode == 0 else f"the pipeline ended with exit code {child.returncode}"


def _has_batch(folder: Path) -> bool:
    return any(line["kind"] == "batch" for line in read_lines(folder / "progress.jsonl").items)


def _config(kafka: KafkaBroker, folder: Path, class_path: Sequence[Path], option: str) -> PipelineConfig:
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
        jvm_options=(option,),
    )
