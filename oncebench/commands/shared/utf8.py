"""Refuses texts of the command line that are not UTF-8.

Configurations, reports and SQL hold UTF-8 only.
"""

from __future__ import annotations

import os

from oncebench.errors import ExitCode, UserError


def refuse_other_bytes(text: str, what: str) -> None:
    """Refuses a text with bytes that are not UTF-8.

    Python passes such bytes on as single surrogates (PEP 383).

    Args:
        what: what the text is, for the message.

    Raises:
        UserError: the text has such bytes (exit code 2).
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        shown = os.fsencode(text).decode("utf-8", "backslashreplace")
        raise UserError(
            f"{what} is not UTF-8: {shown}. Write it again in this terminal, or rename the file that it names",
            exit_code=ExitCode.USAGE,
        ) from None
