"""A fake pipeline for fault tests: attempts, a checkpoint, and a fake supervisor."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from oncebench.faults.context import FaultContext
from oncebench.processes.child import Child
from pipeline.config import PipelineConfig

# No process of Linux has this pid: the largest is 2**22.
NOBODY = 2**22 + 1


@dataclass
class Attempt:
    pid: int
    config: PipelineConfig | None = None
    alive: bool = True
    thawed: int = 0
    frozen: int = 0
    returncode: int | None = None
    others: tuple[int, ...] = ()
    left: list[frozenset[int]] = field(default_factory=list)
    log: Path = Path(os.devnull)

    def kill_session(self) -> None:
        self.returncode = -9 if self.alive else self.returncode
        self.alive = False

    def freeze(self) -> None:
        self.frozen += 1

    def thaw(self, but: frozenset[int] = frozenset()) -> None:
        self.thawed += 1
        self.left.append(but)

    def send(self, _number: int) -> None:
        self.dies(0 if self.returncode is None else self.returncode)

    def dies(self, code: int) -> None:
        self.alive, self.returncode = False, code

    def members(self) -> tuple[int, ...]:
        return self.others


@dataclass
class World:
    """A fake pipeline. `refuses`: whether each later attempt refuses its checkpoint."""

    folder: Path
    attempts: list[Attempt] = field(default_factory=lambda: [Attempt(1)])
    events: list[str] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    done: list[dict[str, Any]] = field(default_factory=list)
    refuses: bool = True
    later: list[dict[str, Any]] = field(default_factory=list)
    found: list[dict[str, bytes]] = field(default_factory=list)
    whys: list[str] = field(default_factory=list)
    words: str = "refused to start: no"
    kept_stopped: set[int] = field(default_factory=set)

    @property
    def child(self) -> Child | None:
        return cast("Child", self.attempts[-1])

    def start_successor(self, config: PipelineConfig | None = None, keep_predecessor: bool = False) -> None:
        if not keep_predecessor:
            self.attempts[-1].kill_session()
        self.attempts.append(Attempt(len(self.attempts) + 1, config))
        self.found.append(entries(self.folder / "checkpoint"))
        self.done = [] if self.refuses or config else [{"batch": 9}]

    def batches(self) -> list[dict[str, Any]]:
        return self.done

    def hits(self) -> list[dict[str, Any]]:
        return self.later

    def running(self) -> bool:
        return True

    def last_words(self) -> str:
        return self.words

    def record_kill(self, **fields: Any) -> None:
        self.note("pipeline-killed", **fields)

    def record_exit(self) -> tuple[int | None, str]:
        self.note("pipeline-failed")
        return self.attempts[-1].returncode, self.words

    def note(self, event: str, **fields: Any) -> None:
        self.events.append(event)
        self.whys += [fields["why"]] if "why" in fields else []
        self.notes.append({"event": event, **fields})

    def context(self, fault: str, broken: Any = None) -> FaultContext:
        config = PipelineConfig(
            "localhost:1", "in", {"output": "out"}, "bad", "kafka", "exactly-once", "two-phase", "id",
            self.folder / "checkpoint", self.folder,
        )  # fmt: skip
        hit = {"fault": fault, "batch": 8, "point": "after-commit", "pid": 77, "t_us": 5}
        return FaultContext(self, cast("Child", self.attempts[0]), hit, config, {"kafka": broken, "postgres": broken})


@dataclass
class Server:
    pid: int = 1
    said: list[str] = field(default_factory=list)
    log: Path = Path(os.devnull)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.said.append(name)


def entries(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def run(injection: Generator[None], world: World | None = None, polls: int = 50) -> None:
    """Advances a fault, as the supervisor does. An attempt that refuses dies at the second poll."""
    for poll in range(polls):
        if next(injection, "over") == "over":
            return
        if world is not None and poll == 1 and world.refuses:
            world.attempts[-1].alive = False
    raise AssertionError(f"the fault was not over after {polls} polls")
