"""Attaches async-profiler and py-spy to a running pipeline for some seconds.

Promise: the profilers are children of their own sessions, and are gone when the context ends. They only read the
pipeline's processes, apart from async-profiler's agent, which stays in the JVM until the JVM ends.

Failure modes: a profiler may not attach, the pipeline died meanwhile, or the run ended first. `stacks` then raises, and
the run itself goes on to its end.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from oncebench.downloads.async_profiler import AsyncProfiler, async_profiler
from oncebench.errors import MissingEnvironment, UserError
from oncebench.processes import child as process
from oncebench.processes.child import Child
from oncebench.profiling.stacks import Stack, parse

JVM, DRIVER, WORKERS = "jvm", "driver", "workers"
# Thread CPU time between two samples of the JVM. A batch takes some 100 ms of it, in ten or more threads.
JVM_INTERVAL = "1ms"
# Samples of each Python process per second. py-spy warns that it falls behind at higher rates on two busy cores.
PYTHON_RATE = 200
# The module of PySpark's worker daemon: `spark.python.daemon.module` of the pipeline.
DAEMON_MODULE = "pipeline.spark.workers"
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
            MissingEnvironment: one of them is not there.
        """
        py_spy = Path(sysconfig.get_path("scripts")) / "py-spy"
        if not py_spy.is_file():
            raise MissingEnvironment(
                "py-spy is not installed, which samples the Python processes. Install it: pip install 'oncebench[profile]'"
                ", or in a checkout pip install -e '.[profile]'"
            )
        return cls(async_profiler(), py_spy)


class Profilers:
    """Profiles one pipeline, once. Call it with the pipeline at each look (`oncebench.run.cell.During`).

    Args:
        folder: for the collapsed stacks and the profilers' logs; created when the profilers start.
        seconds: how long they sample.
    """

    def __init__(self, tools: Tools, folder: Path, seconds: int) -> None:
        self._tools, self._folder, self._seconds = tools, folder, seconds
        self._children: dict[str, Child] = {}
        self._ended: dict[str, int | None] = {}  # exit codes
        self._pipeline: Child | None = None

    def __call__(self, pipeline: Child) -> None:
        """Starts the profilers when every process is there; later reaps those that have ended."""
        if self._pipeline is None:
            found = _processes(pipeline)
            if len(found) == len((JVM, DRIVER, WORKERS)):
                self._pipeline = pipeline
                self._start(found)
        for name, child in self._children.items():
            if name not in self._ended and not child.alive:
                child.kill_session()
                self._ended[name] = child.returncode

    def stacks(self, name: str) -> tuple[Stack, ...]:
        """Returns the samples of the JVM, the driver's Python or the Python workers.

        Raises:
            UserError: the profiler failed, or did not end in time.
        """
        if name not in self._children:
            raise UserError(
                "the profilers did not start: the pipeline's JVM and Python workers did not run when the warm-up was "
                "over. Give a longer --duration"
            )
        child = self._children[name]
        words = process.tail(child.log)
        if name not in self._ended:
            raise UserError(
                f"{child.name} did not end before the run did. Is the machine busy? Give a longer --duration. "
                f"See {child.log}"
            )
        if self._ended[name] == 0:
            return tuple(parse(self._stack_file(name).read_text("utf-8", errors="replace")))
        if NO_SAMPLES in words:
            return ()
        raise UserError(f"{child.name} failed: {_last_line(words)}. {_remedy(words)}. See {child.log}")

    def _start(self, pids: dict[str, int]) -> None:
        self._folder.mkdir(exist_ok=True)
        for name, command in {
            JVM: self._jvm_command(pids[JVM]),
            DRIVER: self._python_command(DRIVER, pids[DRIVER]),
            WORKERS: [*self._python_command(WORKERS, pids[WORKERS]), "--subprocesses"],
        }.items():
            title = "async-profiler" if name == JVM else f"py-spy for the Python {name}"
            self._children[name] = process.start(title, command, self._folder / f"{name}.log")

    def _jvm_command(self, pid: int) -> Sequence[str | Path]:
        jvm = self._tools.jvm
        return (jvm.program, "-d", str(self._seconds), "-e", "cpu", "-i", JVM_INTERVAL, "-t", "-o", "collapsed",
                "-f", self._stack_file(JVM), "--libpath", jvm.agent, str(pid))  # fmt: skip

    def _python_command(self, name: str, pid: int) -> Sequence[str | Path]:
        # Functions instead of lines: a line is of no use in the table, and splits the flame graph.
        return (self._tools.python, "record", "--pid", str(pid), "--duration", str(self._seconds),
                "--rate", str(PYTHON_RATE), "--format", "raw", "--function",
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


def _processes(pipeline: Child) -> dict[str, int]:
    """Returns the pids of the driver's Python, its JVM and the worker daemon, as far as they run."""
    found = {DRIVER: pipeline.pid}
    daemons: dict[int, int] = {}  # the daemon and its forks, which have its command line -> parent
    for pid in pipeline.members():
        try:
            command, parent = psutil.Process(pid).cmdline(), psutil.Process(pid).ppid()
        except psutil.NoSuchProcess:
            continue
        if command and Path(command[0]).name == "java":
            found[JVM] = pid
        elif DAEMON_MODULE in command:
            daemons[pid] = parent
    return found | {WORKERS: pid for pid, parent in daemons.items() if parent not in daemons}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or ["it left no message"])[-1].rstrip(".")


def _remedy(words: str) -> str:
    """Returns what a user can do about a profiler's error."""
    lowered = words.lower()
    if "permission" in lowered or "not permitted" in lowered:
        return (
            "This user may not attach to the pipeline. Run as root, or allow it: `sysctl kernel.yama.ptrace_scope=0`; "
            "in a container, add the capability SYS_PTRACE"
        )
    if "no such process" in lowered or "not found" in lowered or "exited" in lowered:
        return "The process ended during the profile; logs/pipeline.log in the work dir has the reason"
    return "Run the command again"
