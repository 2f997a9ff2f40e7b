"""Unix sessions: lists their members, stops them and kills them.

A child that starts in its own session keeps all its descendants there, unless one calls setsid(). A process *group* is
not enough: PySpark's worker daemon creates its own group, but stays in the session.

Promise: a process is signalled only if the session is still ours. Its leader is then the original process (same pid
and start time), or it has died and left members behind. In the latter case the kernel cannot have reused the number.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_POLL_S = 0.01  # processes die within a few ms of SIGKILL


class NotOursError(Exception):
    """The session id now belongs to another process. Nothing was signalled."""


@dataclass(frozen=True)
class Session:
    """A session that we started: its id (the leader's pid) and the leader's `start_time`."""

    sid: int
    started: int


@dataclass(frozen=True)
class _Process:
    session: int
    ended: bool
    started: int
    stopped: bool


def start_time(pid: int) -> int:
    """The start time of `pid`: clock ticks since boot (Linux), or µs since 1970.

    Raises `ProcessLookupError` if there is no such process.
    """
    process = _read(pid)
    if process is None:
        raise ProcessLookupError(f"no process {pid}")
    return process.started


def leader_alive(session: Session) -> bool:
    """Whether the session's original leader still runs. The check does not reap it."""
    leader = _read(session.sid)
    return leader is not None and leader.started == session.started and not leader.ended


def stands_still(session: Session, pid: int) -> bool:
    """Whether a process is stopped (SIGSTOP), has ended, or does not belong to `session`."""
    found = _read(pid)
    return found is None or found.session != session.sid or found.ended or found.stopped


def every_thread_stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped (SIGSTOP), or the process is gone."""
    try:
        texts = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has ended meanwhile: look again
        return not Path(f"/proc/{pid}").exists()
    return all(text.rpartition(")")[2].split()[0] in "TZX" for text in texts)


def members(session: Session) -> tuple[int, ...]:
    """Pids of the processes of `session` that are alive, without zombies.

    Raises `NotOursError` if the session id now belongs to another process.
    """
    leader = _read(session.sid)
    if leader is not None and leader.started != session.started:
        raise NotOursError(f"process {session.sid} is not the one that was started")
    read = ((pid, _read(pid)) for pid in _pids())
    return tuple(pid for pid, found in read if found is not None and found.session == session.sid and not found.ended)


def freeze(session: Session) -> tuple[int, ...]:
    """Stops every member (SIGSTOP), also those forked meanwhile. Returns their pids."""
    stopped: set[int] = set()
    while fresh := set(members(session)) - stopped:
        _signal_all(fresh, signal.SIGSTOP)
        stopped |= fresh
    return tuple(sorted(stopped))


def thaw(session: Session, but: frozenset[int] = frozenset()) -> None:
    """Continues every member (SIGCONT), except `but`."""
    _signal_all(set(members(session)) - but, signal.SIGCONT)


def kill(session: Session, timeout_s: float) -> bool:
    """Kills the whole session as if at one moment. Returns False if that exceeds `timeout_s`.

    All members are stopped first, so no member can react to the death of another, or fork, in between.
    """
    freeze(session)
    deadline = time.monotonic() + timeout_s
    while left := members(session):
        _signal_all(left, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _read_linux(pid: int) -> _Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None  # it has ended, or belongs to another user and is hidden (`hidepid`): it is not ours
    state, _ppid, _group, session, *rest = text.rpartition(")")[2].split()  # the name in front may contain anything
    threads, started = rest[13], rest[15]  # fields 20 and 22 of proc(5)

    # The first thread of a killed JVM is a zombie while its other threads still end and hold its ports.
    ended = state in "ZX" and int(threads) <= 1
    return _Process(int(session), ended, int(started), stopped=state == "T")


def _read_elsewhere(pid: int) -> _Process | None:
    try:
        process = psutil.Process(pid)
        status = process.status()
        started = round(process.create_time() * 1e6)
        return _Process(os.getsid(pid), status == psutil.STATUS_ZOMBIE, started, status == psutil.STATUS_STOPPED)
    except (psutil.Error, OSError):
        return None


_pids: Callable[[], list[int]] = psutil.pids
_read: Callable[[int], _Process | None] = _read_linux if sys.platform == "linux" else _read_elsewhere
