"""Watches a user's function while it writes; acts once a reader sees rows of the batch.

The place where a function writes is not visible from outside. It may write in tasks, in Spark's JVM or in the driver,
after any number of passes over its rows. So this module calls the user's reader again and again during the call. The
moment between a write and the mark that the batch is done may be short. So the function pauses before each line of its
own code in the driver, and when it has ended, until a call of the reader that began later has returned.

Promise: `act` is called while the function has written rows and has not returned to Spark, or not at all. A pause ends
without an answer if the reader may wait for the function, for example for a lock.

What can go wrong: inside a task, and inside one line, nothing pauses. There the action races with the function.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from oncebench.sinks.black_box.names import UserMistake
from oncebench.sinks.black_box.reader import Functions
from oncebench.sinks.reader import NotAnsweredError

# Seconds between two calls of the reader for which no line waits: the function works meanwhile.
BETWEEN_S = 0.02
# A line waits for this many times the longest call of the reader, and for PATIENCE_S at least. A reader that takes
# longer may wait for a lock that the function holds.
CALLS, PATIENCE_S = 3, 1.0
# A line of a loop waits at most this often: a batch has 60 rows on average.
VISITS = 3
# Seconds that all lines of one call may wait together. A batch of three minutes counts as stuck.
LINES_S = 45.0
# Seconds that the end of the call waits for rows: a search index may show them half a minute later. LINES_S bounds it.
END_S = 30.0


class _Looks(threading.Thread):
    """Calls the reader again and again, and acts at the first rows of the batch.

    Args:
        functions: the user's functions; closed at the end.
        count: returns how many of the rows belong to the batch.
        act: called once, with that number.
    """

    def __init__(
        self, functions: Functions, count: Callable[[list[list[Any]]], int], act: Callable[[int], None]
    ) -> None:
        super().__init__(daemon=True)
        self._functions, self._count, self._act = functions, count, act
        self._changed = threading.Condition()
        self._begun = self._ended = 0
        self._wanted = self._over = False
        self.longest_s = 0.0

    def run(self) -> None:
        """See `threading.Thread.run`."""
        while not self._over:
            with self._changed:
                self._begun += 1
                self._wanted = False
            began = time.monotonic()
            rows = self._read()
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            with self._changed:
                if not self._over and (found := self._count(rows)):
                    self._act(found)
                    self._over = True
                self._ended = self._begun
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._wanted or self._over, BETWEEN_S)
        self._functions.close()

    def _read(self) -> list[list[Any]]:
        try:
            return self._functions.call("read")
        except (NotAnsweredError, UserMistake):  # such as: no table yet
            return []

    def wait(self, limit_s: float) -> bool:
        """Waits until a call that begins from here on has returned; returns whether the watch ended."""
        with self._changed:
            needed, self._wanted = self._begun + 1, True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._over or self._ended >= needed, limit_s)
            return self._over

    def end(self) -> None:
        """Ends the calls. From now on nothing acts."""
        with self._changed:
            self._over = True
            self._changed.notify_all()


class _Lines:
    """Pauses a thread before each line of the user's own code.

    Args:
        looks: the calls for which a line waits.
        own: whether a frame runs the user's own code.
    """

    def __init__(self, looks: _Looks, own: Callable[[FrameType], bool]) -> None:
        self._looks, self._own = looks, own
        self._visits: Counter[tuple[object, int]] = Counter()
        self._left_s = LINES_S

    def enter(self, frame: FrameType, _event: str, _argument: object) -> Any:
        """Traces a new frame, see `sys.settrace`."""
        return self._step if self._own(frame) else None

    def _step(self, frame: FrameType, event: str, _argument: object) -> Any:
        place = (frame.f_code, frame.f_lineno)
        if event == "line" and self._left_s > 0 and self._visits[place] < VISITS:
            self._visits[place] += 1
            began = time.monotonic()
            self._looks.wait(min(self._left_s, max(PATIENCE_S, CALLS * self._looks.longest_s)))
            self._left_s -= time.monotonic() - began
        return self._step


@contextmanager
def watched(
    functions: Functions,
    count: Callable[[list[list[Any]]], int],
    act: Callable[[int], None],
    own: Callable[[FrameType], bool],
    has_rows: Callable[[], bool],
) -> Iterator[None]:
    """Calls `act` as soon as the reader returns rows of the batch, before the context ends.

    `act` gets the number of these rows.

    Args:
        functions: the user's functions; closed at the end.
        count: returns how many of the reader's rows belong to the batch.
        own: whether a frame runs the user's own code; see `own_code`.
        has_rows: whether the function has read any row, so that the end may wait for it.
    """
    looks, before = _Looks(functions, count, act), sys.gettrace()
    looks.start()
    try:
        looks.wait(min(functions.limit_s, LINES_S))  # the process of the reader is ready before the function begins
        sys.settrace(_Lines(looks, own).enter)
        yield
        sys.settrace(before)
        end = time.monotonic() + min(max(END_S, CALLS * looks.longest_s), LINES_S)
        while has_rows() and not looks.wait(end - time.monotonic()) and time.monotonic() < end:
            time.sleep(BETWEEN_S)
    finally:
        sys.settrace(before)
        looks.end()


def own_code(spec: str, cwd: str) -> Callable[[FrameType], bool]:
    """Returns a function that checks whether a frame runs the user's own code.

    This is the code of the function's package, and of files in the user's folder.
    """
    package, folder = spec.partition(":")[0].partition(".")[0], cwd.rstrip(os.sep) + os.sep

    def own(frame: FrameType) -> bool:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            return True
        file = frame.f_code.co_filename
        return file.startswith(folder) and "-packages" not in file

    return own
