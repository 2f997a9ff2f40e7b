"""The supervisor starts, kills and restarts the attempts of any engine."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from oncebench.lab.engine import SPARK, Engine
from oncebench.run import supervisor as module
from pipeline.config import PipelineConfig
from tests.unit.run.test_supervisor import World


@pytest.mark.parametrize("aims", [True, False])
def test_an_outage_begins_at_the_aimed_moment_and_delays_the_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aims: bool
) -> None:
    aimed: list[PipelineConfig] = []
    engine = replace(SPARK, aim=(lambda config, _child: aimed.append(config) or True) if aims else None)
    world = World(tmp_path, random_kills=1, engine=engine, outage_s=0.2)
    monkeypatch.setattr(module.process, "start", world.start)
    monkeypatch.setattr(module, "RANDOM_KILL_MEAN_S", 1e-6)
    with world.supervisor as supervisor:
        supervisor.start()
        supervisor.begin_random_kills()
        world.runs()
        killed_at = time.monotonic()
        while supervisor.random_kills_left:
            supervisor.watch()
        assert (len(aimed), supervisor.fault_active, len(world.attempts)) == (int(aims), True, 1)
        while supervisor.fault_active:
            supervisor.watch()
        assert time.monotonic() - killed_at >= 0.2
    assert world.events() == ["pipeline-started", "random-kill", "pipeline-started"]


def test_an_engine_starts_and_sweeps_its_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    swept: list[Path] = []
    engine = Engine("other", lambda _config: ["other", "job"], lambda _name, _leader: "other", sweep=swept.append)
    world = World(tmp_path, engine=engine)
    start = lambda _name, command, log, **_others: started.append(command) or world.start("", command, log)  # noqa: E731
    monkeypatch.setattr(module.process, "start", start)
    with world.supervisor as supervisor:
        supervisor.start()
    assert (started, swept) == ([["other", "job"]], [tmp_path])
