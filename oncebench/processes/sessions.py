"""Unix sessions: who belongs to one, and how to end all of it.

A child started in a session of its own keeps all its descendants there unless one calls setsid() itself. The process
*group* would not do: pyspark's worker daemon makes a group of its own, but stays in the session.

Promise: nothing is signalled unless the session's leader is the process it was when the session was made (same pid and
start time), or has died and left members behind (then the kernel can't have given its number away).
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
    """The number now belongs to another process: nothing was signalled."""


@dataclass(frozen=True)
class Session:
    """A session that we started: its id (= its leader's pid) and the leader's `start_time`."""

    sid: int
    started: int


@dataclass(frozen=True)
class _Process:
    session: int
    ended: bool
    started: int
    stopped: bool


def start_time(pid: int) -> int:
    """When `pid` was started: clock ticks since boot (Linux) or µs since 1970. `ProcessLookupError` if it is not."""
    process = _read(pid)
    if process is None:
        raise ProcessLookupError(f"no process {pid}")
    return process.started


def leader_alive(session: Session) -> bool:
    """Whether the process that was started as the session's leader still runs. It is not reaped by asking."""
    leader = _read(session.sid)
    return leader is not None and leader.started == session.started and not leader.ended


def stands_still(session: Session, pid: int) -> bool:
    """Whether a process of `session` is stopped (SIGSTOP), or can't run any more: it has ended, or is none of it."""
    seen = _read(pid)
    return seen is None or seen.session != session.sid or seen.ended or seen.stopped


def members(session: Session) -> tuple[int, ...]:
    """Pids of the living processes of `session`, zombies not counted.

    Raises `NotOursError` if its number now belongs to another process.
    """
    leader = _read(session.sid)
    if leader is not None and leader.started != session.started:
        raise NotOursError(f"process {session.sid} is not the one that was started")
    read = ((pid, _read(pid)) for pid in _pids())
    return tuple(pid for pid, seen in read if seen is not None and seen.session == session.sid and not seen.ended)


def freeze(session: Session) -> tuple[int, ...]:
    """SIGSTOP every member, also those forked meanwhile; returns the pids stopped."""
    stopped: set[int] = set()
    while fresh := set(members(session)) - stopped:
        _signal_all(fresh, signal.SIGSTOP)
        stopped |= fresh
    return tuple(sorted(stopped))


def thaw(session: Session, but: frozenset[int] = frozenset()) -> None:
    """SIGCONT every member, except these."""
    _signal_all(set(members(session)) - but, signal.SIGCONT)


def kill(session: Session, timeout_s: float) -> bool:
    """SIGKILL the whole session as if at one moment and wait until it is gone; False if that takes over `timeout_s`.

    All are stopped first, so that no member sees another die, reacts to it or forks in between.
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
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, _ppid, _group, session, *rest = text.rpartition(")")[2].split()  # the name before it may hold anything
    threads, started = rest[13], rest[15]  # fields 20 and 22 of proc(5)
    # a killed JVM's first thread is a zombie while the others still end and hold its ports
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
