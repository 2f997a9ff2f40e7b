"""Files in the cache that make every broker start fast, one set per Java and jars.

There are two files. An archive of loaded classes (AppCDS) halves the duration and the CPU time of a start. A checkpoint
with the feature levels that Kafka's format tool writes allows data folders to be created without a JVM. The archive is
optional: without it, or if the JVM rejects it, a broker only starts more slowly.
"""

import hashlib
import logging
import secrets
import signal
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oncebench.disk_errors import disk_errors
from oncebench.downloads.cache import CACHE_VARIABLE, cache_dir
from oncebench.downloads.java import Java
from oncebench.downloads.made_once import RETRY, has, made_once, made_or_failed
from oncebench.downloads.maven import jars
from oncebench.errors import UserError
from oncebench.processes import child as process
from oncebench.processes.child import tail
from oncebench.processes.language import in_english
from oncebench.processes.ports import free_ports
from oncebench.servers.kafka.process import command, wait_until_serving
from oncebench.servers.kafka.settings import CLIENTS, CONTROLLER, BrokerSettings

_LOG = logging.getLogger(__name__)

_TIMEOUT_S = 120.0  # for the format tool, or for writing the archive: seconds, unless the machine is starved
_CHECKPOINT = "bootstrap.checkpoint"
_ARCHIVE = "classes.jsa"
_CLEAN = (0, 128 + signal.SIGTERM)  # a JVM that SIGTERM has ended, after its shutdown hooks


@dataclass(frozen=True)
class StartFiles:
    """The folder with the files for one Java."""

    folder: Path

    @property
    def flags(self) -> tuple[str, ...]:
        """The JVM flags that use the archive, if there is one."""
        archive = self.folder / _ARCHIVE
        return (f"-XX:SharedArchiveFile={archive}",) if has(archive) else ()


def start_files(java: Java) -> StartFiles:
    """The files for this Java: from the cache, or created now (about 10 s, once)."""
    state = [java.version, str(java.home)]
    for jar in jars("kafka-broker"):
        stat = jar.stat()
        state.append(f"{jar} {stat.st_size} {stat.st_mtime_ns}")  # the JVM compares these too
    folder = cache_dir() / "kafka" / hashlib.sha256("\n".join(state).encode()).hexdigest()[:16]
    with disk_errors(folder, f"set {CACHE_VARIABLE} to another folder"):
        made_once(folder, "kafka", lambda made: _make(made, java, folder), _is_made)
    return StartFiles(folder)


def make_data_folder(data: Path, files: StartFiles, node: int = 1, cluster_id: str | None = None) -> str:
    """Creates an empty data folder for a node and returns the cluster id.

    The result is the same as that of Kafka's format tool. An existing data folder keeps its cluster and its data.

    Args:
        cluster_id: the cluster that the node joins; None: a new cluster.
    """
    meta = data / "meta.properties"
    if not meta.is_file():
        data.mkdir(parents=True, exist_ok=True)
        (data / _CHECKPOINT).write_bytes((files.folder / _CHECKPOINT).read_bytes())
        # written last: a folder with this file is complete
        cluster_id = cluster_id or _uuid()
        meta.write_text(f"version=1\nnode.id={node}\ncluster.id={cluster_id}\ndirectory.id={_uuid()}\n", "ascii")
    pairs = (line.partition("=") for line in meta.read_text("utf-8").splitlines())
    return next(value for key, _, value in pairs if key == "cluster.id")


def _uuid() -> str:
    """A random id in Kafka's notation.

    It must not begin with a dash, because Kafka's tools would take it for an option.
    """
    while (text := urlsafe_b64encode(secrets.token_bytes(16)).decode("ascii").rstrip("=")).startswith("-"):
        pass
    return text


def _is_made(folder: Path) -> bool:
    """Returns whether the folder holds a checkpoint, and an archive or a recent failure.

    A failure is an attempt to make the archive that failed less than a day ago.
    """
    return has(folder / _CHECKPOINT) and made_or_failed(folder, _ARCHIVE)


def _make(made: Path, java: Java, cached: Path) -> None:
    """Formats a data folder with Kafka's tool. Runs a broker that writes the archive at its end."""
    _LOG.info("creating Kafka's class archive for Java %s (once)", java.version)
    folder = made.parent
    settings = BrokerSettings(folder / "data", dict(zip((CLIENTS, CONTROLLER), free_ports(2), strict=True)))
    properties = folder / "server.properties"
    properties.write_text(settings.properties(), "ascii")
    log = folder / "kafka.log"

    format_ = ("kafka.tools.StorageTool", "format", "--cluster-id", _uuid(), "--config", properties)
    with process.start("Kafka's format tool", command(java, folder, (), *format_), log, env=in_english()) as child:
        child.wait(_TIMEOUT_S)
    checkpoint = settings.data / _CHECKPOINT
    if not checkpoint.is_file():
        raise UserError(f"Kafka's data can't be formatted with Java {java.version} ({java.home}):\n{tail(log)}")
    (made / _CHECKPOINT).write_bytes(checkpoint.read_bytes())

    flags = (f"-XX:ArchiveClassesAtExit={made / _ARCHIVE}",)
    failure = _write_archive(made / _ARCHIVE, command(java, folder, flags, "kafka.Kafka", properties), log)
    if failure is not None:
        (made / _ARCHIVE).unlink(missing_ok=True)  # it may be half written
        _LOG.warning(
            "Kafka will start more slowly, because its class archive could not be created: %s\n%s %s",
            failure, RETRY, cached,
        )  # fmt: skip


def _write_archive(archive: Path, run: Sequence[str], log: Path) -> str | None:
    """Runs a broker that writes the archive when it ends.

    Returns None, or the reason why there is no whole archive.
    """
    offset = log.stat().st_size
    try:
        with process.start("Kafka", run, log, env=in_english()) as child:
            wait_until_serving(child, offset)
            child.send(signal.SIGTERM)
            in_time = child.wait(_TIMEOUT_S)
    except UserError as error:
        return str(error)
    if not in_time:
        return f"the JVM did not end within {_TIMEOUT_S:g} s"
    if child.returncode not in _CLEAN:
        return f"the JVM ended with exit code {child.returncode}; the end of {log}:\n{tail(log, offset)}"
    return None if has(archive) else "the JVM wrote no archive"
