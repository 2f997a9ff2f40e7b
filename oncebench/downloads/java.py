"""Finds a Java that both Spark and Kafka run on, or fetches one.

Order: ``JAVA_HOME``, ``java`` on the PATH, the JDK this project fetched before, and only then a download of the JDK
pinned in `locks/jdk.toml`. A candidate is believed only after it has been run and has told its version.

What can go wrong: `MissingEnvironment`, which names everything that was tried, why it would not do, and what to set.
``ONCEBENCH_FETCH_JAVA=0`` forbids the download; ``ONCEBENCH_JDK_URL`` is the folder of a mirror that has the archive.
"""

import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from oncebench.downloads.cache import cache_dir, locked
from oncebench.downloads.verified import fetch
from oncebench.errors import MissingEnvironment

_LOG = logging.getLogger(__name__)

SUPPORTED = (17, 21, 25)  # what Spark 4.2 is tested on; Kafka 4.3's broker needs 17 or newer
FETCH_VARIABLE = "ONCEBENCH_FETCH_JAVA"
MIRROR_VARIABLE = "ONCEBENCH_JDK_URL"

_PINS = Path(__file__).with_name("locks") / "jdk.toml"
_TEMURIN = "https://github.com/adoptium/temurin21-binaries/releases/download/jdk-{version}"
_ASK_TIMEOUT_S = 20  # a cold JVM on a slow disk; it answers in 0.1 s otherwise
_HOMES = ("*", "*/Contents/Home")  # where JAVA_HOME lies in an unpacked archive: Linux, macOS


@dataclass(frozen=True)
class Java:
    """A Java that was run: `home` is its JAVA_HOME, `version` what it says of itself ("21.0.9")."""

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
    """The first Java that will do; see the module for the order. `may_fetch=False` never downloads."""
    refused = []
    for origin, executable in _candidates():
        try:
            java = ask(executable)
        except ValueError as error:
            refused.append(f"{origin} ({executable}) {error}")
            continue
        if java.major in SUPPORTED:
            return java
        refused.append(f"{origin} ({executable}) is Java {java.version}")
    tried = "; ".join(refused) or "JAVA_HOME is not set and there is no java on the PATH"
    missing = f"no Java {', '.join(map(str, SUPPORTED[:-1]))} or {SUPPORTED[-1]}: {tried}. "
    if not may_fetch:
        raise MissingEnvironment(missing + "Install one, or let a run fetch one")
    if os.environ.get(FETCH_VARIABLE, "1").lower() in ("0", "no", "false"):
        raise MissingEnvironment(
            f"{missing}Install one and set JAVA_HOME, or unset {FETCH_VARIABLE} to let a run fetch one"
        )
    pin = _pin()
    if pin is None:
        raise MissingEnvironment(f"{missing}None is known to fetch for {_platform()}: install one and set JAVA_HOME")
    return _fetch_jdk(pin)


def ask(executable: Path) -> Java:
    """Run `executable` and return what it says of itself; `ValueError` with the reason if it doesn't work."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False)
    except OSError as error:
        raise ValueError(f"can't be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"did not answer within {_ASK_TIMEOUT_S} s") from error
    said = answer.stderr + answer.stdout
    home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    version = re.search(r"^\s*java\.version = (\d\S*)", said, re.MULTILINE)
    if answer.returncode or not home or not version:
        raise ValueError(f"fails when run (exit code {answer.returncode})" if answer.returncode else "says no version")
    # the real home, not a wrapper on the PATH: JAVA_HOME is handed on to Spark's launcher
    return Java(Path(home[1]), Path(home[1]) / "bin" / "java", version[1])


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    pin = _pin()
    if pin is not None and (executable := _java_below(_jdk_folder(pin))):
        yield "fetched before", executable


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


def _fetch_jdk(pin: _Pin) -> Java:
    """Download, verify and unpack; the folder appears in the cache whole or not at all."""
    folder = _jdk_folder(pin)
    with locked("jdk") as cache:
        executable = _java_below(folder)  # another run may have fetched it while this one waited
        if executable is None:
            base = os.environ.get(MIRROR_VARIABLE) or _TEMURIN.format(version=quote(pin.version))
            url = f"{base.rstrip('/')}/{pin.archive}"
            _LOG.info("fetching a JDK (Temurin %s, about 200 MB) into %s", pin.version, cache)
            with tempfile.TemporaryDirectory(dir=cache, prefix=".jdk-") as temporary:
                archive = Path(temporary) / pin.archive
                fetch(url, archive, pin.sha256, MIRROR_VARIABLE)
                unpacked = Path(temporary) / "unpacked"
                try:
                    with tarfile.open(archive) as tar:
                        tar.extractall(unpacked)  # noqa: S202 - its SHA-256 is pinned: these are the bytes we know
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    unpacked.rename(folder)
                except (OSError, EOFError, tarfile.TarError) as error:
                    raise MissingEnvironment(f"the JDK could not be unpacked into {folder}: {error}") from error
            executable = _java_below(folder)
    if executable is None:
        raise MissingEnvironment(
            f"the archive {pin.archive} holds no bin/java; delete {folder}, install a JDK and set JAVA_HOME"
        )
    try:
        return ask(executable)
    except ValueError as error:
        raise MissingEnvironment(
            f"the JDK fetched into {folder} {error}: install one for this system and set JAVA_HOME"
        ) from error
