"""A run without processes, for tests of its phases."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.lab import START_TIMEOUT_S
from oncebench.live.status import RunStatus
from oncebench.run.cell import _Run
from oncebench.run.configs import load_plans
from oncebench.run.limits import Limits
from oncebench.run.measurement import Measurement
from oncebench.run.processes import RunProcesses
from oncebench.run.progress import RunProgress
from oncebench.scenario.cell import Cell

CELL = Cell("kafka", "exactly-once", "two-phase")


class FakeSupervisor:
    """A supervisor whose pipeline does nothing by itself."""

    def __init__(self) -> None:
        self.child: Any = None
        self.noted: list[str] = []
        self.is_running = self.server_down = self.fault_active = self.starting = False
        self.restarts = self.hits_handled = self.random_kills_left = 0
        self.last_death: str | None = None
        self.kill_due = False

    def note(self, event: str, **_fields: Any) -> None:
        self.noted.append(event)

    def end_faults(self) -> None:
        self.noted.append("faults ended")
        self.server_down = False

    def watch(self) -> None:
        self.noted.append("watched")
        self.server_down = False
        if self.kill_due:
            self.kill_due, self.random_kills_left = False, self.random_kills_left - 1

    def start(self, _config: object = None) -> None:
        self.noted.append("started")

    def running(self) -> bool:
        return self.is_running

    def begin_random_kills(self, _work: object) -> None:
        pass

    def hasten_random_kill(self) -> None:
        self.kill_due = self.random_kills_left > 0

    def stop(self) -> None:
        self.noted.append("stopped")

    def signs_of_life(self) -> tuple[int, int]:
        return 0, 0

    def death(self) -> str | None:
        return self.last_death


class FakeRun(_Run):
    """A run with fake pipeline, generator and servers; `displayed` has the displayed states.

    Args:
        parts: replace those of the fake.
    """

    def __init__(self, folder: Path, cell: Cell = CELL, interrupted: bool = False, **parts: Any) -> None:
        self.fake, self.displayed, self.ended = FakeSupervisor(), list[RunStatus](), list[str]()
        cut = threading.Event()
        if interrupted:
            cut.set()
        meters: Any = SimpleNamespace(mark=lambda: None, checkpoint=SimpleNamespace(scan_if_due=lambda: None))
        progress = RunProgress(folder, 1.0, generators=cell.generators)
        lab: Any = SimpleNamespace(own_kafka=None, kafka=SimpleNamespace(access=KafkaAccess("")))
        fakes: dict[str, Any] = {
            "id": "run", "cell": cell, "lab": lab, "folder": folder, "sink": None,
            "topics": SimpleNamespace(input="in"), "durability": {}, "config": None, "engine": None,
            "supervisor": self.fake, "processes": RunProcesses(folder, {}), "meters": meters, "progress": progress,
            "measurement": Measurement(cell, load_plans(cell, folder)[0], meters, progress),
            "limits": Limits(cell, START_TIMEOUT_S), "show": self.displayed.append, "interrupted": cut, "during": None,
        }  # fmt: skip
        super().__init__(**{**fakes, **parts})

    def _input_ends(self) -> dict[str, int]:
        return {"0": 10_000}

    def _start_load(self) -> None:
        self.processes.children["generator"] = cast(Any, FakeChild("the generator", self.folder / "log", self.ended))


class FakeChild:
    """A child without a process; `ended` gets its name when it is stopped."""

    def __init__(self, name: str, log: Path, ended: list[str]) -> None:
        self.name, self.log, self.ended = name, log, ended
        self.alive, self.returncode = True, 0

    def send(self, _signal: int) -> None:
        pass

    def wait(self, _limit_s: float) -> bool:
        return True

    def kill_session(self) -> None:
        self.ended.append(self.name)
