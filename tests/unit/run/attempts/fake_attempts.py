"""A supervisor whose pipeline is faked: attempts that run until a test ends them."""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncebench.lab.engine import SPARK, Engine
from oncebench.run.attempts.supervisor import Supervisor
from pipeline.config import PipelineConfig


@dataclass
class FakeChild:
    """A child that runs until a test ends it."""

    log: Path
    pid: int
    alive: bool = True
    returncode: int | None = None
    thawed: int = 0
    frozen: int = 0
    session_killed: bool = False
    still: bool = True
    at_stop: Any = field(default=lambda: None)
    at_kill: Any = field(default=lambda: None)

    def kill_session(self) -> None:
        if self.alive:
            self.at_kill()
        self.session_killed = True
        self.returncode = -9 if self.returncode is None else self.returncode
        self.alive = False

    def stop_gently(self, _limit_s: float) -> None:
        self.at_stop()
        self.kill_session()

    def freeze(self) -> None:
        self.frozen += 1

    def thaw(self, _but: frozenset[int] = frozenset()) -> None:
        self.thawed += 1

    def send(self, _number: int) -> None:
        pass

    def stands_still(self, pid: int) -> bool:
        return self.still or pid != self.pid or not self.alive

    def dies(self, code: int) -> None:
        self.alive, self.returncode = False, code


class FakeWork:
    """The work of a pipeline, which lasts as long as a test sets."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.left_s = seconds
        self.standstills: list[float] = []

    def seconds(self, standstill_s: float = 0.0) -> float:
        self.standstills.append(standstill_s)
        return self.left_s


class World:
    """A supervisor with its folder, and the hits and the log of its fake pipeline."""

    def __init__(
        self, folder: Path, random_kills: int = 0, engine: Engine = SPARK, outage_s: float = 0.0, servers: Any = None,
        interrupted: threading.Event | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.attempts: list[FakeChild] = []
        self.environment: dict[str, str] = {}
        config = PipelineConfig(
            "localhost:1", "in", {"output": "out"}, "bad", "kafka", "exactly-once", "two-phase", "id", folder, folder
        )
        self.supervisor = Supervisor(
            config, {}, random_kills, seed=1, servers=servers, engine=engine, outage_s=outage_s,
            interrupted=(interrupted or threading.Event()).is_set,
        )  # fmt: skip

    def start(self, _name: str, _command: object, log: Path, **others: Any) -> FakeChild:
        self.environment = others.get("env", {})
        log.parent.mkdir(exist_ok=True)
        log.touch()
        self.attempts.append(FakeChild(log, 1000 + len(self.attempts)))
        return self.attempts[-1]

    def hit(self, action: str = "kill", seconds: float = 0.0, t_us: int = 5, session: int | None = None) -> None:
        pid = self.attempts[-1].pid
        hit = {"fault": f"mid-write:{action}", "action": action, "seconds": seconds, "batch": 6, "t_us": t_us}
        self._append("hits.jsonl", {**hit, "life": pid, "pid": session or pid, "session": session or pid})

    def passes(self, point: str, batch: int) -> None:
        self._append("trace.jsonl", {"t_us": time.time_ns() // 1000, "point": point, "batch": batch})

    def runs(self) -> None:
        self._append("progress.jsonl", {"kind": "running", "t_us": time.time_ns() // 1000})

    def commits(self, batch: int) -> None:
        self._append("progress.jsonl", {"kind": "batch", "batch": batch, "t_us": time.time_ns() // 1000})

    def timeline(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "timeline.jsonl").read_text().splitlines()]

    def events(self) -> list[str]:
        return [line["event"] for line in self.timeline()]

    def _append(self, name: str, line: dict[str, Any]) -> None:
        with (self.folder / name).open("a") as file:
            file.write(json.dumps(line) + "\n")
