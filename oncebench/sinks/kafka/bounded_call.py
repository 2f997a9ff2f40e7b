"""Runs a call that may never return in a thread of its own.

Promise: a caller can stop waiting for the result, and the thread keeps no process alive. What can go wrong: the call
goes on after that; do not use again what it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(call: Callable[[], T]) -> Future[T]:
    """Starts the call; the future gets its result or its error."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future
