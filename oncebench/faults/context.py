"""Everything that a fault acts on: the stopped pipeline, our servers, the timeline.

A fault is a generator function of a `FaultContext` and a number of seconds. The supervisor starts the generator when
the pipeline has stopped at the failpoint, and advances it again and again. When the run ends first, the supervisor
closes the generator, which runs its `finally` blocks.

Promise: the whole pipeline is stopped (SIGSTOP) when a fault begins, also on a Spark cluster of the run's own. A fault
undoes at its end what it did to a server or a folder. The supervisor continues the pipeline if the fault ends before it
did so. The supervisor restarts nothing while a fault holds `without_restarts`.

Failure modes: a run waits for a fault for a limited time. The end of the run cuts short a fault that takes longer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from oncebench.processes.child import Child
from oncebench.record import events
from pipeline.config import PipelineConfig

if TYPE_CHECKING:
    from oncebench.servers.spark_cluster import SparkCluster

T = TypeVar("T")
# Why a fault was not exercised when the pipeline died before the fault had its effect.
OVERTAKEN = "another fault came first, and the pipeline may have died of that one"


class PipelineControl(Protocol):
    """The supervisor, as a fault uses it: starts and observes attempts of the pipeline.

    Attributes:
        kept_stopped: pids that one fault keeps stopped, so that no other fault continues them.
    """

    kept_stopped: set[int]

    @property
    def child(self) -> Child | None:
        """The newest attempt."""

    def start_successor(self, config: PipelineConfig | None = None, keep_predecessor: bool = False) -> None:
        """Starts another attempt.

        Args:
            config: replaces the configuration of the run.
            keep_predecessor: lets an attempt that still runs continue; otherwise it is killed.
        """

    def batches(self) -> Sequence[Mapping[str, Any]]:
        """Progress lines of the batches that the newest attempt has committed."""

    def hits(self) -> Sequence[Mapping[str, Any]]:
        """Failpoints that the newest attempt has hit."""

    def running(self) -> bool:
        """Whether the query of the newest attempt runs."""

    def last_words(self) -> str:
        """The message with which the newest attempt ended."""

    def record_kill(self, **fields: Any) -> None:
        """Records in the timeline that a fault has killed the newest attempt."""

    def record_exit(self) -> tuple[int | None, str] | None:
        """Records the end of the newest attempt, once, and kills its remaining processes.

        Returns the exit code and the last message, or None if a fault killed the attempt.
        """

    def note(self, event: str, **fields: Any) -> None:
        """Appends a line to timeline.jsonl."""


@dataclass
class FaultContext:
    """The pipeline, servers and timeline on which one fault acts.

    Attributes:
        control: starts and observes attempts of the pipeline.
        child: the attempt that has reached the failpoint.
        hit: the line of hits.jsonl: `batch`, `point`, `pid`, `fault`, and `t_us`, which identifies the hit.
        config: the pipeline's configuration.
        servers: the servers that the suite started, by service name (`kafka` always, if it is ours).
        seed: seeds the random choices of a fault.
        cluster: the Spark cluster that the run has started for the pipeline, if any.
        held: whether the supervisor leaves dead processes dead.
        away: whether a server may not answer although dead processes are restarted.
        standing: whether the pipeline is still stopped. The supervisor continues it if the fault ends before that.
    """

    control: PipelineControl
    child: Child
    hit: Mapping[str, Any]
    config: PipelineConfig
    servers: Mapping[str, Any]
    seed: int = 1
    cluster: SparkCluster | None = None
    held: bool = field(default=False, init=False)
    away: bool = field(default=False, init=False)
    standing: bool = field(default=True, init=False)

    @property
    def batch(self) -> int:
        """The batch in which the pipeline stopped."""
        return int(self.hit["batch"])

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint folder, which also holds our journal."""
        assert isinstance(self.config.checkpoint, Path), "faults of the suite change files of the checkpoint"
        return self.config.checkpoint

    @contextmanager
    def without_restarts(self) -> Iterator[None]:
        """The supervisor restarts nothing inside this block."""
        self.held = True
        try:
            yield
        finally:
            self.held = False

    @contextmanager
    def server_away(self) -> Iterator[None]:
        """Keeps the run itself from asking the servers anything inside this block.

        The supervisor still restarts the pipeline.
        """
        self.away = True
        try:
            yield
        finally:
            self.away = False

    def note(self, event: str, **fields: Any) -> None:
        """Appends a line to timeline.jsonl that names this hit.

        `event` is one of `oncebench.record.events`.
        """
        self.control.note(event, hit_us=self.hit["t_us"], **fields)

    def idle(self, why: str) -> None:
        """Records that the fault had no target: the run has not exercised this fault."""
        self.note(events.NEMESIS_IDLE, fault=self.hit["fault"], why=why)

    @property
    def _sessions(self) -> Sequence[Child]:
        """The attempt, and the Spark workers with the executors of the run's own cluster."""
        return (self.child, *(self.cluster.workers if self.cluster is not None else ()))

    def members(self) -> tuple[int, ...]:
        """Pids of the attempt's processes, and of those of the run's own Spark cluster."""
        return tuple(pid for session in self._sessions for pid in session.members())

    def freeze(self) -> None:
        """Stops every process of the pipeline, also on the run's own Spark cluster."""
        for session in self._sessions:
            session.freeze()

    def thaw(self) -> None:
        """Continues the pipeline, except `control.kept_stopped`, without a line in the timeline."""
        self.standing = False
        for session in self._sessions:
            session.thaw(frozenset(self.control.kept_stopped))

    def resume_pipeline(self) -> None:
        """Continues the pipeline, except `control.kept_stopped`, and records that."""
        self.thaw()
        self.note(events.PIPELINE_CONTINUED)

    def kill_pipeline(self) -> None:
        """Sends SIGKILL to every process of the newest attempt.

        This includes its executors on the run's own Spark cluster. If the attempt has already ended, its exit is
        recorded.
        """
        child = self.control.child
        assert child is not None, "an attempt has reached this failpoint"
        if child.alive:
            child.kill_session()
            self.control.record_kill(hit_us=self.hit["t_us"])
        else:
            self.control.record_exit()
        if self.cluster is not None:
            self.cluster.kill_executors()
            self.thaw()  # the Spark workers

    def idle_after_failure(self, expected: str) -> None:
        """Records that the newest attempt ended for an unrelated reason, and the fault as idle.

        Args:
            expected: what should have happened to the attempt.
        """
        words = self.control.last_words()
        code, why = self.control.record_exit() or (None, words)
        self.idle(f"{expected}, and ended with exit code {code}: {why}")

    def pipeline_alive(self) -> bool:
        """Whether the newest attempt runs."""
        return self.control.child is not None and self.control.child.alive

    def later_hits(self) -> list[Mapping[str, Any]]:
        """Failpoints that the newest attempt hit after this one: the attempt may have died of those."""
        return [hit for hit in self.control.hits() if hit["t_us"] > self.hit["t_us"]]

    def batch_committed(self) -> bool:
        """Whether the newest attempt has committed the batch of this hit, or a later batch."""
        return any(line["batch"] >= self.batch for line in self.control.batches())


Injection = Callable[[FaultContext, float], Generator[None]]


def waiting(condition: Callable[[], T], limit_s: float = math.inf) -> Generator[None, None, T]:
    """Yields until the condition holds, for `limit_s` seconds at most.

    Returns what the condition returned last. A wait needs no limit: the end of the run closes the fault.
    """
    end = time.monotonic() + limit_s
    while not (found := condition()) and time.monotonic() < end:
        yield
    return found


def pausing(seconds: float) -> Generator[None]:
    """Yields until the seconds have passed."""
    yield from waiting(lambda: False, seconds)
