"""Looks at this machine and says whether a run can succeed here.

Promise: nothing is downloaded, and it takes about a second. `checks()` never raises: what can't be found out is a
failed check. A check that is not `ok` has an advice.
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
_DISK_BYTES = 5_000_000_000  # a full matrix with --keep; one quick run takes a tenth
_MEMORY_BYTES = 4_000_000_000  # broker 1 GB, Spark driver 2 GB, Python workers, the suite
_CORES = 2  # with one, broker and pipeline take turns and every latency is the scheduler's
_FILES = 4096  # a broker holds some 20 for each partition, RocksDB hundreds
_FSYNCS = 15
_SLOW_FSYNC_MS = 20.0  # three fsyncs in each batch's journal: beyond this they are what is measured


@dataclass(frozen=True)
class Check:
    """One look at the machine: `detail` is what was found, `advice` what to do if that is not `ok` (else empty)."""

    name: str
    ok: bool
    detail: str
    advice: str


_Look = tuple[bool, str, str]  # ok, detail, advice


def checks(work_dir: Path | None = None) -> list[Check]:
    """All checks, in the order in which to read them; runs would write below `work_dir` (else the temporary folder)."""
    place = _existing(work_dir or Path(tempfile.gettempdir()))
    looks: dict[str, Callable[[], _Look]] = {
        "python": _python,
        "java": _java,
        "cache": _cache,
        "jars": _jars,
        "ports": _ports,
        "memory": _memory,
        "cores": _cores,
        "open files": _files,
        "temporary": lambda: _temporary(place),
        "disk": lambda: _disk(place),
        "fsync": lambda: _fsync(place),
    }
    return [_check(name, look) for name, look in looks.items()]


def _check(name: str, look: Callable[[], _Look]) -> Check:
    try:
        ok, detail, advice = look()
    except OSError as error:
        ok, detail, advice = False, f"could not be checked: {error}", "mend what the message says"
    return Check(name, ok, detail, "" if ok else advice)


def _python() -> _Look:
    ok = sys.version_info >= _PYTHON
    return ok, f"{platform.python_version()} ({sys.executable})", "use Python 3.11 or newer"


def _java() -> _Look:
    advice = f"nothing, unless downloads are off ({FETCH_VARIABLE}): the first run fetches one"
    try:
        java = find_java(may_fetch=False)
    except UserError as error:
        return False, str(error), advice
    return True, f"{java.version} ({java.home})", advice


def _cache() -> _Look:
    folder = cache_dir()
    writable = os.access(_existing(folder), os.W_OK)
    return writable, str(folder), f"make it writable, or set {CACHE_VARIABLE} to another folder"


def _jars() -> _Look:
    wanted = [artifact for bundle in needed_bundles() for artifact in artifacts(bundle)]
    present = sum(map(is_verified, wanted))
    advice = f"nothing, if Maven Central can be reached: the first run fetches them; else set {REPOSITORY_VARIABLE}"
    return present == len(wanted), f"{present} of {len(wanted)} present and verified", advice


def _ports() -> _Look:
    advice = f"end what listens on {LOOPBACK}"
    try:
        free_ports(_PORTS)
    except UserError as error:
        return False, str(error), advice
    return True, f"{_PORTS} free ones on {LOOPBACK}", advice


def _memory() -> _Look:
    free = psutil.virtual_memory().available
    return free >= _MEMORY_BYTES, f"{free / 1e9:.1f} GB available", "close other programs: 4 GB are needed"


def _cores() -> _Look:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return cores >= _CORES, str(cores), "figures from one core say little: use a machine with two or more"


def _files() -> _Look:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    enough = limit == resource.RLIM_INFINITY or limit >= _FILES
    return enough, f"limit {limit}", f"raise it: ulimit -n {_FILES}"


def _temporary(place: Path) -> _Look:
    """The broker unpacks native code (Snappy, zstd) into the temporary folder, the pipeline (RocksDB) into its own."""
    folders = {Path(tempfile.gettempdir()), place}
    forbidden = sorted(str(each) for each in folders if os.statvfs(each).f_flag & getattr(os, "ST_NOEXEC", 0))
    detail = f"{', '.join(forbidden)} mounted noexec" if forbidden else f"{place} allows native code"
    return not forbidden, detail, "set TMPDIR and --work-dir to folders that are not mounted noexec"


def _disk(place: Path) -> _Look:
    free = shutil.disk_usage(place).free
    return free >= _DISK_BYTES, f"{free / 1e9:.1f} GB free at {place}", "make room, or choose another --work-dir"


def _fsync(place: Path) -> _Look:
    median_ms = statistics.median(_fsync_times_ms(place))
    advice = "exactly-once writes a journal with fsync in each batch: choose a --work-dir on a faster disk"
    return median_ms <= _SLOW_FSYNC_MS, f"{median_ms:.1f} ms at {place}", advice


def _fsync_times_ms(place: Path) -> Iterator[float]:
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(_FSYNCS):
            file.write(bytes(4096))
            file.flush()
            begin = time.perf_counter()
            os.fsync(file.fileno())
            yield (time.perf_counter() - begin) * 1e3


def _existing(path: Path) -> Path:
    """`path`, or the nearest folder above it that exists."""
    path = path.absolute()
    return path if path.is_dir() else _existing(path.parent)
