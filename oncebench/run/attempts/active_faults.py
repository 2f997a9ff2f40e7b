"""Begins a fault when its failpoint has stopped the pipeline, and undoes it at its end.

Until then, `ActiveFaults.advance` continues the fault.

Promise: a fault begins when its process stands still. Every fault is undone in all circumstances, and no pipeline stays
stopped for a fault that has ended. A fault whose process died first is recorded as idle.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from oncebench.delivery.failpoints import stops_attempt
from oncebench.faults.catalogue import FAULTS
from oncebench.faults.context import FaultContext, PipelineControl
from oncebench.processes.child import Child
from oncebench.record import events
from pipeline.config import PipelineConfig

if TYPE_CHECKING:  # it imports Spark
    from oncebench.servers.spark_cluster import SparkCluster

_ENDED = object()  # of a fault's generator


class ActiveFaults:
    """The faults of one run.

    Args:
        control: starts and observes attempts of the pipeline.
        config: of the pipeline.
        servers: the servers that the suite started, by name; faults may break these.
        seed: of the faults' random choices.
        cluster: the Spark cluster that the run has started for the pipeline, if any.

    Attributes:
        handled: the number of failpoint hits whose fault has begun or was passed over.
    """

    def __init__(
        self,
        control: PipelineControl,
        config: PipelineConfig,
        servers: Mapping[str, Any],
        seed: int,
        cluster: SparkCluster | None,
    ) -> None:
        self._control, self._config, self._servers = control, config, servers
        self._seed, self._cluster = seed, cluster
        self._active: list[tuple[FaultContext, Generator[None]]] = []
        self.handled = 0

    def __bool__(self) -> bool:
        return bool(self._active)

    @property
    def held(self) -> bool:
        """Whether a fault leaves dead processes dead."""
        return any(context.held for context, _ in self._active)

    @property
    def server_down(self) -> bool:
        """Whether a fault keeps a server down."""
        return any(
            context.away or (context.held and FAULTS[context.hit["action"]].breaks) for context, _ in self._active
        )

    def begin(self, child: Child, hits: Sequence[Mapping[str, Any]]) -> None:
        """Begins each fault whose hit is on disk and whose process stands still.

        A fault that begins earlier could send its SIGCONT before the process stops, and the signal would be lost.

        Args:
            child: the newest attempt.
            hits: of all attempts, oldest first.
        """
        for hit in hits[self.handled :]:
            inject, place = FAULTS[hit["action"]].inject, self._stopped_session(child, hit)
            if inject is not None and place is not None and not place.stands_still(hit["pid"]):
                return
            self.handled += 1
            if inject is not None:
                context = FaultContext(
                    self._control, child, hit, self._config, self._servers, self._seed, self._cluster
                )
                if place is not None:
                    context.freeze()
                    self._active.append((context, inject(context, hit["seconds"])))
                else:
                    if self._cluster is not None and (worker := self._cluster.worker(hit["session"])) is not None:
                        worker.thaw()  # it stands still although its driver has died
                    context.idle("the pipeline, or its Spark worker, died before the fault began")
            elif self._cluster is not None and self._cluster.replace_worker(hit["session"]):
                self._control.note(events.SPARK_WORKER_REPLACED, hit_us=hit["t_us"])

    def advance(self) -> None:
        """Advances each fault until it waits again."""
        self._active = [(context, fault) for context, fault in self._active if not _has_ended(context, fault)]

    def end(self) -> None:
        """Ends and undoes the active faults, the newest first.

        A pipeline that is stopped for one of them continues.
        If undoing one fault fails, the others are still undone; then the error is raised.
        """
        with ExitStack() as stack:
            for context, fault in self._active:
                stack.callback(_continue, context)
                stack.callback(fault.close)
            self._active = []

    def _stopped_session(self, child: Child, hit: Mapping[str, Any]) -> Child | None:
        """Returns what a failpoint has stopped: the attempt, or a Spark worker. None if it has died."""
        if hit["life"] != child.pid or not child.alive:
            return None
        if stops_attempt(hit):
            return child
        return None if self._cluster is None else self._cluster.worker(hit["session"])


def _continue(context: FaultContext) -> None:
    """Continues a pipeline whose fault ended without continuing it.

    If the fault continued the pipeline, the pipeline may now be stopped for the next fault, and stays stopped.
    """
    if context.standing:
        context.thaw()


def _has_ended(context: FaultContext, fault: Generator[None]) -> bool:
    """Advances a fault until it waits again; returns whether it has ended, which is noted."""
    if next(fault, _ENDED) is not _ENDED:
        return False
    context.note(events.NEMESIS_OVER)
    return True
