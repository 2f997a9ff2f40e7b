"""A driver that was taken for dead: stopped, succeeded by another, and continued when that one has done its batch.

Promise: it is continued only after its successor has committed the batch in which it stopped, so that its late step
meets a finished one; its end and its last words are noted, and `kill` leaves nothing of it. What can go wrong: it never
ends by itself (nothing fenced it, and it finds no more to do): `outlived` is noted when it is killed at last.

timeline.jsonl: zombie-left (with its `pid`), zombie-continued, zombie-ended (with `exit_code` and `why`), or
zombie-outlived.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oncebench.services.process import Child

Note = Callable[..., None]


class Zombie:
    """The stopped process of a fault, and what has become of it.

    Args:
        child: all of its processes are stopped.
        batch: in which it stopped.
        note: appends to the timeline.
    """

    def __init__(self, child: Child, batch: int, note: Note) -> None:
        self._child, self._batch, self._note = child, batch, note
        self._continued = False
        self._log_before = 0
        note("zombie-left", pid=child.pid)

    def watch(self, batches: Sequence[Mapping[str, Any]]) -> bool:
        """Continues it when its time has come; says whether it has ended.

        Args:
            batches: progress lines of what its successor has done.
        """
        if not self._continued:
            if any(line["batch"] >= self._batch for line in batches):
                self._continued = True
                self._log_before = self._child.log.stat().st_size
                self._child.thaw()
                self._note("zombie-continued")
            return False
        if self._child.alive:
            return False
        self._child.kill_session()
        self._note("zombie-ended", exit_code=self._child.returncode, why=self._last_words())
        return True

    def kill(self) -> None:
        """Ends it, whatever it is doing."""
        self._note("zombie-outlived" if self._continued else "zombie-never-continued")
        self._child.kill_session()

    def _last_words(self) -> str:
        with self._child.log.open("rb") as log:  # its successor writes to the same log, but says this only at its end
            log.seek(self._log_before)
            lines = log.read().decode("utf-8", errors="replace").splitlines()
        return next((line for line in lines if line.startswith(("refused to start", "stopped:"))), "it said nothing")
