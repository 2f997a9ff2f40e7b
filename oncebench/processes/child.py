"""Child processes: each runs in its own session, logs to a file, and is always reaped.

Promise: a child and all its descendants are gone when its context ends, and also after the suite itself was killed
(see `guardian`). A signal never reaches a foreign process: a child is reaped only after its session has been killed, so
until then the kernel cannot give its pid to another process.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from oncebench.delivery.errors import REFUSED, STOPPED
from oncebench.disk_errors import disk_errors
from oncebench.errors import MissingEnvironment, UserError
from oncebench.processes import sessions
from oncebench.processes.guardian import guardian
from oncebench.processes.sessions import Session, start_time

_LAUNCH = Path(__file__).with_name("launcher.py")
_POLL_S = 0.01
# A stopped thread needs milliseconds to notice; one that waits for a disk does not stop before.
_FREEZE_S = 2.0
_KILL_TIMEOUT_S = 20.0  # a process inside a slow fsync dies only after the fsync
_TAIL_LINES = 15

# The processes that `suspend` has stopped.
_suspended: dict[psutil.Process, Session] = {}


class Child:
    """A running or ended child. The end of its context kills the whole session."""

    def __init__(self, name: str, popen: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self.log = log
        self.session = Session(popen.pid, start_time(popen.pid))
        self._popen = popen

    @property
    def pid(self) -> int:
        return self.session.sid

    @property
    def alive(self) -> bool:
        """Whether the child itself (not its descendants) still runs."""
        return self._popen.returncode is None and _runs(self.session)

    @property
    def returncode(self) -> int | None:
        """Exit code, or minus the signal number; None until the session has been killed."""
        return self._popen.returncode

    def members(self) -> tuple[int, ...]:
        """Pids of the child and its descendants that are alive."""
        return sessions.members(self.session) if self._popen.returncode is None else ()

    def stands_still(self, pid: int) -> bool:
        """Whether this process of the child's session is stopped (SIGSTOP) or has ended."""
        return sessions.stands_still(self.session, pid)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the child only. Does nothing if it has ended."""
        if self.alive:
            os.kill(self.pid, number)

    def freeze(self) -> None:
        """SIGSTOP for the child and all its descendants."""
        sessions.freeze(self.session)

    def freeze_whole(self) -> None:
        """Freezes like `freeze`, and waits at most _FREEZE_S until every thread stands still.

        On a busy machine a thread runs on for a while.
        """
        deadline = time.monotonic() + _FREEZE_S
        pids = sessions.freeze(self.session)
        while not all(map(sessions.every_thread_stopped, pids)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def thaw(self, but: frozenset[int] = frozenset()) -> None:
        """SIGCONT for the child and its descendants, except `but`. Does nothing after a kill."""
        if self._popen.returncode is None:
            sessions.thaw(self.session, but)

    def wait(self, timeout_s: float) -> bool:
        """Waits until the child itself has ended. Returns False if it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def kill_session(self, timeout_s: float = _KILL_TIMEOUT_S) -> None:
        """Kills the child and its descendants as if at one moment. Returns when they are gone.

        Raises `UserError` with the remaining pids after `timeout_s` (a process may be stuck in the kernel).
        """
        if self._popen.returncode is not None:
            return
        if not sessions.kill(self.session, timeout_s):
            left = ", ".join(map(str, self.members()))
            raise UserError(f"{self.name} could not be killed within {timeout_s:g} s (left: {left}); see {self.log}")
        self._popen.wait()
        guardian().unwatch(self.session)

    def stop_gently(self, timeout_s: float, again_after_s: float | None = None) -> None:
        """Sends SIGTERM, waits up to `timeout_s`, then kills what is left of the session.

        Args:
            again_after_s: when a second SIGTERM asks a child to wait no longer; None: never.
        """
        deadline = time.monotonic() + timeout_s
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)  # a stopped process does not act on SIGTERM
        if again_after_s is not None and not self.wait(again_after_s):
            self.send(signal.SIGTERM)
        self.wait(deadline - time.monotonic())
        self.kill_session()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_session()


def _runs(child: Session) -> bool:
    """Whether our child runs. The check does not reap it.

    It is called many times a second: waitid takes 2 µs, reading `/proc` takes 70 µs.
    """
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return sessions.leader_alive(child)
    try:
        return os.waitid(os.P_PID, child.sid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:  # already reaped
        return False


def suspend(process: psutil.Process) -> None:
    """SIGSTOP for a child's descendant that leads a session of its own, as PostgreSQL's do.

    The guardian kills it if the suite dies: while it is stopped, it does not notice the end of its parent.

    Raises:
        psutil.NoSuchProcess: it has ended.
    """
    forget_ended()
    with suppress(ProcessLookupError):  # `process.suspend` reports it
        session = Session(process.pid, start_time(process.pid))
        if process.is_running():  # otherwise the start time may be that of a later process with this pid
            _suspended[process] = session
            guardian().watch(session)
    process.suspend()


def resume(process: psutil.Process) -> None:
    """SIGCONT after `suspend`. Raises `psutil.NoSuchProcess` if it has ended."""
    if (session := _suspended.pop(process, None)) is not None:
        guardian().unwatch(session)
    process.resume()


def forget_ended() -> None:
    """Stops watching suspended processes that have ended.

    The kernel may give their pids to others.
    """
    for process, session in list(_suspended.items()):
        if not process.is_running():
            guardian().unwatch(session)
            _suspended.pop(process, None)


def running(child: Child | None, name: str, log: Path) -> Child:
    """The child, if it runs. Raises `UserError` with its name and its log otherwise."""
    if child is None or not child.alive:
        raise UserError(f"{name} does not run; see {log}")
    return child


def start(
    name: str,
    command: Sequence[str | Path],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: tuple[int, int] | None = None,
) -> Child:
    """Starts `command` in its own session.

    Args:
        log: gets stdout and stderr, appended.
        env: replaces the environment.
        user: (uid, gid) under which root runs the command.

    Raises:
        MissingEnvironment: there is no such program.
    """
    program = shutil.which(command[0])
    if program is None:
        raise MissingEnvironment(f"{name} can't be started: there is no program {command[0]}")
    guard = guardian()
    # The kernel ties the death signal to the *thread* that started the child, so only the main thread can request it.
    parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
    owner = "-" if user is None else f"{user[0]}:{user[1]}"
    launch = [sys.executable, "-I", "-S", str(_LAUNCH), str(parent), owner, program]
    with disk_errors(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        output = log.open("ab")
    with output:
        popen = subprocess.Popen(
            [*launch, *map(str, command[1:])],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=env,
            cwd=cwd,
        )
    child = Child(name, popen, log)
    guard.watch(child.session)
    return child


def read_log(log: Path, offset: int = 0) -> bytes:
    """The content of `log` from byte `offset` on."""
    with log.open("rb") as file:
        file.seek(offset)
        return file.read()


def lines_of(log: Path, offset: int = 0) -> list[str]:
    """The lines of `log` from byte `offset` on."""
    return read_log(log, offset).decode("utf-8", "replace").splitlines()


def tail(log: Path, offset: int = 0) -> str:
    """The last lines of `log`, from byte `offset` on."""
    return "\n".join(lines_of(log, offset)[-_TAIL_LINES:])


def messages_in(log: Path, offset: int = 0) -> list[str]:
    """Returns the last messages of pipelines in `log`, from byte `offset` on; oldest first.

    REFUSED and STOPPED are the beginnings of such lines.
    """
    return [line for line in lines_of(log, offset) if line.startswith((REFUSED, STOPPED))]
