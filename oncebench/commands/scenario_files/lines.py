"""Adds the line of a scenario file to messages.

Commands of a slim installation import this module, so it needs no pydantic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from oncebench.errors import ExitCode, UserError

# Where the context of a command keeps the lines of its scenario file.
LINES = "oncebench.scenario_lines"
# A message about an option begins with its name, for example `--outage has no effect here` or `rate: ..`.
_OPTION = re.compile(r"(?:--)?([a-z-]+)")


class Lines:
    """The lines of a file, for messages.

    Args:
        path: the file, as the user has given it.
        text: its content.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines = text.splitlines()

    def at(self, key: str) -> str:
        """Returns `FILE:LINE` of a key; `FILE` if no line begins with it."""
        begins = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]|\s*\[+\s*{re.escape(key)}\b")
        found = (number for number, line in enumerate(self._lines, 1) if begins.match(line))
        return next((f"{self.path}:{number}" for number in found), str(self.path))

    def refusal(self, key: str, text: str) -> UserError:
        """Returns the error for a key."""
        return UserError(f"{self.at(key)}: {text}", exit_code=ExitCode.USAGE)


@contextmanager
def refused_by_file(context: click.Context) -> Iterator[None]:
    """Adds the file and its line to a refusal of settings that came from a file.

    The line is left out if it is not known.
    """
    lines: Lines | None = context.meta.get(LINES)
    try:
        yield
    except UserError as error:
        if lines is None or error.exit_code != ExitCode.USAGE:
            raise
        option = _OPTION.match(str(error))
        place = lines.at(option[1]) if option else lines.path
        raise UserError(f"{place}: {error}", exit_code=ExitCode.USAGE) from None
