"""Ctrl-C: the first asks for a gentle stop, the second ends the command at once."""

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
    """Gives an event that the first SIGINT or SIGTERM sets; the second one raises KeyboardInterrupt."""
    asked = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        print("stopping (once more to stop at once) ...", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def nothing_to_report(before: str) -> UserError:
    """What a person is told who interrupted a run before what a report tells of."""
    return UserError(f"interrupted before the {before}: there is nothing to report", exit_code=ExitCode.INTERRUPTED)
