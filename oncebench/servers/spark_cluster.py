"""A standalone Spark cluster: a master and workers from pip's pyspark.

Each is a process of its own on loopback.

Each worker has one core, and a working folder and an environment of its own: no class path, no PYTHONPATH, and nothing
of the caller's. So executors get jars and code from the driver, as on other machines.

Promise: when the context ends, all of these processes are gone, and so are the executors that they have started.
Failures: `MissingEnvironment` if a process ends while it starts, or the workers do not register within START_LIMIT_S.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil
import pyspark

from oncebench.downloads.java import Java
from oncebench.errors import Interrupted, MissingEnvironment
from oncebench.processes import child as process
from oncebench.processes.child import Child, read_log, tail
from oncebench.processes.language import in_english
from oncebench.processes.ports import LOOPBACK, free_ports
from oncebench.processes.temporary import emptied, jvm_option
from oncebench.servers.pages import page
from oncebench.servers.spark_executors import executors_among

SPARK_HOME = Path(pyspark.__file__).parent
# A JVM starts in some seconds on idle cores; three took more than 180 s on busy ones.
START_LIMIT_S = 600.0
_POLL_S = 0.05
# As the pipeline's own JVM (pipeline/spark/session.py), because a cluster of the suite runs for minutes. In two
# alternating pairs of runs with a kill, the executors took 0.71 and 0.82 times the CPU time of Java's defaults.
JVM = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
_STARTS = 3  # another process may take a free port before the master does
_TAKEN = b"java.net.BindException"
# One executor with Spark's default memory fits into a worker.
WORKER_MEMORY = "1g"


@dataclass(frozen=True)
class Start:
    """How the processes of a cluster start.

    Attributes:
        settings: the folder of Spark's settings, the first entry of every class path; None: an empty folder of each
            process.
        options: further options of every JVM, executors included.
    """

    settings: Path | None = None
    options: Sequence[str] = ()


class _PortTaken(MissingEnvironment):
    """Another process listens on a port of the master."""


@dataclass
class SparkCluster:
    """A running master with its workers.

    Attributes:
        address: what `--master` takes.
        page: the address of the master's page.
        folder: logs, and the working folders of the workers.
        java: runs master and workers.
        master: the process of the master.
        workers: the newest process of each worker.
        how: how its processes start.
    """

    address: str
    page: str
    folder: Path
    java: Java
    master: Child
    workers: list[Child] = field(default_factory=list)
    how: Start = Start()
    _stack: ExitStack = field(default_factory=ExitStack)

    def state(self) -> Mapping[str, Any]:
        """Returns what the master's page reports about workers and applications."""
        found: Mapping[str, Any] = json.loads(page(f"{self.page}/json/", START_LIMIT_S))
        return found

    def alive(self) -> int:
        """Returns the number of workers that the master can use; 0 while its page does not answer."""
        try:
            return int(self.state()["aliveworkers"])
        except (OSError, ValueError):
            return 0

    def worker(self, session: int) -> Child | None:
        """Returns the living worker with this session id, or None."""
        return next((each for each in self.workers if each.pid == session and each.alive), None)

    def members(self) -> tuple[int, ...]:
        """Returns the pids of the workers and of everything that they have started."""
        return tuple(pid for worker in self.workers for pid in worker.members())

    def executors(self) -> list[int]:
        """Returns the pids of the executors' JVMs."""
        return [executor.pid for executor in executors_among(self.members())]

    def kill_executors(self) -> None:
        """Kills everything that the Spark workers have started: executors, and their Python workers."""
        for worker in self.workers:
            worker.freeze()  # or a Python worker goes on when its executor is dead
            for pid in worker.members():
                if pid != worker.pid:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            worker.thaw()

    def commands(self) -> list[list[str]]:
        """Returns the command of every process that the workers have started, directly or not."""
        found = []
        for pid in self.members():
            with suppress(psutil.Error):  # it has ended meanwhile
                found.append(psutil.Process(pid).cmdline())
        return found

    def kill_worker(self, index: int) -> None:
        """Kills a worker and all that it has started, as the power failure of its machine would."""
        self.workers[index].kill_session()

    def replace_worker(self, session: int) -> bool:
        """Kills what is left of the worker with this session id, and starts another in its place.

        Returns False if no worker has this id.
        """
        found = [index for index, worker in enumerate(self.workers) if worker.pid == session]
        for index in found:
            self.kill_worker(index)
            self.restart_worker(index)
        return bool(found)

    def restart_worker(self, index: int) -> None:
        """Starts a worker in place of one that was killed; returns at once."""
        self.workers[index] = self._start_worker(index)

    def start_workers(self, number: int, interrupted: Callable[[], bool]) -> None:
        """Starts this number of workers; returns when the master has all of them.

        Raises:
            MissingEnvironment: the master or a worker has ended, or the master does not get its workers in time.
            Interrupted: the user has asked to end.
        """
        for index in range(number):
            self.workers.append(self._start_worker(index))
        end = monotonic() + START_LIMIT_S
        while self.alive() != number:
            if interrupted():
                raise Interrupted("interrupted before the Spark cluster ran")
            if _TAKEN in read_log(self.master.log):
                raise _PortTaken(f"a port of Spark's master was taken by another process; see {self.master.log}")
            for each in (self.master, *self.workers):
                if not each.alive:
                    raise MissingEnvironment(
                        f"{each.name} ended while starting; the end of {each.log}:\n{tail(each.log)}"
                    )
            if monotonic() > end:
                problem = f"the master did not get its workers within {START_LIMIT_S:g} s"
                raise MissingEnvironment(f"{problem}. See the files `log` in {self.folder}")
            sleep(_POLL_S)

    def _start_worker(self, index: int) -> Child:
        folder = self.folder / f"worker-{index + 1}"
        (port,) = free_ports(1)
        arguments = ["--host", LOOPBACK, "--webui-port", str(port), "--cores", "1", "--memory", WORKER_MEMORY,
                     "--work-dir", str(folder / "work"), self.address]  # fmt: skip
        return self._stack.enter_context(start_process(self.java, "Worker", arguments, folder, self.how))


