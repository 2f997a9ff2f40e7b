"""Measures the resources of a run's components and the bytes of its checkpoint.

Promise: resources count from the mark at the load's start until everything is drained; the use of processes in a
flat-out load until its last row is visible. So the end of a process and the reads of the audit are not included. A
component has the same name everywhere. Limit: the suite did not start the user's own servers, so their use is not
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from oncebench.errors import UserError
from oncebench.faults.server import KAFKA
from oncebench.lab.engine import SPARK, Engine
from oncebench.lab.lab import Lab
from oncebench.observe.bytes_written import BytesWritten
from oncebench.observe.resources import BROKER, EXECUTORS, PIPELINE, Sampler, Use
from oncebench.run.attempts.supervisor import Supervisor
from oncebench.run.processes import RunProcesses


class Meters:
    """The meters of one run: resources and checkpoint bytes.

    Args:
        processes: called at each sample; returns the current processes by name (pipeline, executors, servers,
            generator, observer), each with `pid` and `alive`.
        checkpoint: the folder, which need not exist yet.
        engine: names the components of the pipeline.
    """

    def __init__(self, processes: Callable[[], Mapping[str, Any]], checkpoint: Path, engine: Engine = SPARK) -> None:
        self._processes = processes
        self._sampler = Sampler(self._sessions, partial(component, engine))
        self.checkpoint = BytesWritten(checkpoint)

    def __enter__(self) -> Meters:
        self._sampler.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._sampler.__exit__()

    def mark(self) -> None:
        """Restarts counting."""
        self._sampler.mark()
        self.checkpoint.mark()

    def drained(self) -> None:
        """Ends counting, before the pipeline stops and the outputs are read."""
        self._sampler.end()

    def uses(self, until_us: int | None = None) -> dict[str, Use]:
        """Returns what each component used from the mark until a time.

        The time is in epoch µs. None means until `drained`. The peak memory of this process counts from the start of
        the process.
        """
        return self._sampler.uses(until_us)

    def _sessions(self) -> dict[int, str]:
        owners: dict[int, str] = {}
        for name, process in self._processes().items():
            with suppress(UserError):  # a fault may kill it between these two lines
                if process.alive:
                    owners[process.pid] = name
        return owners


def measured(supervisor: Supervisor, processes: RunProcesses, lab: Lab, services: Collection[str]) -> Mapping[str, Any]:
    """Returns the current processes of a run, by name.

    Args:
        services: the servers of the run's sink.
    """
    child = supervisor.child  # read once: another thread may end it meanwhile
    pipeline = {} if child is None else {PIPELINE: child}
    workers = () if lab.cluster is None else lab.cluster.workers
    executors = {f"{EXECUTORS} {number}": worker for number, worker in enumerate(workers, 1)}
    return {**processes.children, **pipeline, **executors, **lab.processes((KAFKA, *services))}


def component(engine: Engine, owner: str, name: str, leader: bool) -> str:
    """Returns the component of a process; the engine names those of the pipeline."""
    owner = owner.partition(" ")[0]  # several of a kind have numbers, and are one component
    if owner == KAFKA:
        return BROKER
    return engine.component(name, leader) if owner == PIPELINE else owner
