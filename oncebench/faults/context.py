"""What a nemesis finds when it acts: the pipeline that stands still at a failpoint, the servers, and the timeline.

Promise: the pipeline is stopped as a whole (SIGSTOP) when an act begins; what an act does to a server or a folder it
undoes at its end, also when the run ends before it (an act is a generator: closing it runs its `finally`, and where it
has not let the pipeline go on, the supervisor does). While an act holds the stage, the supervisor leaves dead what
dies. What can go wrong: a run gives a fault some patience; an act that waits longer is cut short by the end of the run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from oncebench.processes.child import Child
from pipeline.config import PipelineConfig

# Why an act whose pipeline has died says nothing about its own deed.
OVERTAKEN = "another fault came first, of which it may have died"


class Lives(Protocol):
    """Of the supervisor: what begins, ends and follows the lives of the pipeline."""

    @property
    def child(self) -> Child | None:
        """The life that was started last."""

    def succeed(self, config: PipelineConfig | None = None, beside: bool = False) -> None:
        """Starts another life, with another configuration if one is given. The one before is killed if it is still
        there, unless the new one is to live beside it."""

    def batches(self) -> Sequence[Mapping[str, Any]]:
        """Progress lines of the batches that the newest life has committed."""

    def met(self) -> Sequence[Mapping[str, Any]]:
        """Hits of the newest life."""

    def running(self) -> bool:
        """Whether the newest life has its query running."""

    def last_words(self) -> str:
        """What the newest life said at its end."""

    def note_death(self) -> tuple[int | None, str] | None:
        """Notes how the newest life ended, once, and ends what is left of it; exit code and last words if no fault
        killed it, else None."""

    def note(self, event: str, **fields: Any) -> None:
        """Appends a line to timeline.jsonl."""


@dataclass
class Stage:
    """Where an act takes place.

    Attributes:
        lives: of the pipeline.
        child: the life that stands still.
        hit: of the failpoint: its `batch`, `point`, `pid`, `fault`, and `t_us`, which is no other's.
        config: of the pipeline.
        servers: those that the suite started, by the name of the service (`kafka` always, if it is ours).
        seed: of what an act chooses at random.
        held: whether the supervisor is to leave dead what dies.
        standing: whether nothing has let the life go on yet; whoever ends an act that has not come to that does so.
    """

    lives: Lives
    child: Child
    hit: Mapping[str, Any]
    config: PipelineConfig
    servers: Mapping[str, Any]
    seed: int = 1
    held: bool = field(default=False, init=False)
    standing: bool = field(default=True, init=False)

    @property
    def batch(self) -> int:
        """The batch in which the pipeline stands."""
        return int(self.hit["batch"])

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint folder, with our journal in it."""
        return self.config.checkpoint

    @contextmanager
    def holding(self) -> Iterator[None]:
        """What dies stays dead until the end."""
        self.held = True
        try:
            yield
        finally:
            self.held = False

    def note(self, event: str, **fields: Any) -> None:
        """Appends a line to timeline.jsonl, which says of which hit it is."""
        self.lives.note(event, hit_us=self.hit["t_us"], **fields)

    def idle(self, why: str) -> None:
        """Says that there was nothing to act on: such a run has not tested this fault."""
        self.note("nemesis-idle", fault=self.hit["fault"], why=why)

    def thaw(self, but: frozenset[int] = frozenset()) -> None:
        """Continues the pipeline, of which no more is told, except these of its processes."""
        self.standing = False
        self.child.thaw(but)

    def go_on(self, but: frozenset[int] = frozenset()) -> None:
        """Continues the pipeline, except these of its processes."""
        self.thaw(but)
        self.note("pipeline-continued")

    def kill(self) -> None:
        """SIGKILL for every process of the pipeline's newest life. One that has ended before is noted as what it died
        of."""
        child = self.lives.child
        assert child is not None, "a life has stood still here"
        if not child.alive:
            self.lives.note_death()
            return
        child.kill_session()
        self.note("pipeline-killed")

    def failed(self, instead: str) -> None:
        """The newest life ended in a way that says nothing about the deed: its death is noted, and the act is idle.

        Args:
            instead: of what should have become of it.
        """
        words = self.lives.last_words()
        code, why = self.lives.note_death() or (None, words)
        self.idle(f"{instead}, and ended with exit code {code}: {why}")

    def alive(self) -> bool:
        """Whether the newest life lives."""
        return self.lives.child is not None and self.lives.child.alive

    def others(self) -> list[Mapping[str, Any]]:
        """Hits of the newest life that came after this one: it may have died of those."""
        return [hit for hit in self.lives.met() if hit["t_us"] > self.hit["t_us"]]

    def done(self) -> bool:
        """Whether the newest life has committed the batch in which this one stood still, or a later one."""
        return any(line["batch"] >= self.batch for line in self.lives.batches())


Act = Callable[[Stage, float], Generator[None]]


def waiting(condition: Callable[[], bool], limit_s: float = math.inf) -> Generator[None]:
    """Yields until the condition holds, for so long at most; the end of the run ends it, so it needs no limit."""
    end = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end:
        yield


def pausing(seconds: float) -> Generator[None]:
    """Yields until so many seconds have gone by."""
    yield from waiting(lambda: False, seconds)
