"""What a series says that was interrupted: how much of it is done, and with which words it goes on.

Promise: the command that is told is the user's own, and whoever runs it gets what was left. It names every file of
reports that there is, no work dir (there the files of the run that was cut still lie), and publishes nothing by itself.
What can go wrong: options that came from the environment are not in it; they still stand there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from oncebench.errors import ExitCode, UserError

_WORDS = "oncebench.words"
_LEFT_OUT = {"--publish": 0, "--work-dir": 1, "--resume": 1}  # and how many words belong to each


class Remembering(click.Command):
    """A command that knows the words with which it was called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keeps them before click takes them apart."""
        ctx.meta[_WORDS] = tuple(args)
        return super().parse_args(ctx, args)


@contextmanager
def interruption_told() -> Iterator[None]:
    """Ends quietly what an interruption has ended, for what was done is still to be shown; other errors pass."""
    try:
        yield
    except KeyboardInterrupt:
        return
    except UserError as error:
        if error.exit_code != ExitCode.INTERRUPTED:
            raise


def done_of(done: int, of: int) -> str:
    """How much of a series is done."""
    return f"interrupted: {done} of {of} runs done"


def to_go_on(ctx: click.Context, stored: Sequence[Path]) -> str:
    """The command that goes on where this one and those before it ended, whose reports are in these files."""
    resumed = [word for file in stored for word in ("--resume", str(file))]
    return shlex.join(["oncebench", str(ctx.info_name), *_own(ctx.meta[_WORDS]), *resumed])


def _own(words: Sequence[str]) -> Iterator[str]:
    skip = 0
    for word in words:
        if skip:
            skip -= 1
        elif word in _LEFT_OUT:
            skip = _LEFT_OUT[word]
        elif word.split("=", maxsplit=1)[0] not in _LEFT_OUT:
            yield word
