"""Errors that a user can act on, and the exit codes of every command.

Promise: a mistake of the user, or something that this machine lacks, becomes one `UserError`. Its text says what is
wrong, where, and what to do next. The command line prints the text without a traceback and exits with `exit_code`.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every command; verdict words are in `oncebench.audit.verdict`."""

    KEPT = 0  # every guarantee that was tested held
    ERROR = 1  # a failure that proves nothing about the guarantee, or a verdict of unknown or vacuous
    USAGE = 2  # the command line was wrong (click's own code for it)
    BROKEN = 3  # a delivery guarantee was broken
    ENVIRONMENT = 5  # Java, a jar, a port, disk space or a server is missing
    INTERRUPTED = 130  # 128 + SIGINT, as in shells


class UserError(Exception):
    """A problem that the user can correct; `str(error)` is the whole message."""

    def __init__(self, message: str, *, exit_code: int = ExitCode.ERROR) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Interrupted(UserError):
    """Ctrl-C, SIGTERM or SIGHUP ended what the user asked for: exit code 130.

    This error is no failure of a run.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=ExitCode.INTERRUPTED)


class MissingEnvironment(UserError):
    """This machine lacks Java, jars, a network, disk space or a reachable broker: exit code 5."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=ExitCode.ENVIRONMENT)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns " (did you mean X?)" with the most similar known name; empty if none is similar."""
    near = get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""
