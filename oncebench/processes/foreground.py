"""Runs a program that is not ours in the foreground, such as asv.

Promise: when `run` ends, also by an interruption, the program and all its descendants are gone, and so are their
temporary files. If this process is killed, the guardian kills the program; its temporary files then stay. The program
has the terminal of this process, but a session of its own: only this process gets a Ctrl-C.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress

import psutil

from oncebench.processes import sessions
from oncebench.processes.guardian import guardian
from oncebench.processes.sessions import Session, start_time

_KILL_TIMEOUT_S = 20.0  # a process inside a slow fsync dies only after the fsync
# If a killed descendant is a suite, its guardian kills its children within a second. What is left then is killed here.
_GUARDIAN_S = 5.0


def run(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs a command to its end; returns its exit code.

    Args:
        env: the whole environment; TMPDIR is replaced by a folder that exists as long as the command runs.
    """
    with tempfile.TemporaryDirectory(prefix="oncebench-", ignore_cleanup_errors=True) as temporary:
        guard = guardian()
        program = subprocess.Popen(command, env={**env, "TMPDIR": temporary}, start_new_session=True)
        session = Session(program.pid, start_time(program.pid))  # it is not reaped yet, so it has a start time
        guard.watch(session)
        try:
            return program.wait()
        finally:
            _end(program, session)
            guard.unwatch(session)


def _end(program: subprocess.Popen[bytes], session: Session) -> None:
    """Kills what is left of the program.

    Returns when its descendants in other sessions are gone too.
    """
    descendants: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):  # it has ended
        descendants = psutil.Process(program.pid).children(recursive=True) if program.returncode is None else []
    with suppress(sessions.NotOursError):
        sessions.kill(session, _KILL_TIMEOUT_S)
    program.wait()
    _, left = psutil.wait_procs(descendants, _GUARDIAN_S)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, _KILL_TIMEOUT_S)
