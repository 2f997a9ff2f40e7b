"""Handles Ctrl-C: the first requests a gentle stop, the second ends the command at once."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from oncebench.errors import ExitCode, UserError


@contextmanager
def gently() -> Iterator[threading.Event]:
    """Yields an event that the first SIGINT or SIGTERM sets; a second raises KeyboardInterrupt."""
    requested = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()
        print("stopping (press Ctrl-C again to stop at once) ...", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def nothing_to_report(before: str) -> UserError:
    """Returns the error for a run that was interrupted before the load or the pipeline began."""
    return UserError(f"interrupted before the {before}: there is nothing to report", exit_code=ExitCode.INTERRUPTED)
