"""The guardian: a process that survives a crash of the suite and kills its children.

The suite writes ``watch SID STARTED`` to the guardian when it starts a child. It writes ``done SID`` when it has reaped
the child. When the suite has ended or was killed, the guardian kills every session that it still watches.

Promise: about one second after a crash of the suite no child is left. The guardian runs in its own session, so a Ctrl-C
or a kill of the suite's process group does not reach it. It ends by itself. If it is killed, the suite starts another.
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

_READY = b"on guard\n"
_POLL_S = 0.5  # a fork of the suite may keep the pipe open; then only the parent pid shows that the suite died
_KILL_TIMEOUT_S = 10.0


class Guardian:
    """The suite's end of the pipe to the guardian."""

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
        """Makes `session` die with the suite."""
        with self._lock:
            self._watched[session.sid] = session
            self._send(f"watch {session.sid} {session.started}\n")

    def unwatch(self, session: Session) -> None:
        """Stops watching `session`, whose number may be reused.

        A later session of that number stays watched.
        """
        with self._lock:
            if self._watched.get(session.sid) == session:
                del self._watched[session.sid]
                self._send(f"done {session.sid}\n")

    def close(self) -> None:
        """Ends the guardian, which kills what it still watches. Returns when it is gone."""
        if os.getpid() == self.owner and self._popen.stdin is not None:
            with suppress(OSError):
                self._popen.stdin.close()
            self._popen.wait()

    def _send(self, text: str) -> None:
        if not _write(self._popen, text):  # the guardian was killed
            self._popen.wait()
            self._popen = _start()
            _write(self._popen, "".join(f"watch {s.sid} {s.started}\n" for s in self._watched.values()))


def _start() -> "subprocess.Popen[bytes]":
    """Starts a guardian. Returns when it is ready; raises `UserError` if it cannot start."""
    popen = subprocess.Popen(
        [sys.executable, "-m", "oncebench.processes.guardian"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=HOME,
        env={**os.environ, "PYTHONSAFEPATH": ""},  # `-m` must find the package in the working directory
    )
    assert popen.stdout is not None
    with popen.stdout as answer:
        if answer.read() != _READY:
            raise UserError(
                "the process that kills the suite's children after a crash can't be started. "
                f"Run `cd {HOME} && {sys.executable} -m oncebench.processes.guardian </dev/null` to see why"
            )
    return popen


def _write(popen: "subprocess.Popen[bytes]", text: str) -> bool:
    if popen.stdin is None or popen.stdin.closed:
        return True  # the suite is ending, and the pipe to the guardian is closed
    try:
        popen.stdin.write(text.encode("ascii"))
        popen.stdin.flush()
    except BrokenPipeError:
        return False
    return True


_guardian: Guardian | None = None
_making = threading.Lock()


def guardian() -> Guardian:
    """The guardian of this process, started at first use. A fork of the suite gets its own."""
    global _guardian  # noqa: PLW0603 - there is one guardian per process
    with _making:
        if _guardian is None or _guardian.owner != os.getpid():
            _guardian = Guardian()
        return _guardian


def main() -> None:
    """The guardian process: reads until the suite is gone, then kills the watched sessions."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.write(1, _READY)
    os.close(1)
    watched: dict[int, Session] = {}
    rest = b""
    while True:
        # Everything that the suite has written is read, also after its death.
        if not select.select([0], [], [], _POLL_S)[0]:
            if os.getppid() != parent:
                break
            continue
        if not (read := os.read(0, 65536)):
            break
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            command, sid, *started = line.split()
            if command == b"watch":
                watched[int(sid)] = Session(int(sid), int(started[0]))
            else:
                watched.pop(int(sid), None)
    for session in watched.values():
        with suppress(sessions.NotOursError, OSError):
            sessions.kill(session, _KILL_TIMEOUT_S)


if __name__ == "__main__":
    main()
