"""The machine, the versions and the commit that a figure belongs to.

Promise: the values describe the machine that runs this code. `commit` is the commit of the clone that contains
oncebench, with `-dirty` if a tracked file was changed. It is None without a clone (installed from a wheel) or git.
"""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from oncebench.home import HOME

_PARTS = ("pyspark", "confluent-kafka", "kafka-python", "numpy", "pyarrow", "pandas", "duckdb")
_GIT_S = 10.0  # time-out for a command in a small clone, which takes milliseconds


def environment(package: str | None = None) -> dict[str, Any]:
    """Returns the machine and the versions that a figure belongs to.

    Args:
        package: the package of the run's sink, if the sink is not one of ours.
    """
    parts = _PARTS if package is None else (*_PARTS, package)
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "oncebench": version("oncebench"),
        "commit": commit_of(HOME),
        "versions": {name: version(name) for name in parts},
    }


@cache  # a series of runs has one commit, although its results are written into the clone meanwhile
def commit_of(root: Path) -> str | None:
    """The commit of the clone that tracks this package.

    None for a clone that does not track it: a virtual environment may be inside any clone.
    """
    this_file = f"{Path(__file__).relative_to(HOME)}"
    if _git(root, "ls-files", "--error-unmatch", this_file) is None:
        return None
    return _git(root, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", os.fspath(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str | None:
    info = Path("/proc/cpuinfo")
    return cpu_model(info.read_text()) if info.exists() else None


def cpu_model(info: str) -> str | None:
    """The name of the first processor in the text of Linux's `/proc/cpuinfo`.

    It includes family and model if they are there: clouds call processors ten years apart by one name ("AMD EPYC").
    """
    first = info.split("\n\n", maxsplit=1)[0]
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    name, family, model = (fields.get(key) for key in ("model name", "cpu family", "model"))
    return f"{name} (family {family}, model {model})" if name and family and model else name
