"""The live view describes the newest fault while the run is in progress."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oncebench.live.newest_fault import NewestFault


class Run:
    """The growing files of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest = NewestFault(folder)
        self.now_us = 0

    def hit(self, fault: str) -> str:
        return self._add("hits.jsonl", fault=fault, batch=6, action=fault.split(":")[1])

    def event(self, event: str, **fields: Any) -> str:
        return self._add("timeline.jsonl", event=event, **fields)

    def runs(self) -> str:
        return self._add("progress.jsonl", kind="running")

    def _add(self, name: str, **fields: Any) -> str:
        self.now_us += 1
        with (self.folder / name).open("a") as file:
            file.write(json.dumps({"t_us": self.now_us, **fields}) + "\n")
        return self.newest.describe()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path)
    assert made.event("pipeline-started") == "" == made.runs()
    return made


def test_a_killed_pipeline_is_restarting_until_it_runs(run: Run) -> None:
    fault = "after-prepare:kill in batch 6"
    assert run.hit("after-prepare:kill") == f"{fault}, restarting"
    assert run.event("pipeline-killed") == f"{fault}, restarting"
    assert run.event("pipeline-started") == f"{fault}, restarting"
    assert run.runs() == fault


def test_a_random_kill_has_the_last_failpoint(run: Run) -> None:
    run.hit("after-prepare:kill")
    landed = {"point": "mid-write", "batch": 9}
    assert run.event("random-kill", landed=landed) == "random kill past mid-write in batch 9, restarting"
    assert run.runs() == "random kill past mid-write in batch 9"
    assert run.event("random-kill", landed=None) == "random kill, restarting"


def test_an_unrequested_death_has_its_signal(run: Run) -> None:
    assert run.event("pipeline-failed", exit_code=-11) == "died (signal 11), restarting"


def test_a_stopped_pipeline_is_stopped_until_it_continues(run: Run) -> None:
    assert run.hit("mid-write:stop:5") == "mid-write:stop:5 in batch 6, stopped"
    assert run.event("pipeline-continued") == "mid-write:stop:5 in batch 6"
