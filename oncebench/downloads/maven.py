"""Jars from Maven Central, exactly those named by the lock files in `locks/`, kept in a cache between runs.

Promise: `jars()` returns paths whose SHA-256 is the locked one. Each jar is hashed when it is fetched and again
whenever its size or modification time has changed since; a damaged one is fetched again. Fetching happens under a lock,
so parallel runs share one cache.

What can go wrong: no network (`MissingEnvironment` naming the mirror variable), or a repository that serves other bytes
than those locked (`UserError`, nothing is kept). ``python -m tools.maven_lock`` makes the lock files anew.
"""

import hashlib
import logging
import os
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oncebench.downloads.cache import cache_dir, locked
from oncebench.downloads.verified import fetch

_LOG = logging.getLogger(__name__)

REPOSITORY_VARIABLE = "ONCEBENCH_MAVEN_REPOSITORY"
MAVEN_CENTRAL = "https://repo.maven.apache.org/maven2"
LOCKS = Path(__file__).with_name("locks")

_SUFFIX = ".lock.toml"
_PARALLEL_DOWNLOADS = 6  # a round trip per small jar is what takes the time; more at once would be rude


@dataclass(frozen=True)
class Artifact:
    """One locked jar: Maven coordinates and the SHA-256 (hex) of its bytes."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def filename(self) -> str:
        return f"{self.name}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Path below a Maven repository; the cache has the same layout."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.filename}"


def bundles() -> tuple[str, ...]:
    """The names `jars()` takes."""
    return tuple(sorted(path.name.removesuffix(_SUFFIX) for path in LOCKS.glob(f"*{_SUFFIX}")))


def artifacts(bundle: str) -> tuple[Artifact, ...]:
    """What the lock file of `bundle` names; `KeyError` for an unknown bundle."""
    lock = LOCKS / f"{bundle}{_SUFFIX}"
    if not lock.is_file():
        raise KeyError(f"no lock file {lock.name}; there are: {', '.join(bundles())}")
    entries = tomllib.loads(lock.read_text("utf-8"))["dependencies"]
    return tuple(Artifact(e["groupId"], e["artifactId"], e["version"], e["sha256"]) for e in entries)


def jars(bundle: str) -> tuple[Path, ...]:
    """The verified jars of `bundle`, fetched where they are missing.

    Bundles: ``kafka-broker``; ``spark-kafka`` and ``spark-bare-fs`` hold only what pyspark does not ship itself.
    """
    wanted = artifacts(bundle)
    if any(not is_verified(artifact) for artifact in wanted):
        with locked("jars"):
            missing = [artifact for artifact in wanted if not is_verified(artifact)]
            if missing:
                _LOG.info("fetching %d jars for %s into %s", len(missing), bundle, cache_dir())
            with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
                list(pool.map(_fetch, missing))
    return tuple(map(_place, wanted))


def is_verified(artifact: Artifact) -> bool:
    """Whether the cache holds this jar with the locked SHA-256; it is hashed only if it changed since the last time."""
    place = _place(artifact)
    note = place.with_suffix(".verified")
    try:
        seen = place.stat()
        stamp = f"{artifact.sha256} {seen.st_size} {seen.st_mtime_ns}"
        if note.is_file() and note.read_text("ascii", errors="replace") == stamp:
            return True
        with place.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != artifact.sha256:
                return False
    except OSError:
        return False
    with suppress(OSError):  # in a cache that can't be written every use hashes
        note.write_text(stamp, "ascii")
    return True


def _place(artifact: Artifact) -> Path:
    return cache_dir() / "jars" / artifact.path


def _fetch(artifact: Artifact) -> None:
    repository = os.environ.get(REPOSITORY_VARIABLE) or MAVEN_CENTRAL
    fetch(f"{repository.rstrip('/')}/{artifact.path}", _place(artifact), artifact.sha256, REPOSITORY_VARIABLE)
    is_verified(artifact)  # notes it, so that the next use need not hash
