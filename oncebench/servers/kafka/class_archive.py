"""What is made once for each Java and set of jars, and kept in the cache, so that every broker starts fast.

An archive of loaded classes (AppCDS), which about halves a broker's start and its processor time, and the feature
levels which Kafka's own format tool writes, so that a data folder can be made without a JVM. The archive is only a
help: without it, or where the JVM refuses it, a broker starts as ever.
"""

import hashlib
import logging
import secrets
import signal
import tempfile
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path

from oncebench.downloads.cache import CACHE_VARIABLE, cache_dir, locked
from oncebench.downloads.java import Java
from oncebench.downloads.maven import jars
from oncebench.errors import UserError
from oncebench.processes import child as process
from oncebench.processes.child import tail
from oncebench.processes.ports import free_ports
from oncebench.run.workdir import disk_errors
from oncebench.servers.kafka.process import command, wait_until_serving
from oncebench.servers.kafka.settings import CLIENTS, CONTROLLER, BrokerSettings

_LOG = logging.getLogger(__name__)

_TIMEOUT_S = 120.0  # to format, or to write the archive at the end: seconds, unless the machine is starved
_CHECKPOINT = "bootstrap.checkpoint"
_ARCHIVE = "classes.jsa"


@dataclass(frozen=True)
class Prepared:
    """The folder with what was made for one Java."""

    folder: Path

    @property
    def flags(self) -> tuple[str, ...]:
        """What the JVM must be told to use the archive."""
        archive = self.folder / _ARCHIVE
        return (f"-XX:SharedArchiveFile={archive}",) if archive.is_file() else ()


def prepare(java: Java) -> Prepared:
    """What makes starts fast with this Java: from the cache, or made now (about 10 s, once)."""
    state = [java.version, str(java.home)]
    for jar in jars("kafka-broker"):
        seen = jar.stat()
        state.append(f"{jar} {seen.st_size} {seen.st_mtime_ns}")  # what the JVM itself compares
    folder = cache_dir() / "kafka" / hashlib.sha256("\n".join(state).encode()).hexdigest()[:16]
    if not folder.is_dir():
        with locked("kafka"), disk_errors(folder, f"set {CACHE_VARIABLE} to another folder"):
            if not folder.is_dir():  # another run may have made it while this one waited
                _LOG.info("preparing Kafka's start-up for Java %s (once)", java.version)
                folder.parent.mkdir(exist_ok=True)
                with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".preparing-") as temporary:
                    _prepare_in(Path(temporary), java).rename(folder)
    return Prepared(folder)


def make_data_folder(data: Path, prepared: Prepared) -> str:
    """Make an empty data folder for node 1 of a new cluster, as Kafka's format tool would; returns the cluster id.

    A folder that is one already keeps its cluster and its data.
    """
    meta = data / "meta.properties"
    if not meta.is_file():
        data.mkdir(parents=True, exist_ok=True)
        (data / _CHECKPOINT).write_bytes((prepared.folder / _CHECKPOINT).read_bytes())
        # last: where it stands, the folder is complete
        meta.write_text(f"version=1\nnode.id=1\ncluster.id={_uuid()}\ndirectory.id={_uuid()}\n", "ascii")
    pairs = (line.partition("=") for line in meta.read_text("utf-8").splitlines())
    return next(value for key, _, value in pairs if key == "cluster.id")


def _uuid() -> str:
    """A random id in Kafka's notation. It must not begin with a dash, which its tools take for an option."""
    while (text := urlsafe_b64encode(secrets.token_bytes(16)).decode("ascii").rstrip("=")).startswith("-"):
        pass
    return text


def _prepare_in(folder: Path, java: Java) -> Path:
    """Format a data folder with Kafka's own tool, and run a broker on it that writes the archive when it ends."""
    prepared = folder / "prepared"
    prepared.mkdir()
    settings = BrokerSettings(folder / "data", dict(zip((CLIENTS, CONTROLLER), free_ports(2), strict=True)))
    properties = folder / "server.properties"
    properties.write_text(settings.properties(), "utf-8")
    log = folder / "kafka.log"

    format_ = ("kafka.tools.StorageTool", "format", "--cluster-id", _uuid(), "--config", properties)
    with process.start("Kafka's format tool", command(java, folder, (), *format_), log) as child:
        child.wait(_TIMEOUT_S)
    checkpoint = settings.data / _CHECKPOINT
    if not checkpoint.is_file():
        raise UserError(f"Kafka's data can't be formatted with Java {java.version} ({java.home}):\n{tail(log)}")
    (prepared / _CHECKPOINT).write_bytes(checkpoint.read_bytes())

    flags = (f"-XX:ArchiveClassesAtExit={prepared / _ARCHIVE}",)
    with process.start("Kafka", command(java, folder, flags, "kafka.Kafka", properties), log) as child:
        try:
            wait_until_serving(child, log.stat().st_size)
            child.send(signal.SIGTERM)
            if not child.wait(_TIMEOUT_S):
                (prepared / _ARCHIVE).unlink(missing_ok=True)  # half written
        except UserError as error:
            _LOG.warning("Kafka will start more slowly, because no archive of its classes could be made: %s", error)
    return prepared
