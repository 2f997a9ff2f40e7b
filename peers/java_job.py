"""Compiles a peer's Java job with the JDK that runs it, and starts it.

The job is compiled once per version of sources and jars.

Promise: the folder of the classes is complete or absent. Failure modes (`MissingEnvironment`): the Java that was found
has no compiler, or the sources do not compile. In the second case the error has the compiler's messages.
"""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncebench.downloads.cache import cache_dir
from oncebench.downloads.java import Java
from oncebench.downloads.made_once import made_once
from oncebench.downloads.maven import artifacts, jars
from oncebench.errors import MissingEnvironment
from oncebench.processes.temporary import emptied, jvm_option
from pipeline.config import PipelineConfig

_LOG = logging.getLogger(__name__)

# What all jobs do in the same way: check events, make rows, report progress.
SHARED = Path(__file__).with_name("java")
LOG4J = Path(__file__).with_name("log4j2.properties")
# The oldest Java of `downloads.java.SUPPORTED`; classes for it run on all of them.
RELEASE = "17"
# Settings of Spark's pipeline; the engine's own are in `Engine.settings`.
UNUSED = ("trigger_ms", "max_events_per_batch", "on_lost", "checkpoint_writing", "state_store", "master", "spark_conf")
# Out-of-orderness that the job allows before it ends a session. Spark compares with the batch before it instead.
WATERMARK_DELAY_MS = 10_000
# The loads that the docs name have less than 0.5 GB of state. The rest keeps garbage collections short.
HEAP = "2g"


@dataclass(frozen=True)
class JavaJob:
    """The Java job of one peer.

    Attributes:
        name: of the compiled classes in the cache.
        title: the engine in messages.
        bundle: the lock file of the jars.
        sources: the folder of the job's own sources.
        main: the class to run.
    """

    name: str
    title: str
    bundle: str
    sources: Path
    main: str

    def command(self, java: Java, options: Sequence[str]) -> list[str]:
        """Returns the command of an attempt without its settings file.

        Fetches and compiles the files that are missing.
        """
        class_path = jars(self.bundle)
        classes = self.compiled(java, class_path)
        names = ":".join(map(str, (classes, *class_path)))
        return [str(java.executable), *options, f"-Dlog4j2.configurationFile={LOG4J}", "-cp", names, self.main]

    def compiled(self, java: Java, class_path: Sequence[Path]) -> Path:
        """Returns the folder of the job's classes; compiles them if the cache lacks this version."""
        folder = cache_dir() / "peers" / f"{self.name}-{self._version()}"
        made_once(folder, "peers", lambda made: self._make(made, java, class_path), Path.is_dir)
        return folder

    def _make(self, made: Path, java: Java, class_path: Sequence[Path]) -> None:
        _LOG.info("compiling the %s job", self.title)
        self.compile(java, class_path, made)

    def compile(self, java: Java, class_path: Sequence[Path], target: Path) -> None:
        """Compiles the job into `target`."""
        compiler = java.home / "bin" / "javac"
        if not compiler.is_file():
            raise MissingEnvironment(
                f"the {self.title} job cannot be compiled: the Java in {java.home} has no compiler ({compiler} is "
                "missing). Install a JDK, not only a JRE, and set JAVA_HOME to it"
            )
        names = ":".join(map(str, class_path))
        command = [compiler, "--release", RELEASE, "-proc:none", "-cp", names, "-d", target, *self._files()]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise MissingEnvironment(
                f"the {self.title} job does not compile with Java {java.version}:\n{done.stderr.strip()}"
            )

    def versions(self, names: Sequence[str]) -> dict[str, str]:
        """Returns the versions of the jars with these names."""
        return {jar.name: jar.version for jar in artifacts(self.bundle) if jar.name in names}

    def _files(self) -> list[Path]:
        return sorted(path for folder in (SHARED, self.sources) for path in folder.rglob("*.java"))

    def _version(self) -> str:
        """Returns a digest of the sources and of the locked jars."""
        digest = hashlib.sha256(RELEASE.encode())
        for path in self._files():
            digest.update(path.name.encode() + path.read_bytes())
        for jar in artifacts(self.bundle):
            digest.update(jar.sha256.encode())
        return digest.hexdigest()[:16]


def start(
    command: Sequence[str], name: str, settings_of: Callable[[PipelineConfig], dict[str, Any]], config: PipelineConfig
) -> list[str]:
    """Writes an attempt's settings as `name`.json into its run folder.

    Returns the attempt's command. The attempt's temporary files are below the run folder, too.
    """
    path = config.record / f"{name}.json"
    path.write_text(json.dumps(settings_of(config), indent=1))
    java, *rest = command
    return [java, jvm_option(emptied(config.record / "tmp")), *rest, str(path)]


def shared_settings(config: PipelineConfig) -> dict[str, Any]:
    """Returns the settings that an attempt of every engine has.

    `JobSettings.java` reads them.
    """
    return {
        "bootstrapServers": config.bootstrap_servers,
        "inputTopic": config.input_topic,
        "outputTopic": config.output["output"],
        "quarantineTopic": config.quarantine_topic,
        "progress": str(config.record / "progress.jsonl"),
        "sessionTimeoutMs": config.session_timeout_ms,
    }
