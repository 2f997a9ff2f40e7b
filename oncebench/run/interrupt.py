"""Handles Ctrl-C: the first requests a gentle stop, the second ends the command at once.

A terminal that is closed requests a gentle stop too. It may send SIGHUP several times, so that never ends a command at
once. With `nohup` the command runs on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from oncebench.errors import Interrupted


@contextmanager
def gently() -> Iterator[threading.Event]:
    """Yields an event that the first SIGINT, SIGTERM or SIGHUP sets.

    Raises:
        KeyboardInterrupt: a SIGINT or SIGTERM came after that.
    """
    requested = threading.Event()
    asked = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if not asked:
            asked = True  # before `set`, which holds a lock: a signal that comes meanwhile would wait for it for ever
            requested.set()
            _say("stopping (press Ctrl-C again to stop at once) ...")
        elif number != signal.SIGHUP:
            raise KeyboardInterrupt

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(line: str) -> None:
    """Prints a line to stderr from a handler of signals.

    A line that cannot be printed stops no run.
    """
    try:
        print(line, file=sys.stderr, flush=True)
    except RuntimeError:  # the signal came while this thread writes another line, and Python refuses a second write
        with suppress(OSError):
            os.write(2, f"\n{line}\n".encode())
    except OSError:
        return


def nothing_to_report(before: str) -> Interrupted:
    """Returns the error for a run that was interrupted before the load or the pipeline began."""
    return Interrupted(f"interrupted before the {before}: there is nothing to report")
