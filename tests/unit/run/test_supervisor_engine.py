"""The supervisor starts, kills and restarts the attempts of any engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oncebench.faults.link import COME_LIMIT_S, link_to
from oncebench.faults.server import KAFKA
from oncebench.lab.engine import Engine
from oncebench.run import supervisor as module
from oncebench.servers.proxy.tcp import Catch
from tests.unit.run.test_supervisor import World


class Link:
    """A proxy whose client commits at once."""

    def __init__(self) -> None:
        self.caught: list[Catch] = []

    def catch(self, catch: Catch) -> None:
        catch.request = b""
        self.caught.append(catch)

    def forget(self, catch: Catch) -> None:
        catch.forgotten = True


@pytest.mark.parametrize(("link", "recorded"), [(Link(), {"commit_held": True}), (None, {})], ids=["link", "no link"])
def test_an_outage_begins_at_a_commit_and_delays_the_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: Link | None, recorded: dict[str, bool]
) -> None:
    world = World(tmp_path, random_kills=1, outage_s=0.2, servers={} if link is None else {link_to(KAFKA): link})
    monkeypatch.setattr(module.process, "start", world.start)
    monkeypatch.setattr(module, "RANDOM_KILL_MEAN_S", 1e-6)
    with world.supervisor as supervisor:
        supervisor.start()
        supervisor.begin_random_kills()
        world.runs()
        killed_at = time.monotonic()
        while supervisor.random_kills_left:
            supervisor.watch()
        assert (supervisor.fault_active, len(world.attempts)) == (True, 1)
        while supervisor.fault_active:
            supervisor.watch()
        assert time.monotonic() - killed_at >= 0.2
    assert world.events() == ["pipeline-started", "random-kill", "pipeline-started"]
    assert {name: value for name, value in world.timeline()[1].items() if name == "commit_held"} == recorded
    assert link is None or [catch.forgotten for catch in link.caught] == [True]  # the held commit never arrives


class EndsTheWait(Link):
    """A proxy whose client sends no commit. Something else happens during the wait for one."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self.happens = happens

    def catch(self, catch: Catch) -> None:
        self.caught.append(catch)
        self.happens()


def test_a_death_during_the_wait_for_a_commit_is_no_random_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies() -> None:
        world.attempts[0].log.write_text("stopped: the disk is full\n")
        world.attempts[0].dies(1)

    link = EndsTheWait(dies)
    world = World(tmp_path, random_kills=1, outage_s=60.0, servers={link_to(KAFKA): link})
    monkeypatch.setattr(module.process, "start", world.start)
    monkeypatch.setattr(module, "RANDOM_KILL_MEAN_S", 1e-6)
    began = time.monotonic()
    with world.supervisor as supervisor:
        supervisor.start()
        supervisor.begin_random_kills()
        world.runs()
        while not link.caught:
            supervisor.watch()
        assert (supervisor.random_kills_left, supervisor.fault_active) == (1, False)
        supervisor.watch()
    assert time.monotonic() - began < COME_LIMIT_S
    assert world.events() == ["pipeline-started", "pipeline-failed", "pipeline-started"]
    assert (world.timeline()[1]["exit_code"], world.timeline()[1]["why"]) == (1, "stopped: the disk is full")
    assert [catch.forgotten for catch in link.caught] == [True]


def test_an_interruption_ends_the_wait_for_a_commit_without_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted = threading.Event()
    link = EndsTheWait(interrupted.set)
    world = World(tmp_path, random_kills=1, outage_s=60.0, servers={link_to(KAFKA): link}, interrupted=interrupted)
    monkeypatch.setattr(module.process, "start", world.start)
    monkeypatch.setattr(module, "RANDOM_KILL_MEAN_S", 1e-6)
    began = time.monotonic()
    with world.supervisor as supervisor:
        supervisor.start()
        supervisor.begin_random_kills()
        world.runs()
        while not link.caught:
            supervisor.watch()
        assert (supervisor.random_kills_left, supervisor.fault_active, world.attempts[0].alive) == (1, False, True)
        supervisor.stop()
    assert time.monotonic() - began < COME_LIMIT_S
    assert world.events() == ["pipeline-started", "pipeline-stopped"]


def test_a_stop_during_an_outage_records_no_further_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, random_kills=1, outage_s=60.0)
    monkeypatch.setattr(module.process, "start", world.start)
    monkeypatch.setattr(module, "RANDOM_KILL_MEAN_S", 1e-6)
    with world.supervisor as supervisor:
        supervisor.start()
        supervisor.begin_random_kills()
        world.runs()
        while supervisor.random_kills_left:
            supervisor.watch()
        supervisor.stop()
    assert world.events() == ["pipeline-started", "random-kill"]


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
