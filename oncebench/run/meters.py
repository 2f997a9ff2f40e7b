"""What is measured of a run from outside while it goes on: what its components use, and what its checkpoint takes.

Promise: what is used counts from the mark that is set when the load begins until all is drained, so that neither a
process's end nor the audit's reads are in it; what a component is called is the same everywhere. What can go wrong: a
server that is the user's own is no process of ours, so its use is not seen.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from oncebench.errors import UserError
from oncebench.faults.server import KAFKA
from oncebench.observe.bytes_written import BytesWritten
from oncebench.observe.resources import Sampler, Use

PIPELINE, BROKER = "pipeline", "broker"
# Components that load and look: not part of what a guarantee costs.
SUITE = "suite"  # this process: it samples, looks after the pipeline and shows the run
WATCHING = frozenset({"generator", "observer", SUITE})


class Meters:
    """Both meters of one run.

    Args:
        processes: asked at each sample for what runs now, by name: the pipeline, the servers, generator and observer,
            each with `pid` and `alive`.
        checkpoint: the folder, which need not be there yet.
    """

    def __init__(self, processes: Callable[[], Mapping[str, Any]], checkpoint: Path) -> None:
        self._processes = processes
        self._sampler = Sampler(self._sessions, component)
        self._own_began_s = time.process_time()
        self._own_ended_s: float | None = None
        self.checkpoint = BytesWritten(checkpoint)

    def __enter__(self) -> Meters:
        self._sampler.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._sampler.__exit__()

    def mark(self) -> None:
        """Counts from now on."""
        self._sampler.mark()
        self.checkpoint.mark()
        self._own_began_s = time.process_time()

    def drained(self) -> None:
        """What is used from now on counts no more: the pipeline's end, and reading all that was written."""
        self._sampler.end()
        self._own_ended_s = time.process_time()

    def uses(self) -> dict[str, Use]:
        """What each component has used from the mark until `drained`; of this process's memory the peak since it
        began."""
        until_s = time.process_time() if self._own_ended_s is None else self._own_ended_s
        peak_rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # told in KiB
        return {**self._sampler.uses(), SUITE: Use(until_s - self._own_began_s, peak_rss_bytes)}

    def _sessions(self) -> dict[int, str]:
        owners: dict[int, str] = {}
        for name, process in self._processes().items():
            with suppress(UserError):  # a nemesis may kill it between two looks
                if process.alive:
                    owners[process.pid] = name
        return owners


def component(owner: str, name: str, leader: bool) -> str:
    """Component of a process called `name`: the pipeline's tree is told apart into JVM, driver and workers."""
    if owner == KAFKA:
        return BROKER
    if owner != PIPELINE:
        return owner
    return "spark_jvm" if name == "java" else "python_driver" if leader else "python_workers"
