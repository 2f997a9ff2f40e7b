"""What a series says that was interrupted: how much of it is done, and with which words it goes on.

Promise: the command that is told is the user's own, and whoever runs it gets what was left. It names no work dir (there
the files of the run that was cut still lie), publishes nothing by itself and takes no share: shares are taken of what
is left, and that is no longer the same. What can go wrong: options that came from the environment are not in it; they
still stand there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from oncebench.errors import INTERRUPTED, UserError

_WORDS = "oncebench.words"
_LEFT_OUT = {"--publish": 0, "--work-dir": 1, "--share": 1}  # and how many words belong to each


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
        if error.exit_code != INTERRUPTED:
            raise


def done_of(done: int, of: int) -> str:
    """How much of a series is done."""
    return f"interrupted: {done} of {of} runs done"


def to_go_on(ctx: click.Context, reports: Path) -> str:
    """The command that goes on with this one's file of reports."""
    kept = list(_own(ctx.meta[_WORDS]))
    if not any(word.split("=", maxsplit=1)[0] == "--resume" for word in kept):
        kept += ["--resume", str(reports)]  # else it is the first of those that are named
    return shlex.join(["oncebench", str(ctx.info_name), *kept])


def _own(words: Sequence[str]) -> Iterator[str]:
    skip = 0
    for word in words:
        if skip:
            skip -= 1
        elif word in _LEFT_OUT:
            skip = _LEFT_OUT[word]
        elif word.split("=", maxsplit=1)[0] not in _LEFT_OUT:
            yield word
