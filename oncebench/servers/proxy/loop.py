"""An event loop in a thread of its own, in which a proxy runs.

Promise: the thread is daemonic, so it ends with the suite. After `close` it cancels what still runs in the loop, and
ends as soon as it can, however slow it was before.

Failure modes: work, or the end of the thread, takes longer than LIMIT_S (`UserError`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from oncebench.errors import UserError

# Work of a proxy takes some milliseconds. On a machine without idle time it takes far longer.
LIMIT_S = 60.0


class LoopThread:
    """A loop that runs until `close`.

    Args:
        name: of its owner, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the work in the loop and returns at its end.

        Raises:
            UserError: it takes longer than LIMIT_S. It may still begin later, but before any later work.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            future.result(LIMIT_S)
        except TimeoutError:
            if not future.cancel():  # the work has raised it
                raise
            raise self._too_slow() from None

    @property
    def closed(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def close(self) -> None:
        """Ends the loop, and returns when its thread has ended. Further calls do nothing.

        Raises:
            UserError: that takes longer than LIMIT_S. The thread still ends as soon as it can.
        """
        if self.closed:
            return
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(LIMIT_S)
        if not self.closed:
            raise self._too_slow()

    def _too_slow(self) -> UserError:
        return UserError(
            f"{self._name} did not answer within {LIMIT_S:g} s. Is the machine busy? Run it again when it is not"
        )

    def _run_loop(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # its end cancels every task
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        await self._ended.wait()
