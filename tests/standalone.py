"""A standalone Spark: a master and two workers from pip's pyspark, on loopback.

Each worker has a working folder and an environment of its own: no class path, no PYTHONPATH, nothing of the test's.
Promise: when the context ends, all of these processes are gone, and so are the executors that they have started.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil
import pyspark

from oncebench.downloads.java import find_java
from oncebench.processes import child as process
from oncebench.processes.child import Child
from oncebench.processes.ports import LOOPBACK, free_ports

SPARK_HOME = Path(pyspark.__file__).parent
LIMIT_S = 600.0  # a JVM starts in some seconds on idle cores; three took more than 180 s on busy ones
WORKERS = 2
# The main class of an executor's JVM.
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Standalone:
    """A running master with its workers.

    Attributes:
        address: what `--master` takes.
        page: the address of the master's page.
        workers: in the order of their start.
        folder: logs, and the working folders of the workers.
    """

    address: str
    page: str
    workers: list[Child]
    folder: Path

    def state(self) -> Mapping[str, Any]:
        """What the master's page says about workers and applications."""
        with urllib.request.urlopen(f"{self.page}/json/", timeout=LIMIT_S) as answer:
            found: Mapping[str, Any] = json.load(answer)
        return found

    def executors(self) -> list[int]:
        """The pids of the executors' JVMs."""
        return [pid for pid, command in self._processes() if EXECUTOR in command]

    def commands(self) -> list[list[str]]:
        """The command of every process that the workers have started, directly or not."""
        return [command for _, command in self._processes()]

    def _processes(self) -> Iterator[tuple[int, list[str]]]:
        for worker in self.workers:
            for pid in worker.members():
                with suppress(psutil.Error):  # it has ended meanwhile
                    yield pid, psutil.Process(pid).cmdline()


@contextmanager
def standalone(folder: Path, memory: str = "1g") -> Iterator[Standalone]:
    """Starts a master and WORKERS workers with one core each; returns when the master has all of them.

    Args:
        memory: what each worker gives to executors.
    """
    port, page, *pages = free_ports(2 + WORKERS)
    address, shown = f"spark://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{page}"
    with ExitStack() as stack:
        own = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(page)]
        stack.enter_context(_start("Master", own, folder / "master"))
        workers = []
        for number, its in enumerate(pages, 1):
            work = folder / f"worker-{number}"
            given = ["--host", LOOPBACK, "--webui-port", str(its), "--cores", "1", "--memory", memory,
                     "--work-dir", str(work / "work"), address]  # fmt: skip
            workers.append(stack.enter_context(_start("Worker", given, work)))
        cluster = Standalone(address, shown, workers, folder)
        waited(lambda: _alive(cluster) == WORKERS, "the master has all of its workers")
        yield cluster


def waited(condition: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
    """Waits for a condition; AssertionError after `limit_s`."""
    end = monotonic() + limit_s
    while not condition():
        assert monotonic() < end, f"not within {limit_s:g} s: {what}"
        sleep(0.05)


def _alive(cluster: Standalone) -> int:
    try:
        return int(cluster.state()["aliveworkers"])
    except (OSError, ValueError):  # the page is not there yet, or has nothing to show
        return 0


def _start(kind: str, arguments: list[str], folder: Path) -> Child:
    folder.mkdir(parents=True)
    for name in ("conf", "home", "tmp"):
        (folder / name).mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(folder / "tmp"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    command = [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{kind.lower()}.{kind}", *arguments]
    return process.start(f"Spark's {kind.lower()}", command, folder / "log", env=environment, cwd=folder)
