"""SIGTERM and SIGINT: the job obeys them, its JVM and its Python workers ignore them.

A service manager sends SIGTERM to every process of a job (systemd's default). The JVM would then stop in the middle of
a batch. It ignores the signal instead, and ends when the job ends: its standard input is then closed.

During the start nothing is written yet, so a signal ends the start at once. What can go wrong: a call into a C library
does not return. The process then ends after GRACE_S all the same; a start may be killed at any point.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from oncebench.delivery.errors import StoppedGently

# Closing connections and the JVM takes less than a second on an idle machine.
GRACE_S = 4.0
_jvms: list[subprocess.Popen[bytes]] = []


class Stopping(threading.Event):
    """Set when the job must stop.

    Args:
        clean: removes files of this process before it is ended in the middle of a call.

    Attributes:
        cut_a_start: whether a signal has ended the start. What is raised then may be an error of a library that the
            signal interrupted: py4j takes it for a broken connection.
    """

    def __init__(self, clean: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._clean = clean
        self._starting = True
        self.cut_a_start = False

    def obey(self) -> None:
        """Receives SIGTERM and SIGINT from now on.

        SIGTERM comes last: who sees that a process catches it knows that SIGINT is no KeyboardInterrupt any more.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._received)

    def start_is_over(self) -> None:
        """From now on a signal ends the job between two batches."""
        self._starting = False

    def _received(self, _number: int, _frame: FrameType | None) -> None:
        first = not self.is_set()
        self.set()
        if self._starting and first:
            self.cut_a_start = True
            threading.Thread(target=self._end_soon, daemon=True).start()
            raise StoppedGently("asked to stop")

    def _end_soon(self) -> None:
        time.sleep(GRACE_S)
        end_jvms()
        self._clean()
        os._exit(0)


def end_jvms() -> None:
    """Ends the JVM if it runs. One whose start was cut short would otherwise stay for good."""
    for jvm in _jvms:
        if jvm.poll() is None:
            jvm.kill()
            jvm.wait()


@contextmanager
def jvm_ignores_signals() -> Iterator[None]:
    """A JVM that PySpark starts meanwhile ignores SIGTERM, as it ignores SIGINT."""
    from pyspark import java_gateway  # noqa: PLC0415  its import takes a second, and signals come before

    gateway: Any = java_gateway
    popen = gateway.Popen

    def start(*arguments: Any, preexec_fn: Callable[[], None], **more: Any) -> subprocess.Popen[bytes]:
        def before() -> None:
            preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # HotSpot leaves an ignored signal ignored

        _jvms.append(popen(*arguments, preexec_fn=before, **more))
        return _jvms[-1]

    gateway.Popen = start
    try:
        yield
    finally:
        gateway.Popen = popen
