"""Ends an interrupted series: how many runs are done, and the command that resumes it.

Promise: that command is the user's own command, and runs what remains. It names every file of reports that exists. It
has no work dir, because the old one still has the files of the run that was cut short. It does not publish.

Failure modes: options that came from the environment are not in the command. They still apply there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from oncebench.commands.shared.options import GroupedCommand
from oncebench.errors import Interrupted

_ARGUMENTS = "oncebench.arguments"
_LEFT_OUT = {"--publish": 0, "--work-dir": 1, "--resume": 1}  # option -> number of its values


class ResumableCommand(GroupedCommand):
    """A command that stores its own arguments for `resume_command`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Stores the arguments before click parses them."""
        ctx.meta[_ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


@contextmanager
def suppress_interruption() -> Iterator[None]:
    """Ends the block quietly on an interruption; other errors pass.

    The caller then prints the results so far.
    """
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        return


def progress_message(done: int, of: int) -> str:
    """The message of an interrupted series: how many of its runs are done."""
    return f"interrupted: {done} of {of} runs done"


def resume_command(ctx: click.Context, stored: Sequence[Path]) -> str:
    """The command that runs what remains; `stored` are the files of reports so far."""
    resumed = [word for file in stored for word in ("--resume", str(file))]
    return shlex.join(["oncebench", str(ctx.info_name), *_repeated(ctx.meta[_ARGUMENTS]), *resumed])


def _repeated(arguments: Sequence[str]) -> Iterator[str]:
    skip = 0
    for argument in arguments:
        if skip:
            skip -= 1
        elif argument in _LEFT_OUT:
            skip = _LEFT_OUT[argument]
        elif argument.split("=", maxsplit=1)[0] not in _LEFT_OUT:
            yield argument
