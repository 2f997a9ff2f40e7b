"""A call that may never return, in a thread of its own.

Promise: whoever waits for the result can stop waiting, and the thread keeps no process alive. What can go wrong: the
call goes on; whatever it holds must not be used again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def aside(call: Callable[[], T]) -> Future[T]:
    """Starts the call; its result or its error is in the future."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future
