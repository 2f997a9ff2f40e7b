"""Fetches jars from Maven Central, and caches them between runs.

The lock files in `locks/`, here and in packages with sinks, name the jars.

Promise: `jars()` returns paths of files with the locked SHA-256. A jar is hashed when it is fetched, and again when its
size or modification time has changed. A damaged jar is fetched again. Fetching holds a lock, so parallel runs share one
cache.

Failure modes: no network (`MissingEnvironment`, which names the mirror variable), or a repository that serves other
bytes than the locked ones (`UserError`; nothing is kept). ``python -m tools.maven_lock`` creates the lock files.
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
from oncebench.downloads.verified import UNFINISHED, fetch
from oncebench.sinks.packages import sink_packages

_LOG = logging.getLogger(__name__)

REPOSITORY_VARIABLE = "ONCEBENCH_MAVEN_REPOSITORY"
MAVEN_CENTRAL = "https://repo.maven.apache.org/maven2"
LOCKS = Path(__file__).with_name("locks")

_SUFFIX = ".lock.toml"
_PARALLEL_DOWNLOADS = 6  # most of the time is one round trip per small jar; more would burden the server


@dataclass(frozen=True)
class Artifact:
    """One locked jar: Maven coordinates and the SHA-256 (hex) of its bytes."""

    group: str
    name: str
    version: str
    sha256: str
    classifier: str = ""

    @property
    def filename(self) -> str:
        return f"{self.name}-{self.version}{self.classifier and '-'}{self.classifier}.jar"

    @property
    def path(self) -> str:
        """Path below a Maven repository. The cache has the same layout."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.filename}"


def bundles() -> tuple[str, ...]:
    """The bundle names that `jars()` accepts."""
    return tuple(sorted(_locks()))


def _locks() -> dict[str, Path]:
    """The lock file of each bundle. A package's lock file does not replace one of ours."""
    theirs = [package.folder() for package in sink_packages()]
    folders = [LOCKS, *(folder / "locks" for folder in theirs if folder is not None)]
    return {path.name.removesuffix(_SUFFIX): path for folder in folders[::-1] for path in folder.glob(f"*{_SUFFIX}")}


def artifacts(bundle: str) -> tuple[Artifact, ...]:
    """The jars in the lock file of `bundle`. Raises `KeyError` for an unknown bundle."""
    locks = _locks()
    if bundle not in locks:
        raise KeyError(f"no lock file {bundle}{_SUFFIX}; available bundles: {', '.join(bundles())}")
    entries = tomllib.loads(locks[bundle].read_text("utf-8"))["dependencies"]
    return tuple(
        Artifact(e["groupId"], e["artifactId"], e["version"], e["sha256"], e.get("classifier", "")) for e in entries
    )


def jars(bundle: str) -> tuple[Path, ...]:
    """The verified jars of `bundle`. Missing jars are fetched.

    The bundles ``spark-kafka`` and ``spark-bare-fs`` leave out the jars that pyspark contains.
    """
    wanted = artifacts(bundle)
    if any(not is_verified(artifact) for artifact in wanted):
        with locked("jars"):
            missing = [artifact for artifact in wanted if not is_verified(artifact)]
            if missing:
                number = f"{len(missing)} jar{'' if len(missing) == 1 else 's'}"
                for rest in {rest for each in missing for rest in _cache_path(each).parent.glob(f"{UNFINISHED}*")}:
                    rest.unlink(missing_ok=True)  # of a killed run: no other run fetches, because this one has the lock
                _LOG.info("fetching %s for %s into %s", number, bundle, cache_dir())
            with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
                list(pool.map(_fetch, missing))
    return tuple(map(_cache_path, wanted))


def is_verified(artifact: Artifact) -> bool:
    """Whether the cache holds this jar with the locked SHA-256.

    The jar is hashed only if it has changed since the last check.
    """
    jar = _cache_path(artifact)
    note = jar.with_suffix(".verified")
    try:
        found = jar.stat()
        stamp = f"{artifact.sha256} {found.st_size} {found.st_mtime_ns}"
        if note.is_file() and note.read_text("ascii", errors="replace") == stamp:
            return True
        with jar.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != artifact.sha256:
                return False
    except OSError:
        return False
    with suppress(OSError):  # in a read-only cache every use hashes the jar
        note.write_text(stamp, "ascii")
    return True


def _cache_path(artifact: Artifact) -> Path:
    return cache_dir() / "jars" / artifact.path


def _fetch(artifact: Artifact) -> None:
    repository = os.environ.get(REPOSITORY_VARIABLE) or MAVEN_CENTRAL
    fetch(f"{repository.rstrip('/')}/{artifact.path}", _cache_path(artifact), artifact.sha256, REPOSITORY_VARIABLE)
    is_verified(artifact)  # records the check, so the next use does not hash again
