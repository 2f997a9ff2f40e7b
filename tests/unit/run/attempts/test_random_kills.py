"""Random kills, with and without an outage; the pipeline is faked."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from oncebench.faults.link import COME_LIMIT_S, link_to
from oncebench.faults.server import KAFKA
from oncebench.processes import child as process
from oncebench.run.attempts import random_kills as module
from oncebench.run.attempts.attempt import Attempt
from oncebench.run.attempts.supervisor import Supervisor
from oncebench.run.attempts.work_left import BACKLOG_S
from oncebench.scenario.cell import Cell
from oncebench.servers.proxy.tcp import Catch
from tests.unit.run.attempts.fake_attempts import FakeWork, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, random_kills=1)
    monkeypatch.setattr(process, "start", made.start)
    with made.supervisor:
        made.supervisor.start()
        yield made


def kill_at_random(world: World) -> dict[str, Any]:
    world.runs()
    world.supervisor.begin_random_kills(FakeWork())
    world.supervisor._random_kills._kill_at = 0.0
    world.supervisor.watch()
    return world.timeline()[-2]


class Started:
    """An attempt that runs since a start of `age_s`."""

    running = True

    def __init__(self, age_s: float) -> None:
        self.age_s = age_s


def test_random_kills_have_random_waiting_times(world: World) -> None:
    waits, kills = [], world.supervisor._random_kills
    for _ in range(50):
        world.runs()
        world.supervisor.begin_random_kills(FakeWork())
        kills.left, kills._kill_at = 1, None
        before = time.monotonic()
        world.supervisor.watch()
        assert kills._kill_at is not None
        waits.append(kills._kill_at - before)
    assert len({round(wait, 3) for wait in waits}) > 40
    assert module.RANDOM_KILL_MEAN_S / 2 < sum(waits) / len(waits) < 2 * module.RANDOM_KILL_MEAN_S


def waits_of(kills: module.RandomKills, start_s: float) -> float:
    """How long the next kill waits after a start that took so long."""
    kills._kill_at = None
    before = time.monotonic()
    assert not kills.due(cast("Attempt", Started(start_s)))
    assert kills._kill_at is not None
    return kills._kill_at - before


@pytest.mark.parametrize("start_s", [6.0, 10.0, 14.0])
def test_a_kill_comes_before_the_default_load_is_over(start_s: float) -> None:
    load_s = Cell("kafka", "exactly-once", "two-phase").load_s
    for seed in range(1, 101):
        kills = module.RandomKills(1, seed)
        kills.begin(FakeWork(load_s))
        assert 0.0 < waits_of(kills, start_s) < load_s + 0.1, seed


def test_kills_share_the_work_and_leave_time_for_the_restarts() -> None:
    work, waits = FakeWork(9.0), []
    for seed in range(200):
        kills = module.RandomKills(3, seed, outage_s=20.0)
        kills.begin(work)
        waits.append(waits_of(kills, 10.0))
    assert set(work.standstills) == {2 * (10.0 + 20.0)}
    assert max(waits) < 9.1 and 2.0 < sum(waits) / len(waits) < 3.3  # a third of the work, cut off at its end


def test_kills_that_do_not_fit_into_the_load_still_reach_into_a_batch() -> None:
    waits = []
    for seed in range(200):
        kills = module.RandomKills(25, seed)
        kills.begin(FakeWork(BACKLOG_S))
        waits.append(waits_of(kills, 6.0))
    assert max(waits) < BACKLOG_S + 0.1 and 0.6 < sum(waits) / len(waits) < 1.1


def test_endless_work_leaves_the_times_as_the_seed_draws_them() -> None:
    kills = module.RandomKills(1, 7)
    kills.begin(FakeWork())
    assert waits_of(kills, 10.0) == pytest.approx(random.Random(7).expovariate(1 / 10.0), abs=0.1)


@pytest.mark.parametrize(("left_s", "hastened", "idle"), [(5.0, False, False), (0.0, False, True), (5.0, True, True)])
def test_a_kill_without_work_is_recorded_as_idle(world: World, left_s: float, hastened: bool, idle: bool) -> None:
    world.runs()
    supervisor = world.supervisor
    supervisor.begin_random_kills(FakeWork(left_s))
    supervisor._random_kills._kill_at = 0.0
    if hastened:
        supervisor.hasten_random_kill()
    supervisor.watch()
    killed = world.timeline()[-2]
    assert (killed["event"], killed.get("idle", False)) == ("random-kill", idle)


def test_hastened_kills_come_at_the_next_look_and_each_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, random_kills=2)
    monkeypatch.setattr(process, "start", world.start)
    with world.supervisor as supervisor:
        supervisor.start()
        supervisor.begin_random_kills(FakeWork())
        for left in (1, 0):
            world.runs()
            supervisor.watch()  # draws the time of the kill
            supervisor.hasten_random_kill()
            supervisor.watch()
            assert supervisor.random_kills_left == left
            supervisor.watch()
            assert world.attempts[-1].alive
        world.runs()
        supervisor.hasten_random_kill()
        supervisor.watch()
    assert world.events() == ["pipeline-started", *["random-kill", "pipeline-started"] * 2]


def test_a_dead_attempt_hastens_no_kill_of_the_next_one(world: World) -> None:
    world.runs()
    world.supervisor.begin_random_kills(FakeWork())
    world.attempts[0].dies(-11)
    world.supervisor.hasten_random_kill()
    for _ in range(3):
        world.supervisor.watch()
    assert world.events() == ["pipeline-started", "pipeline-failed", "pipeline-started"]


def test_a_random_kill_records_the_last_failpoint_of_its_attempt(world: World) -> None:
    world.passes("mid-write", 7)
    assert kill_at_random(world)["landed"] == {"point": "mid-write", "batch": 7}


def test_a_random_kill_before_the_first_failpoint_records_none(world: World) -> None:
    world.passes("mid-write", 7)
    world.attempts[0].dies(-11)
    time.sleep(0.001)
    world.supervisor.watch()
    killed = kill_at_random(world)
    assert (killed["event"], killed["landed"]) == ("random-kill", None)


def test_a_dead_pipeline_uses_up_no_random_kill(world: World) -> None:
    world.runs()
    world.supervisor.begin_random_kills(FakeWork())
    world.supervisor._random_kills._kill_at = 0.0
    world.attempts[0].dies(-11)
    world.supervisor.watch()
    assert world.events() == ["pipeline-started", "pipeline-failed", "pipeline-started"]
    assert world.supervisor.random_kills_left == 1


def test_a_hit_together_with_a_random_kill_is_idle(world: World) -> None:
    world.attempts[0].at_kill = lambda: world.hit("outage", 5.0)
    kill_at_random(world)
    world.supervisor.watch()
    assert (world.supervisor.fault_active, world.supervisor.hits_handled) == (False, 1)
    assert world.events().count("nemesis-idle") == 1
    assert (len(world.attempts), world.attempts[1].alive) == (2, True)


def test_a_fault_begins_when_the_pipeline_is_stopped_and_no_random_kill_comes_before(world: World) -> None:
    world.runs()
    world.supervisor.begin_random_kills(FakeWork())
    world.supervisor._random_kills._kill_at = 0.0
    world.attempts[0].still = False
    world.hit("stop", 0.0)
    world.supervisor.watch()
    assert (world.attempts[0].thawed, world.events()[1:], world.supervisor.hits_handled) == (0, [], 0)
    assert (world.supervisor.fault_active, world.supervisor.random_kills_left) == (True, 1)
    world.attempts[0].still = True
    world.supervisor.watch()
    assert (world.attempts[0].thawed, world.events()[1], world.supervisor.hits_handled) == (1, "pipeline-continued", 1)


class Link:
    """A proxy whose client commits at once."""

    def __init__(self) -> None:
        self.caught: list[Catch] = []

    def catch(self, catch: Catch) -> None:
        catch.request = b""
        self.caught.append(catch)

    def forget(self, catch: Catch) -> None:
        catch.forgotten = True

    def cut(self) -> None:
        assert not self.caught[-1].forgotten, "a repeat of the commit would pass"

    def mend(self) -> None:
        assert not self.caught[-1].forgotten


@pytest.mark.parametrize(("link", "recorded"), [(Link(), {"commit_held": True}), (None, {})], ids=["link", "no link"])
def test_an_outage_begins_at_a_commit_and_delays_the_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: Link | None, recorded: dict[str, bool]
) -> None:
    world = World(tmp_path, random_kills=1, outage_s=0.2, servers={} if link is None else {link_to(KAFKA): link})
    monkeypatch.setattr(process, "start", world.start)
    monkeypatch.setattr(module, "RANDOM_KILL_MEAN_S", 1e-6)
    with world.supervisor as supervisor:
        supervisor.start()
        supervisor.begin_random_kills(FakeWork())
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


@contextmanager
def waiting_for_a_commit(world: World, link: EndsTheWait, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """Runs until a random kill waits for a commit, and until the wait has ended.

    An event that `link` allows ends the wait.
    """
    monkeypatch.setattr(process, "start", world.start)
    monkeypatch.setattr(module, "RANDOM_KILL_MEAN_S", 1e-6)
    began = time.monotonic()
    with world.supervisor as supervisor:
        supervisor.start()
        supervisor.begin_random_kills(FakeWork())
        world.runs()
        while not link.caught:
            supervisor.watch()
        yield supervisor
    assert time.monotonic() - began < COME_LIMIT_S


def test_a_death_during_the_wait_for_a_commit_is_no_random_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies() -> None:
        world.attempts[0].log.write_text("stopped: the disk is full\n")
        world.attempts[0].dies(1)

    link = EndsTheWait(dies)
    world = World(tmp_path, random_kills=1, outage_s=60.0, servers={link_to(KAFKA): link})
    with waiting_for_a_commit(world, link, monkeypatch) as supervisor:
        assert (supervisor.random_kills_left, supervisor.fault_active) == (1, False)
        supervisor.watch()
    assert world.events() == ["pipeline-started", "pipeline-failed", "pipeline-started"]
    assert (world.timeline()[1]["exit_code"], world.timeline()[1]["why"]) == (1, "stopped: the disk is full")
    assert [catch.forgotten for catch in link.caught] == [True]


def test_an_interruption_ends_the_wait_for_a_commit_without_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted = threading.Event()
    link = EndsTheWait(interrupted.set)
    world = World(tmp_path, random_kills=1, outage_s=60.0, servers={link_to(KAFKA): link}, interrupted=interrupted)
    with waiting_for_a_commit(world, link, monkeypatch) as supervisor:
        assert (supervisor.random_kills_left, supervisor.fault_active, world.attempts[0].alive) == (1, False, True)
        supervisor.stop()
    assert world.events() == ["pipeline-started", "pipeline-stopped"]


def test_a_stop_during_an_outage_records_no_further_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, random_kills=1, outage_s=60.0)
    monkeypatch.setattr(process, "start", world.start)
    monkeypatch.setattr(module, "RANDOM_KILL_MEAN_S", 1e-6)
    with world.supervisor as supervisor:
        supervisor.start()
        supervisor.begin_random_kills(FakeWork())
        world.runs()
        while supervisor.random_kills_left:
            supervisor.watch()
        supervisor.stop()
    assert world.events() == ["pipeline-started", "random-kill"]
