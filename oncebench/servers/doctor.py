"""Checks whether a run can succeed on this machine.

Promise: nothing is downloaded, and all checks take about a second. `checks()` never raises: a check that cannot be done
counts as failed. A failed check has advice for the user.
"""

import os
import platform
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from oncebench.downloads.cache import CACHE_VARIABLE, cache_dir
from oncebench.downloads.java import FETCH_VARIABLE, find_java
from oncebench.downloads.maven import REPOSITORY_VARIABLE, artifacts, is_verified
from oncebench.errors import UserError
from oncebench.processes.ports import LOOPBACK, free_ports
from oncebench.servers.sink_servers import needed_bundles

_PYTHON = (3, 11)
_PORTS = 6  # broker, controller, proxy, Spark's driver, block manager and UI
_DISK_BYTES = 5_000_000_000  # for a full matrix with --keep; one quick run takes a tenth
_MEMORY_BYTES = 4_000_000_000  # broker 1 GB, Spark driver 2 GB, Python workers, the suite
_CORES = 2  # on one core broker and pipeline take turns, and latencies measure the scheduler
# A broker holds about 20 per partition, RocksDB hundreds. A JVM raises its own limit to the hard one (MaxFDLimit).
_FILES = 4096
_FSYNCS = 15
_SLOW_FSYNC_MS = 20.0  # each batch journals with three fsyncs; above this they dominate the result


@dataclass(frozen=True)
class Check:
    """The result of one check: `detail` is the finding; `advice` is empty if it is `ok`."""

    name: str
    ok: bool
    detail: str
    advice: str


_Finding = tuple[bool, str, str]  # ok, detail, advice


def checks(work_dir: Path | None = None) -> list[Check]:
    """All checks, in reading order.

    Args:
        work_dir: the folder in which runs would write, or one that it will be in; by default the temporary folder.
    """
    folder = _existing(work_dir or Path(tempfile.gettempdir()))
    all_checks: dict[str, Callable[[], _Finding]] = {
        "python": _python,
        "java": _java,
        "cache": _cache,
        "jars": _jars,
        "ports": _ports,
        "memory": _memory,
        "cores": _cores,
        "open files": _files,
        "temporary": lambda: _temporary(folder),
        "disk": lambda: _disk(folder),
        "fsync": lambda: _fsync(folder),
    }
    return [_check(name, check) for name, check in all_checks.items()]


def _check(name: str, check: Callable[[], _Finding]) -> Check:
    try:
        ok, detail, advice = check()
    except (OSError, UserError) as error:
        ok, detail, advice = False, f"could not be checked: {error}", "fix the problem that the message names"
    return Check(name, ok, detail, "" if ok else advice)


def _python() -> _Finding:
    ok = sys.version_info >= _PYTHON
    return ok, f"{platform.python_version()} ({sys.executable})", "use Python 3.11 or newer"


def _java() -> _Finding:
    advice = f"nothing to do, unless downloads are off ({FETCH_VARIABLE}): the first run fetches one"
    try:
        java = find_java(may_fetch=False)
    except UserError as error:
        return False, str(error), advice
    return True, f"{java.version} ({java.home})", advice


def _cache() -> _Finding:
    folder = cache_dir()
    writable = os.access(_existing(folder), os.W_OK)
    return writable, str(folder), f"make it writable, or set {CACHE_VARIABLE} to another folder"


def _jars() -> _Finding:
    wanted = [artifact for bundle in needed_bundles() for artifact in artifacts(bundle)]
    present = sum(map(is_verified, wanted))
    advice = f"nothing to do if Maven Central is reachable: the first run fetches them; else set {REPOSITORY_VARIABLE}"
    return present == len(wanted), f"{present} of {len(wanted)} present and verified", advice


def _ports() -> _Finding:
    advice = f"end programs that listen on {LOOPBACK}"
    try:
        free_ports(_PORTS)
    except UserError as error:
        return False, str(error), advice
    return True, f"{_PORTS} free ports on {LOOPBACK}", advice


def _memory() -> _Finding:
    free = psutil.virtual_memory().available
    return free >= _MEMORY_BYTES, f"{free / 1e9:.1f} GB available", "close other programs: 4 GB are needed"


def _cores() -> _Finding:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return cores >= _CORES, str(cores), "results from one core mean little: use a machine with two or more"


def _files() -> _Finding:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enough = limit == resource.RLIM_INFINITY or limit >= _FILES
    return enough, f"limit {limit}", f"raise it: ulimit -Hn {_FILES}, as root"


def _temporary(folder: Path) -> _Finding:
    """Whether native code may run: the broker unpacks Snappy and zstd, the pipeline RocksDB."""
    folders = {Path(tempfile.gettempdir()), folder}
    forbidden = sorted(str(each) for each in folders if os.statvfs(each).f_flag & getattr(os, "ST_NOEXEC", 0))
    detail = f"{', '.join(forbidden)} mounted noexec" if forbidden else f"{folder} allows native code"
    return not forbidden, detail, "set TMPDIR and --work-dir to folders that are not mounted noexec"


def _disk(folder: Path) -> _Finding:
    free = shutil.disk_usage(folder).free
    return free >= _DISK_BYTES, f"{free / 1e9:.1f} GB free at {folder}", "make room, or choose another --work-dir"


def _fsync(folder: Path) -> _Finding:
    median_ms = statistics.median(_fsync_times_ms(folder))
    advice = "exactly-once journals with fsync in each batch: choose a --work-dir on a faster disk"
    return median_ms <= _SLOW_FSYNC_MS, f"{median_ms:.1f} ms at {folder}", advice


def _fsync_times_ms(folder: Path) -> Iterator[float]:
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_FSYNCS):
            file.write(bytes(4096))
            file.flush()
            begin = time.perf_counter()
            os.fsync(file.fileno())
            yield (time.perf_counter() - begin) * 1e3


def _existing(path: Path) -> Path:
    """`path`, or its nearest parent that exists."""
    path = path.absolute()
    return path if path.is_dir() else _existing(path.parent)
