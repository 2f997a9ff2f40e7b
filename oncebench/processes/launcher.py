"""What a child runs before it becomes the program: asks the kernel to kill it when the suite dies, then executes it.

Run as a script, `python -I -S launcher.py PARENT_PID UID:GID PROGRAM ARG...`: PARENT_PID 0 asks the kernel for nothing,
`-` changes no user. It stands in for a `preexec_fn`, which is not safe in a process with threads. The pid, and so the
identity, stays the same through exec.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2), Linux only
_CANNOT_RUN = 126  # as shells have it


def main() -> None:
    """Never returns."""
    parent, owner, program, *arguments = sys.argv[1:]
    os.umask(0o077)  # what children write below a work dir is nobody else's
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would hand that on
        signal.signal(number, signal.SIG_DFL)
    if owner != "-":  # before the death signal is asked for: the kernel forgets it when the user changes
        uid, gid = map(int, owner.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux" and parent != "0":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != int(parent):  # it died before we asked
            sys.exit(_CANNOT_RUN)
    try:
        os.execv(program, [program, *arguments])  # noqa: S606 - a command of the suite itself, and no shell
    except OSError as error:
        print(f"{program} can't be run: {error.strerror}", file=sys.stderr)
        sys.exit(_CANNOT_RUN)


if __name__ == "__main__":
    main()
