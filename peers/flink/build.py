"""Compiles the Java job with the JDK that runs it, once per version of sources and jars.

Promise: the folder of the classes is complete or absent. Failure modes (`MissingEnvironment`): the Java that was found
has no compiler, or the sources do not compile. The error then has the compiler's messages.
"""

from __future__ import annotations

import hashlib
import logging
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from oncebench.downloads.cache import cache_dir, locked
from oncebench.downloads.java import Java
from oncebench.downloads.maven import artifacts
from oncebench.errors import MissingEnvironment

_LOG = logging.getLogger(__name__)

BUNDLE = "peer-flink"
SOURCES = Path(__file__).with_name("java")
# The oldest Java of `downloads.java.SUPPORTED`; classes for it run on all of them.
RELEASE = "17"


def compiled(java: Java, class_path: Sequence[Path]) -> Path:
    """Returns the folder of the job's classes; compiles them if the cache lacks this version."""
    folder = cache_dir() / "peers" / f"flink-{_version()}"
    if folder.is_dir():
        return folder
    with locked("peers") as cache:
        if not folder.is_dir():  # another run may have compiled it while this run waited
            _LOG.info("compiling the Flink job into %s", folder)
            folder.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache, prefix=".flink-") as temporary:
                classes = Path(temporary) / "classes"
                compile_job(java, class_path, classes)
                classes.rename(folder)
    return folder


def compile_job(java: Java, class_path: Sequence[Path], target: Path) -> None:
    """Compiles the job into `target`."""
    compiler = java.home / "bin" / "javac"
    if not compiler.is_file():
        raise MissingEnvironment(
            f"the Flink job cannot be compiled: the Java in {java.home} has no compiler ({compiler} is missing). "
            "Install a JDK, not only a JRE, and set JAVA_HOME to it"
        )
    names = ":".join(map(str, class_path))
    command = [compiler, "--release", RELEASE, "-proc:none", "-cp", names, "-d", target, *_sources()]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingEnvironment(f"the Flink job does not compile with Java {java.version}:\n{done.stderr.strip()}")


def _sources() -> list[Path]:
    return sorted(SOURCES.rglob("*.java"))


def _version() -> str:
    """Returns a digest of the sources and of the locked jars."""
    digest = hashlib.sha256(RELEASE.encode())
    for path in _sources():
        digest.update(path.name.encode() + path.read_bytes())
    for jar in artifacts(BUNDLE):
        digest.update(jar.sha256.encode())
    return digest.hexdigest()[:16]
