"""Finds the moment between Flink's two phases: the checkpoint is complete, its transactions are not yet committed.

Flink puts the file `_metadata` in place when a checkpoint is complete, and then asks its sinks to commit.
"""

from __future__ import annotations

import time
from pathlib import Path

# Longer than the longest checkpoint interval with which a commit can be expected within a run.
LIMIT_S = 30.0


def wait_for_checkpoint(completed: Path) -> bool:
    """Waits until one more checkpoint is complete; False: none was within LIMIT_S.

    It looks without a pause, because the moment lasts some milliseconds.
    """
    before = _newest(completed)
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if _newest(completed) > before:
            return True
    return False


def _newest(completed: Path) -> int:
    """The number of the newest completed checkpoint; 0 without one."""
    found = (path.parent.name.removeprefix("chk-") for path in completed.glob("*/chk-*/_metadata"))
    return max(map(int, found), default=0)
