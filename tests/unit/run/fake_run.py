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
from oncebench.run.phases import Phases
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

    def note(self, event: str, **_fields: Any) -> None:
        self.noted.append(event)

    def end_faults(self) -> None:
        self.noted.append("faults ended")
        self.server_down = False

    def watch(self) -> None:
        self.noted.append("watched")
        self.server_down = False

    def start(self, _config: object = None) -> None:
        self.noted.append("started")

    def running(self) -> bool:
        return self.is_running

    def begin_random_kills(self) -> None:
        pass

    def stop(self) -> None:
        self.noted.append("stopped")

    def signs_of_life(self) -> tuple[int, int]:
        return 0, 0

    def death(self) -> str | None:
        return self.last_death


class FakeRun(_Run):
    """A run with fake pipeline, generator and servers; `displayed` has the displayed states."""

    def __init__(self, folder: Path, cell: Cell = CELL, interrupted: bool = False) -> None:
        self.folder, self.cell, self.load_s = folder, cell, 1.0
        self.interrupted = threading.Event()
        if interrupted:
            self.interrupted.set()
        self.fake = FakeSupervisor()
        self.supervisor: Any = self.fake
        self.lab: Any = SimpleNamespace(
            own_kafka=None, kafka=SimpleNamespace(access=KafkaAccess("")), start_timeout_s=START_TIMEOUT_S
        )
        self.topics: Any = SimpleNamespace(input="in")
        self.config: Any = None
        self.marks: list[float] = []
        self.meters: Any = SimpleNamespace(
            mark=lambda: self.marks.append(1.0), checkpoint=SimpleNamespace(scan_if_due=lambda: None)
        )
        self.measured_from_us = 0
        self.warm = False
        self.displayed: list[RunStatus] = []
        self.show = self.displayed.append
        self.during: Any = None
        self.processes = RunProcesses(folder, {})
        self.progress = RunProgress(folder, 1.0)
        self.phases = Phases(self.supervisor, None, self._look, self.interrupted, cell.faulted)
        self.ended: list[str] = []

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
