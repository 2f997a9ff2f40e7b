"""Attaches async-profiler and py-spy to a running pipeline for some seconds.

Promise: each profiler is a child process in a session of its own, and has ended when the context ends. Profilers only
read the pipeline's processes, except for async-profiler's agent, which stays in the JVM until the JVM ends.

Failure modes: a profiler may not attach, the pipeline died meanwhile, or the run ended first. `samples` then raises,
and the run itself goes on to its end.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from oncebench.downloads.async_profiler import AsyncProfiler, async_profiler
from oncebench.errors import MissingEnvironment, UserError
from oncebench.processes import child as process
from oncebench.processes.child import Child
from oncebench.profiling.stacks import Samples, Stack, parse

JVM, DRIVER, WORKERS = "jvm", "driver", "workers"
# Thread CPU time between two samples of the JVM. A batch takes some 100 ms of it, in ten or more threads.
JVM_INTERVAL = "1ms"
# Samples of each Python process per second. py-spy warns that it falls behind at higher rates on two busy cores.
PYTHON_RATE = 200
# The module of PySpark's worker daemon: `spark.python.daemon.module` of the pipeline.
DAEMON_MODULE = "pipeline.spark.workers"
EXITED = "process exited"  # py-spy's message, with exit code 0, for a process that ended before its time
_ERROR = re.compile("error|permission|not permitted|not found|failed|exited", re.IGNORECASE)
NO_SAMPLES = "No stack counts found"  # py-spy's error for a process that was idle all the time


@dataclass(frozen=True)
class Tools:
    """The installed profilers."""

    jvm: AsyncProfiler
    python: Path

    @classmethod
    def find(cls) -> Tools:
        """Finds py-spy and fetches async-profiler.

        Raises:
            MissingEnvironment: py-spy is not installed, or async-profiler cannot be fetched.
        """
        py_spy = Path(sysconfig.get_path("scripts")) / "py-spy"
        if not py_spy.is_file():
            raise MissingEnvironment(
                "py-spy is not installed, which samples the Python processes. Install it in your clone "
                "of oncebench: pip install '.[profile]'"
            )
        return cls(async_profiler(), py_spy)


class Profilers:
    """Samples the processes of one pipeline, once.

    The run calls it with the pipeline at each look (`oncebench.run.cell.During`).

    Args:
        folder: for the collapsed stacks and the profilers' logs; created when the profilers start.
        seconds: how long the profilers sample.
    """

    def __init__(self, tools: Tools, folder: Path, seconds: int) -> None:
        self._tools, self._folder, self._seconds = tools, folder, seconds
        self._children: dict[str, Child] = {}
        self._ended: dict[str, int | None] = {}  # exit codes

    def __call__(self, pipeline: Child) -> None:
        """Starts the profilers when every process is there; later reaps those that have ended."""
        if not self._children and (found := _processes(pipeline)) is not None:
            self._start(found)
        for name, child in self._children.items():
            if name not in self._ended and not child.alive:
                child.kill_session()
                self._ended[name] = child.returncode

    def samples(self) -> Samples:
        """Returns what the profilers sampled.

        Raises:
            UserError: a profiler failed, did not start, or did not end in time.
        """
        if not self._children:
            raise UserError(
                "the profilers did not start, because the pipeline's JVM and Python workers did not run when the "
                "warm-up was over. See logs/pipeline.log in the work dir"
            )
        stacks = {name: tuple(self._stacks(name)) for name in self._children}
        jvm, driver = stacks.pop(JVM), stacks.pop(DRIVER)
        return Samples(jvm, driver, tuple(chain.from_iterable(stacks.values())))

    def _stacks(self, name: str) -> Iterable[Stack]:
        child = self._children[name]
        words = child.log.read_text("utf-8", errors="replace")
        if name not in self._ended:
            raise UserError(
                f"{child.name} did not end before the run did. Is the machine busy? Give a longer --duration. "
                f"See {child.log}"
            )
        if self._ended[name] == 0 and EXITED not in words:
            return parse(self._stack_file(name).read_text("utf-8", errors="replace"))
        if NO_SAMPLES in words:
            return ()
        raise UserError(f"{child.name} failed: {_reason(words)}. {_remedy(words)}. See {child.log}")

    def _start(self, found: _Processes) -> None:
        self._folder.mkdir(exist_ok=True)
        self._attach(JVM, "async-profiler", self._jvm_command(found.jvm))
        self._attach(DRIVER, "py-spy for the Python driver", self._python_command(DRIVER, found.driver))
        for number, pid in enumerate(found.daemons, 1):
            name = f"{WORKERS}-{number}"
            command = [*self._python_command(name, pid), "--subprocesses"]
            self._attach(name, "py-spy for the Python workers", command)

    def _attach(self, name: str, title: str, command: Sequence[str | Path]) -> None:
        self._children[name] = process.start(title, command, self._folder / f"{name}.log")

    def _jvm_command(self, pid: int) -> Sequence[str | Path]:
        jvm = self._tools.jvm
        return (jvm.program, "-d", str(self._seconds), "-e", "cpu", "-i", JVM_INTERVAL, "-t", "-o", "collapsed",
                "-f", self._stack_file(JVM), "--libpath", jvm.agent, str(pid))  # fmt: skip

    def _python_command(self, name: str, pid: int) -> Sequence[str | Path]:
        # nonblocking: py-spy otherwise stops the threads for each sample, which costs the pipeline time. The stop
        # also wakes threads that wait, and the next sample counts them as running.
        # function: the table needs no line numbers, and line numbers would split the flame graph.
        return (self._tools.python, "record", "--pid", str(pid), "--duration", str(self._seconds),
                "--rate", str(PYTHON_RATE), "--format", "raw", "--function", "--nonblocking",
                "--output", self._stack_file(name))  # fmt: skip

    def _stack_file(self, name: str) -> Path:
        return self._folder.resolve() / f"{name}.collapsed"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children.values():
            child.kill_session()


@dataclass(frozen=True)
class _Processes:
    """The pids of a pipeline.

    Spark starts a daemon for each environment of workers. The operator has an environment of its own.
    """

    driver: int
    jvm: int
    daemons: Sequence[int]


def _processes(pipeline: Child) -> _Processes | None:
    """Returns the pids of a running pipeline; None: its JVM or its Python workers do not run."""
    # The parents of the daemons and of their forks, which have the same command line.
    jvm, parents = None, dict[int, int]()
    for pid in pipeline.members():
        try:
            command, parent = psutil.Process(pid).cmdline(), psutil.Process(pid).ppid()
        except psutil.NoSuchProcess:
            continue
        if command and Path(command[0]).name == "java":
            jvm = pid
        elif DAEMON_MODULE in command:
            parents[pid] = parent
    daemons = [pid for pid, parent in parents.items() if parent not in parents]
    return _Processes(pipeline.pid, jvm, daemons) if jvm is not None and daemons else None


def _reason(words: str) -> str:
    """Returns the first line that names an error; py-spy writes a backtrace after it."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)]
    return (errors or lines[-1:] or ["it left no message"])[0].rstrip(".")


def _remedy(words: str) -> str:
    """Returns what a user can do about a profiler's error."""
    lowered = words.lower()
    if "permission" in lowered or "not permitted" in lowered:
        return (
            "This user may not attach to the pipeline. Run as root, or allow it: `sysctl kernel.yama.ptrace_scope=0`; "
            "in a container, add the capability SYS_PTRACE"
        )
    if any(text in lowered for text in ("no such process", "not found", "process executable", "exited")):
        return "The process ended during the profile; logs/pipeline.log in the work dir has the reason"
    return "Run the command again"
