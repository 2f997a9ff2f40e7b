"""Stops Flink between its two phases: the checkpoint is complete, its transactions are not yet committed.

Flink puts the file `_metadata` in place when a checkpoint is complete, and then asks its sinks to commit. Only a few
milliseconds lie in between. So Flink runs in slices from the beginning of a checkpoint on, and stops after each slice.

What can go wrong: the commit comes within the slice in which the checkpoint completes. Then nothing is lost.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Protocol

# Longer than the longest checkpoint interval with which a commit can be expected within a run.
LIMIT_S = 30.0
# Shorter than the shortest time from a complete checkpoint to a commit; a checkpoint takes some tens of slices.
SLICE_S = 0.0003


class Stoppable(Protocol):
    """A child process, as far as it is stopped and continued."""

    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    def send(self, number: signal.Signals) -> None: ...
    def stands_still(self, pid: int) -> bool: ...


def stop_before_commit(completed: Path, engine: Stoppable) -> bool:
    """Waits until one more checkpoint is complete, and returns with the engine stopped.

    Returns False, with the engine running, if none is complete within LIMIT_S or the engine dies.
    """
    known = _checkpoints(completed)
    deadline = time.monotonic() + LIMIT_S
    while engine.alive and time.monotonic() < deadline:
        begun = _checkpoints(completed) - known
        if begun:
            engine.send(signal.SIGSTOP)
            while engine.alive and not engine.stands_still(engine.pid):
                pass
            if any((checkpoint / "_metadata").exists() for checkpoint in begun):
                return True
            engine.send(signal.SIGCONT)
        time.sleep(SLICE_S)
    return False


def _checkpoints(completed: Path) -> set[Path]:
    return set(completed.glob("*/chk-*"))
