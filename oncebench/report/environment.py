"""The machine, the versions and the commit that a figure belongs to.

Promise: asked of the machine that runs this. `commit` is that of the clone in which oncebench lies, with `-dirty` if
anything that git keeps was changed; None where it lies in none (installed from a wheel) or there is no git.
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
_GIT_S = 10.0  # for an answer about a small clone, which takes milliseconds


def environment() -> dict[str, Any]:
    """The machine and the versions that a figure belongs to."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "oncebench": version("oncebench"),
        "commit": commit_of(HOME),
        "versions": {name: version(name) for name in _PARTS},
    }


@cache  # a series of runs has one commit, though its results are written into the clone meanwhile
def commit_of(root: Path) -> str | None:
    """The commit of the clone that keeps this very package: a virtual environment may lie in anyone's clone."""
    own = f"{Path(__file__).relative_to(HOME)}"
    if _git(root, "ls-files", "--error-unmatch", own) is None:
        return None
    return _git(root, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")


def _git(root: Path, *words: str) -> str | None:
    command = ["git", "-C", os.fspath(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str | None:
    info = Path("/proc/cpuinfo")
    return cpu_model(info.read_text()) if info.exists() else None


def cpu_model(info: str) -> str | None:
    """What Linux's `/proc/cpuinfo` calls the first processor, with family and model where it has them: clouds call
    processors ten years apart by one name ("AMD EPYC")."""
    first = info.split("\n\n", maxsplit=1)[0]
    told = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    name, family, model = (told.get(key) for key in ("model name", "cpu family", "model"))
    return f"{name} (family {family}, model {model})" if name and family and model else name
