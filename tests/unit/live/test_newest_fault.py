"""What the live view says of faults while they happen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oncebench.live.newest_fault import FaultsSeen
from oncebench.live.status import Seen
from oncebench.live.view import _Lines


class Run:
    """Files of a run that grow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen = FaultsSeen(folder)
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
        return self.seen.told()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path)
    assert made.event("pipeline-started") == "" == made.runs()
    return made


def test_a_pipeline_that_was_killed_restarts_until_it_runs(run: Run) -> None:
    told = "after-prepare:kill in batch 6"
    assert run.hit("after-prepare:kill") == f"{told}, restarting"
    assert run.event("pipeline-killed") == f"{told}, restarting"
    assert run.event("pipeline-started") == f"{told}, restarting"
    assert run.runs() == told


def test_a_random_kill_is_shown_with_the_step_that_came_last(run: Run) -> None:
    run.hit("after-prepare:kill")
    landed = {"point": "mid-write", "batch": 9}
    assert run.event("random-kill", landed=landed) == "random kill past mid-write in batch 9, restarting"
    assert run.runs() == "random kill past mid-write in batch 9"
    assert run.event("random-kill", landed=None) == "random kill, restarting"


def test_a_death_that_nobody_asked_for_is_shown(run: Run) -> None:
    assert run.event("pipeline-failed", exit_code=-11) == "died (signal 11), restarting"


def test_a_stopped_pipeline_is_shown_as_stopped_until_it_goes_on(run: Run) -> None:
    assert run.hit("mid-write:stop:5") == "mid-write:stop:5 in batch 6, stopped"
    assert run.event("pipeline-continued") == "mid-write:stop:5 in batch 6"


def test_without_a_terminal_a_line_comes_when_phase_or_fault_changes(capsys: pytest.CaptureFixture[str]) -> None:
    view = _Lines("cell")
    for fault in ("", "", "a:kill in batch 6, restarting", "a:kill in batch 6, restarting", "a:kill in batch 6"):
        view(Seen("loading", {}, {}, {}, None, fault))
    assert [line.split("fault ")[1] for line in capsys.readouterr().err.splitlines()] == [
        "-",
        "a:kill in batch 6, restarting",
        "a:kill in batch 6",
    ]
