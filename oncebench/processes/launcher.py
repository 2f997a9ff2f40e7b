"""Prepares a child process, which the kernel kills when the suite dies, and executes it.

Runs as a script: `python -I -S launcher.py PARENT_PID UID:GID PROGRAM ARG...`. With PARENT_PID 0 it requests no death
signal, with `-` for UID:GID it changes no user. It replaces `preexec_fn`, which is not safe in a process with threads.
The pid stays the same through exec.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2), Linux only
_CANNOT_RUN = 126  # the exit code that shells use


def main() -> None:
    """Never returns."""
    parent, owner, program, *arguments = sys.argv[1:]
    os.umask(0o077)  # only we may read what children write below a work dir
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and exec would inherit that
        signal.signal(number, signal.SIG_DFL)
    if owner != "-":  # before the death signal is requested, which a change of the user would reset
        uid, gid = map(int, owner.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux" and parent != "0":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != int(parent):  # the suite died before the request
            sys.exit(_CANNOT_RUN)
    try:
        os.execv(program, [program, *arguments])  # noqa: S606 - the suite's own command, no shell
    except OSError as error:
        print(f"{program} can't be run: {error.strerror}", file=sys.stderr)
        sys.exit(_CANNOT_RUN)


if __name__ == "__main__":
    main()
