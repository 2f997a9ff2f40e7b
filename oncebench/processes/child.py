"""Children: started in a session of their own, logged to a file, and always reaped.

Promise: a child's whole tree is gone when its context ends, and also when the suite itself is killed (see `guard`).
A child is signalled only while its pid is still the process that was started: as long as its session has not been
swept it is not reaped, so the kernel can't give its number to another.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from oncebench.errors import MissingEnvironment, UserError
from oncebench.processes import sessions
from oncebench.processes.guardian import guardian
from oncebench.processes.sessions import Session, start_time
from oncebench.run.workdir import disk_errors

_LAUNCH = Path(__file__).with_name("launcher.py")
_POLL_S = 0.01
_KILL_TIMEOUT_S = 20.0  # a process in the middle of a slow fsync can't die before it is done


class Child:
    """A running (or ended) child; `start` makes it. As a context manager its end kills the whole session."""

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
        """Exit code, or minus the signal that ended it; None until the session has been killed or stopped."""
        return self._popen.returncode

    def members(self) -> tuple[int, ...]:
        """Pids of the child and all its descendants that are alive."""
        return sessions.members(self.session) if self._popen.returncode is None else ()

    def stands_still(self, pid: int) -> bool:
        """Whether this process of the child's session is stopped, or has ended."""
        return sessions.stands_still(self.session, pid)

    def send(self, number: signal.Signals) -> None:
        """Signal the child alone; nothing happens if it has ended."""
        if self.alive:
            os.kill(self.pid, number)

    def freeze(self) -> None:
        """SIGSTOP the child and all its descendants."""
        sessions.freeze(self.session)

    def thaw(self, but: frozenset[int] = frozenset()) -> None:
        """SIGCONT the child and all its descendants, except these; nothing happens once they have been killed."""
        if self._popen.returncode is None:
            sessions.thaw(self.session, but)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the child itself has ended; False if it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def kill_session(self, timeout_s: float = _KILL_TIMEOUT_S) -> None:
        """SIGKILL the child and all its descendants as if at one moment, and return when they are gone.

        Raises `UserError` naming what is left after `timeout_s` (a process stuck in the kernel).
        """
        if self._popen.returncode is not None:
            return
        if not sessions.kill(self.session, timeout_s):
            left = ", ".join(map(str, self.members()))
            raise UserError(f"{self.name} could not be killed within {timeout_s:g} s (left: {left}); see {self.log}")
        self._popen.wait()
        guardian().done(self.session)

    def stop_gently(self, timeout_s: float) -> None:
        """SIGTERM the child, give it `timeout_s` to end by itself, then kill whatever is left of its session."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)  # while it is stopped it would not act on the SIGTERM
        self.wait(timeout_s)
        self.kill_session()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_session()


def _runs(child: Session) -> bool:
    """Whether our child runs; it is not reaped by asking. The kernel's own word where it can be had so, for this is
    asked many times a second (2 µs; reading `/proc` takes 70)."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return sessions.leader_alive(child)
    try:
        return os.waitid(os.P_PID, child.sid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:  # somebody reaped it
        return False


def running(child: Child | None, name: str, log: Path) -> Child:
    """The child, if it runs; else `UserError` that says what does not run, and where its log is."""
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
    """Start `command` in a session of its own, stdout and stderr appended to `log`; `env` replaces the environment,
    and `user` (uid, gid) is whom root runs it as.

    Raises `MissingEnvironment` if there is no such program.
    """
    program = shutil.which(command[0])
    if program is None:
        raise MissingEnvironment(f"{name} can't be started: there is no program {command[0]}")
    guard = guardian()
    # the kernel's death signal follows the *thread* that started a child, so only the main thread can ask for it
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