@contextmanager
def start_spark_cluster(
    folder: Path,
    java: Java,
    workers: int,
    interrupted: Callable[[], bool] = lambda: False,
    start: Start = Start(),
) -> Iterator[SparkCluster]:
    """Starts a master and workers with one core each below `folder`.

    Args:
        interrupted: whether the user has asked to end; ends the wait for the workers.
        start: how its processes start.

    Raises:
        MissingEnvironment: a process ends while it starts, or the workers do not register within START_LIMIT_S.
        UserError: interrupted (exit code 130).
    """
    for attempt in range(1, _STARTS + 1):
        with ExitStack() as stack:
            cluster = _begin(folder, java, start, stack)
            try:
                cluster.start_workers(workers, interrupted)
            except _PortTaken:
                if attempt == _STARTS:
                    raise
                continue
            yield cluster
            return


def _begin(folder: Path, java: Java, how: Start, stack: ExitStack) -> SparkCluster:
    """Starts a master on free ports. Its log begins anew."""
    port, shown = free_ports(2)
    own = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(shown)]
    (folder / "master" / "log").unlink(missing_ok=True)
    master = stack.enter_context(start_process(java, "Master", own, folder / "master", how))
    address, shown_at = f"spark://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{shown}"
    return SparkCluster(address, shown_at, folder, java, master, how=how, _stack=stack)


def start_process(java: Java, kind: str, arguments: list[str], folder: Path, how: Start) -> Child:
    """Starts a master or a worker, with an environment of its own."""
    for name in ("conf", "home"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    temporary = emptied(folder / "tmp")
    environment = {
        **{name: value for name, value in in_english().items() if name in ("PATH", "LC_CTYPE", "LC_MESSAGES")},
        "HOME": str(folder / "home"),
        "TMPDIR": str(temporary),
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_CONF_DIR": str(how.settings or folder / "conf"),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(temporary),
        # Executors inherit it.
        "JDK_JAVA_OPTIONS": " ".join((JVM, *(f'"{each}"' for each in (*how.options, jvm_option(temporary))))),
        # Without retries: on the next port it would miss its own workers, which then register at another master.
        # Without the server that takes jobs by HTTP from every user of this machine. Its port is 6066 for every master.
        "SPARK_MASTER_OPTS": "-Dspark.port.maxRetries=0 -Dspark.master.rest.enabled=false",
        "SPARK_DAEMON_MEMORY": "256m",  # a master and a worker keep little: names and states
    }
    main = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
    command: list[str | Path] = [SPARK_HOME / "bin" / "spark-class", main, *arguments]
    return process.start(f"Spark's {kind.lower()}", command, folder / "log", env=environment, cwd=folder)
