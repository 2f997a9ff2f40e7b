"""Errors a person can act on, and the exit codes of every command.

Promise: whatever goes wrong through no fault of the program reaches the user as one `UserError` whose text says
what is wrong, where, and what to do next; the command line prints it without a traceback and exits with `exit_code`.
"""

KEPT = 0  # every promise that was tested held
ERROR = 1  # something failed that says nothing about the promise, or the run cannot tell
USAGE = 2  # the command line was wrong (click's own code for it)
BROKEN = 3  # a delivery guarantee was broken
ENVIRONMENT = 5  # Java, a jar, a port, disk space or a server is missing
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class UserError(Exception):
    """A mistake or a missing thing that the user can mend; `str(error)` is the whole message."""

    def __init__(self, message: str, *, exit_code: int = ERROR) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class MissingEnvironment(UserError):
    """Something this machine lacks (Java, jars, network, disk space, a reachable broker): exit code 5."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=ENVIRONMENT)
