"""A pretended pipeline for the nemeses: its lives, its checkpoint, and a supervisor that looks again and again."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from oncebench.faults.context import Stage
from oncebench.processes.child import Child
from pipeline.config import PipelineConfig


@dataclass
class Life:
    pid: int
    config: PipelineConfig | None = None
    alive: bool = True
    thawed: int = 0
    returncode: int | None = None
    others: tuple[int, ...] = ()
    left: list[frozenset[int]] = field(default_factory=list)

    def kill_session(self) -> None:
        self.returncode = -9 if self.alive else self.returncode
        self.alive = False

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
    """The lives of a pretended pipeline. `dies`: what each later life does with the checkpoint that it finds."""

    folder: Path
    all: list[Life] = field(default_factory=lambda: [Life(1)])
    events: list[str] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    done: list[dict[str, Any]] = field(default_factory=list)
    refuses: bool = True
    hits: list[dict[str, Any]] = field(default_factory=list)
    found: list[dict[str, bytes]] = field(default_factory=list)
    whys: list[str] = field(default_factory=list)
    words: str = "refused to start: no"

    @property
    def child(self) -> Child | None:
        return cast("Child", self.all[-1])

    def succeed(self, config: PipelineConfig | None = None, beside: bool = False) -> None:
        if not beside:
            self.all[-1].kill_session()
        self.all.append(Life(len(self.all) + 1, config))
        self.found.append(entries(self.folder / "checkpoint"))
        self.done = [] if self.refuses or config else [{"batch": 9}]

    def batches(self) -> list[dict[str, Any]]:
        return self.done

    def met(self) -> list[dict[str, Any]]:
        return self.hits

    def running(self) -> bool:
        return True

    def last_words(self) -> str:
        return self.words

    def note_death(self) -> tuple[int | None, str]:
        self.note("pipeline-failed")
        return self.all[-1].returncode, self.words

    def note(self, event: str, **fields: Any) -> None:
        self.events.append(event)
        self.whys += [fields["why"]] if "why" in fields else []
        self.notes.append({"event": event, **fields})

    def stage(self, fault: str, broken: Any = None) -> Stage:
        config = PipelineConfig(
            "localhost:1", "in", {"output": "out"}, "bad", "kafka", "exactly-once", "two-phase", "id",
            self.folder / "checkpoint", self.folder,
        )  # fmt: skip
        hit = {"fault": fault, "batch": 8, "point": "after-commit", "pid": 77, "t_us": 5}
        return Stage(self, cast("Child", self.all[0]), hit, config, {"kafka": broken, "postgres": broken})


@dataclass
class Server:
    pid: int = 1
    said: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.said.append(name)


def entries(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def run(act: Generator[None], world: World | None = None, looks: int = 50) -> None:
    """Looks again and again, as the supervisor does; a life that is to refuse dies at the second look."""
    for look in range(looks):
        if next(act, "over") == "over":
            return
        if world is not None and look == 1 and world.refuses:
            world.all[-1].alive = False
    raise AssertionError(f"the act was not over after {looks} looks")
