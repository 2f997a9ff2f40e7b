"""The guardian: a tiny process that outlives a crash of the suite and kills what the suite left behind.

The suite writes ``watch SID STARTED`` to it when it starts a child, and ``done SID`` when it has reaped it. When the
suite is gone (it ended, or was killed), every session still watched is killed.

Promise: about a second after a crash of the suite no child is left. The guardian runs in a session of its own, where a
Ctrl-C or a kill of the suite's group doesn't reach it, and ends by itself. If it is killed, the suite starts another.
"""

import atexit
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress

from oncebench.errors import UserError
from oncebench.home import HOME
from oncebench.processes import sessions
from oncebench.processes.sessions import Session

_ON_GUARD = b"on guard\n"
_POLL_S = 0.5  # a fork of the suite may hold the pipe open: then the suite's death is noticed by asking
_KILL_TIMEOUT_S = 10.0


class Guardian:
    """The suite's end of the pipe."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._watched: dict[int, Session] = {}
        self._lock = threading.Lock()
        self._popen = _start()
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def watch(self, session: Session) -> None:
        """From now on `session` dies with the suite."""
        with self._lock:
            self._watched[session.sid] = session
            self._say(f"watch {session.sid} {session.started}\n")

    def done(self, session: Session) -> None:
        """`session` has ended and been reaped: its number means nothing any more."""
        with self._lock:
            self._watched.pop(session.sid, None)
            self._say(f"done {session.sid}\n")

    def close(self) -> None:
        """End the guardian, which kills what is still watched; returns when it is gone."""
        if os.getpid() == self.owner and self._popen.stdin is not None:
            with suppress(OSError):
                self._popen.stdin.close()
            self._popen.wait()

    def _say(self, text: str) -> None:
        if not _write(self._popen, text):  # somebody killed it
            self._popen.wait()
            self._popen = _start()
            _write(self._popen, "".join(f"watch {s.sid} {s.started}\n" for s in self._watched.values()))


def _start() -> "subprocess.Popen[bytes]":
    """Start a guardian and return when it is on guard; `UserError` if it can't be."""
    popen = subprocess.Popen(
        [sys.executable, "-m", "oncebench.processes.guardian"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=HOME,
        env={**os.environ, "PYTHONSAFEPATH": ""},  # `-m` must look into the working directory
    )
    assert popen.stdout is not None
    with popen.stdout as answer:
        if answer.read() != _ON_GUARD:
            raise UserError(
                "the process that ends the suite's children after a crash can't be started: "
                f"see what `cd {HOME} && {sys.executable} -m oncebench.processes.guardian </dev/null` says"
            )
    return popen


def _write(popen: "subprocess.Popen[bytes]", text: str) -> bool:
    if popen.stdin is None or popen.stdin.closed:
        return True  # the suite is ending: the guardian has already been told
    try:
        popen.stdin.write(text.encode("ascii"))
        popen.stdin.flush()
    except BrokenPipeError:
        return False
    return True


_guardian: Guardian | None = None
_making = threading.Lock()


def guardian() -> Guardian:
    """This process's guardian, started at first use (a forked copy of the suite gets its own)."""
    global _guardian  # noqa: PLW0603 - one for each process is the point
    with _making:
        if _guardian is None or _guardian.owner != os.getpid():
            _guardian = Guardian()
        return _guardian


def main() -> None:
    """The guardian's own process: read until the suite is gone, then kill what is left."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.write(1, _ON_GUARD)
    os.close(1)
    watched: dict[int, Session] = {}
    rest = b""
    while True:
        # What the suite has said is heard to the end, also when it is dead by now.
        if not select.select([0], [], [], _POLL_S)[0]:
            if os.getppid() != parent:
                break
            continue
        if not (read := os.read(0, 65536)):
            break
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            word, sid, *started = line.split()
            if word == b"watch":
                watched[int(sid)] = Session(int(sid), int(started[0]))
            else:
                watched.pop(int(sid), None)
    for session in watched.values():
        with suppress(sessions.NotOursError, OSError):
            sessions.kill(session, _KILL_TIMEOUT_S)


if __name__ == "__main__":
    main()
