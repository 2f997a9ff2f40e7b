"""Finds a Java that both Spark and Kafka support, or fetches one.

Order: ``JAVA_HOME``, ``java`` on the PATH, the JDK in the cache, a download. The file `locks/jdk.toml` pins the JDK
that is downloaded. A candidate is accepted only after it has run and reported its version.

``ONCEBENCH_FETCH_JAVA=0`` forbids the download. ``ONCEBENCH_JDK_URL`` is a folder on a mirror that has the archive.

Failure modes: `MissingEnvironment`, which names each candidate, why it was refused, and what to set.
"""

import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from oncebench.disk_errors import disk_errors
from oncebench.downloads.cache import CACHE_VARIABLE, cache_dir
from oncebench.downloads.made_once import made_once
from oncebench.downloads.verified import fetch
from oncebench.errors import MissingEnvironment

_LOG = logging.getLogger(__name__)

SUPPORTED = (17, 21, 25)  # what Spark 4.2 is tested on; Kafka 4.3's broker needs 17 or newer
FETCH_VARIABLE = "ONCEBENCH_FETCH_JAVA"
MIRROR_VARIABLE = "ONCEBENCH_JDK_URL"

_PINS = Path(__file__).with_name("locks") / "jdk.toml"
_TEMURIN = "https://github.com/adoptium/temurin21-binaries/releases/download/jdk-{version}"
_RUN_TIMEOUT_S = 60  # for a cold JVM on a slow disk of a busy machine; normally it takes 0.1 s
_HOMES = ("*", "*/Contents/Home")  # JAVA_HOME inside an unpacked archive: Linux, macOS


@dataclass(frozen=True)
class Java:
    """A Java that has run: `home` is its JAVA_HOME, `version` is the one it reports ("21.0.9")."""

    home: Path
    executable: Path
    version: str

    @property
    def major(self) -> int:
        return int(re.split(r"\D", self.version)[0])


@dataclass(frozen=True)
class _Pin:
    version: str
    archive: str
    sha256: str


def find_java(*, may_fetch: bool = True) -> Java:
    """The first supported Java, in the order of the module docstring.

    `may_fetch=False` never downloads.
    """
    refused = []
    for origin, executable in _candidates():
        try:
            java = inspect_java(executable)
        except ValueError as error:
            refused.append(f"{origin} ({executable}) {error}")
            continue
        if java.major in SUPPORTED:
            if refused and may_fetch:
                _LOG.warning("using Java %s (%s). Passed over: %s", java.version, java.home, "; ".join(refused))
            return java
        refused.append(f"{origin} ({executable}) is Java {java.version}")
    tried = "; ".join(refused) or "JAVA_HOME is not set and there is no java on the PATH"
    missing = f"no Java {', '.join(map(str, SUPPORTED[:-1]))} or {SUPPORTED[-1]} was found: {tried}. "
    if not may_fetch:
        raise MissingEnvironment(missing + "Install one, or let a run fetch one")
    if os.environ.get(FETCH_VARIABLE, "1").lower() in ("0", "no", "false"):
        raise MissingEnvironment(
            f"{missing}Install one and set JAVA_HOME, or unset {FETCH_VARIABLE} to let a run fetch one"
        )
    pin = _pin()
    if pin is None:
        raise MissingEnvironment(f"{missing}There is no JDK to fetch for {_platform()}: install one and set JAVA_HOME")
    if refused:
        _LOG.warning("passed over: %s", "; ".join(refused))
    return _fetch_jdk(pin)


def inspect_java(executable: Path) -> Java:
    """Runs `executable` and returns what it reports.

    Raises `ValueError` with the reason if it does not work.
    """
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_TIMEOUT_S, check=False)
    except OSError as error:
        raise ValueError(f"can't be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"did not answer within {_RUN_TIMEOUT_S} s") from error
    output = answer.stderr + answer.stdout
    home = re.search(r"^\s*java\.home = (.+?)\s*$", output, re.MULTILINE)
    version = re.search(r"^\s*java\.version = (\d\S*)", output, re.MULTILINE)
    if answer.returncode or not home or not version:
        raise ValueError(
            f"fails when run (exit code {answer.returncode})" if answer.returncode else "reports no version"
        )
    # The real home, not a wrapper on the PATH: Spark's launcher gets it as JAVA_HOME.
    return Java(Path(home[1]), Path(home[1]) / "bin" / "java", version[1])


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    pin = _pin()
    if pin is not None and (executable := _java_below(_jdk_folder(pin))):
        yield "the cache", executable


def _platform() -> str:
    return f"{sys.platform}-{platform.machine()}"


def _pin() -> _Pin | None:
    pins = tomllib.loads(_PINS.read_text("utf-8"))
    here = pins.get(_platform())
    return None if here is None else _Pin(pins["version"], here["archive"], here["sha256"])


def _jdk_folder(pin: _Pin) -> Path:
    return cache_dir() / "jdk" / pin.sha256[:16]


def _java_below(folder: Path) -> Path | None:
    for pattern in _HOMES:
        for home in sorted(folder.glob(pattern)):
            if (home / "bin" / "java").is_file():
                return home / "bin" / "java"
    return None


def _runs(folder: Path) -> bool:
    """Whether there is a JDK that answers. A damaged one is fetched again."""
    executable = _java_below(folder)
    try:
        return executable is not None and bool(inspect_java(executable))
    except ValueError:
        return False


def _unpack_jdk(pin: _Pin, made: Path) -> None:
    """Downloads the JDK and unpacks it into an empty folder."""
    base = os.environ.get(MIRROR_VARIABLE) or _TEMURIN.format(version=quote(pin.version))
    url = f"{base.rstrip('/')}/{pin.archive}"
    _LOG.info("fetching a JDK (Temurin %s, about 200 MB) into %s", pin.version, cache_dir())
    archive = made.parent / pin.archive
    fetch(url, archive, pin.sha256, MIRROR_VARIABLE)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(made)  # noqa: S202 - its SHA-256 is pinned, so its content is known
    except (OSError, EOFError, tarfile.TarError) as error:
        raise MissingEnvironment(
            f"the JDK could not be unpacked into {made}: {error}. Make room, or set {CACHE_VARIABLE} to another folder"
        ) from error
    if _java_below(made) is None:
        raise MissingEnvironment(f"the archive {pin.archive} holds no bin/java. Install a JDK and set JAVA_HOME")


def _fetch_jdk(pin: _Pin) -> Java:
    """Downloads and unpacks the JDK, unless the cache has one that runs."""
    folder = _jdk_folder(pin)
    with disk_errors(folder, f"set {CACHE_VARIABLE} to another folder"):
        made_once(folder, "jdk", lambda made: _unpack_jdk(pin, made), _runs)
    executable = _java_below(folder)
    assert executable is not None, "_unpack_jdk has found it"
    try:
        return inspect_java(executable)
    except ValueError as error:
        raise MissingEnvironment(
            f"the JDK fetched into {folder} {error}. Install one for this system and set JAVA_HOME"
        ) from error
