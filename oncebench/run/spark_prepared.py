"""What is made once for each Java and pyspark, and kept in the cache, so that every pipeline starts fast.

An archive of loaded classes (AppCDS), written by a pipeline that takes two sessions from a Kafka of its own. With it
Spark is up, and its first job done, in half the time; so a killed pipeline recovers sooner, under every guarantee
alike. It is only a help: without it, or where the JVM refuses it, a pipeline starts as ever.
"""

import hashlib
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from loadgen.config import LoadConfig
from loadgen.producer import run_load
from oncebench.errors import UserError
from oncebench.record.streams import read_lines
from oncebench.run.workdir import disk_errors
from oncebench.services import process
from oncebench.services.broker_process import tail
from oncebench.services.cache import CACHE_VARIABLE, cache_dir, locked
from oncebench.services.java import Java
from oncebench.services.kafka import KafkaBroker, start_kafka
from pipeline.config import PipelineConfig, write_config
from pipeline.sinks.contract import EXACTLY_ONCE

_LOG = logging.getLogger(__name__)

# For Spark's start and a batch, or for writing the archive at the end: 10 s each, unless the machine is starved.
_TIMEOUT_S = 120.0
_POLL_S = 0.05
_ARCHIVE, _MADE_FOR = "classes.jsa", "made-for"


def prepare_spark(java: Java, class_path: Sequence[Path], environment: Mapping[str, str]) -> tuple[str, ...]:
    """JVM options that make starts fast, with a driver's class path: from the cache, or made now (about 30 s, once)."""
    home = Path(pyspark.__file__).parent
    jars = [*class_path, *sorted((home / "jars").glob("spark-core_*.jar"))]
    # What the JVM itself compares.
    state = [java.version, str(java.home), *(f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars)]
    folder = cache_dir() / "spark" / hashlib.sha256("\n".join(state).encode()).hexdigest()[:16]
    if not folder.is_dir():
        with locked("spark"), disk_errors(folder, f"set {CACHE_VARIABLE} to another folder"):
            if not folder.is_dir():  # another run may have made it while this one waited
                _LOG.info("preparing Spark's start-up for Java %s (once)", java.version)
                folder.parent.mkdir(exist_ok=True)
                _sweep(folder.parent)
                with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".preparing-") as temporary:
                    made = Path(temporary) / "made"
                    made.mkdir()
                    (made / _MADE_FOR).write_text(str(home), "utf-8")
                    _train(made / _ARCHIVE, Path(temporary), java, class_path, environment)
                    made.rename(folder)
    archive = folder / _ARCHIVE
    return (f"-XX:SharedArchiveFile={archive}",) if archive.is_file() else ()


def _sweep(folder: Path) -> None:
    """Deletes what was made for a pyspark that is gone: an archive takes 150 MB."""
    for note in folder.glob(f"*/{_MADE_FOR}"):
        if not Path(note.read_text("utf-8")).is_dir():
            shutil.rmtree(note.parent)


def _train(archive: Path, folder: Path, java: Java, class_path: Sequence[Path], environment: Mapping[str, str]) -> None:
    with start_kafka(folder, java) as kafka:
        config = _config(kafka, folder, class_path, f"-XX:ArchiveClassesAtExit={archive}")
        load = LoadConfig(kafka.bootstrap_servers, config.input_topic, "max", sessions=2, ledger_dir=folder / "ledger")
        run_load(load)
        write_config(config, folder / "pipeline.json")
        command = [sys.executable, "-m", "pipeline", str(folder / "pipeline.json")]
        home = Path(__file__).resolve().parents[2]
        log = folder / "pipeline.log"
        with process.start("the pipeline", command, log, cwd=home, env=environment) as child:
            try:
                deadline = time.monotonic() + _TIMEOUT_S
                while child.alive and not _has_batch(folder):
                    if time.monotonic() > deadline:
                        raise UserError(f"no batch within {_TIMEOUT_S:g} s:\n{tail(log)}")
                    time.sleep(_POLL_S)
                child.stop_gently(_TIMEOUT_S)
                if child.returncode != 0:
                    raise UserError(f"the pipeline ended with exit code {child.returncode}:\n{tail(log)}")
            except UserError as error:
                archive.unlink(missing_ok=True)  # it may be half written
                _LOG.warning("Spark will start more slowly, because no archive of its classes could be made: %s", error)


def _has_batch(folder: Path) -> bool:
    return any(line["kind"] == "batch" for line in read_lines(folder / "progress.jsonl").items)


def _config(kafka: KafkaBroker, folder: Path, class_path: Sequence[Path], option: str) -> PipelineConfig:
    return PipelineConfig(
        bootstrap_servers=kafka.bootstrap_servers,
        input_topic=kafka.create_topic("in", 2),
        output={"output": kafka.create_topic("out", 2)},
        quarantine_topic=kafka.create_topic("quarantine", 2),
        sink="kafka",
        delivery=EXACTLY_ONCE,
        variant="two-phase",
        sink_id="prepared",
        checkpoint=folder / "checkpoint",
        record=folder,
        driver_jars=tuple(map(str, class_path)),
        jvm_options=(option,),
    )
