"""The supervisor records every death of a pipeline and restarts it; the pipeline is faked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncebench.errors import UserError
from oncebench.lab.engine import Engine
from oncebench.processes import child as process
from oncebench.run.attempts import supervisor as module
from tests.unit.run.attempts.fake_attempts import FakeChild, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path)
    monkeypatch.setattr(process, "start", made.start)
    with made.supervisor:
        made.supervisor.start()
        yield made


def test_a_kill_whose_hit_is_seen_before_the_death_is_a_kill(world: World) -> None:
    world.hit()
    world.supervisor.watch()  # the hit is on disk, and the process is not dead yet
    world.attempts[0].dies(-9)
    world.supervisor.watch()
    assert world.events() == ["pipeline-started", "pipeline-killed", "pipeline-started"]


def test_the_pipeline_logs_errors_in_english(world: World) -> None:
    assert world.environment["LC_MESSAGES"] == "C"  # a fault looks for the text of a full disk


def test_an_attempt_is_starting_until_its_query_runs_or_it_dies(world: World) -> None:
    assert world.supervisor.starting
    world.runs()
    assert not world.supervisor.starting
    world.supervisor.start_successor()
    assert world.supervisor.starting
    world.attempts[-1].dies(-9)
    assert not world.supervisor.starting


def test_handled_hits_are_counted_over_all_attempts(world: World) -> None:
    for count in (1, 2):
        world.hit()
        world.supervisor.watch()
        assert world.supervisor.hits_handled == count
        world.attempts[-1].dies(-9)
        world.supervisor.watch()
        assert world.supervisor.hits_handled == count


def test_kills_by_failpoints_never_count_as_failures(world: World) -> None:
    for _ in range(module.MAX_FAILURES + 1):
        world.hit()
        world.supervisor.watch()
        world.attempts[-1].dies(-9)
        world.supervisor.watch()
    assert world.events().count("pipeline-killed") == module.MAX_FAILURES + 1


def test_a_kill_of_an_earlier_attempt_does_not_explain_a_later_death(world: World) -> None:
    world.hit()
    world.attempts[0].dies(-9)
    world.supervisor.watch()
    world.attempts[1].log.write_text("stopped: an earlier attempt\n")
    world.attempts[1].dies(-11)
    world.supervisor.watch()
    failed = world.timeline()[-2]
    assert (failed["event"], failed["exit_code"]) == ("pipeline-failed", -11)


def test_the_last_message_is_that_of_the_dead_attempt(world: World) -> None:
    world.attempts[0].log.write_text("stopped: the first\n")
    world.attempts[0].dies(1)
    world.supervisor.watch()
    world.attempts[1].log.write_text("stopped: the first\nsomething else\n")
    world.attempts[1].dies(-11)
    world.supervisor.watch()
    assert [line["why"] for line in world.timeline() if "why" in line] == ["stopped: the first", "something else"]


def test_repeated_unrequested_deaths_end_the_run(world: World) -> None:
    with pytest.raises(UserError, match="4 times in a row"):
        for _ in range(module.MAX_FAILURES):
            world.attempts[-1].dies(-11)
            world.supervisor.watch()


@pytest.mark.parametrize("code", [-9, -11])
def test_a_death_just_before_the_stop_is_recorded(world: World, code: int) -> None:
    if code == -9:
        world.hit()
    world.attempts[0].dies(code)
    world.supervisor.stop()
    assert world.events()[1:] == ["pipeline-killed" if code == -9 else "pipeline-failed"]


def test_a_kill_during_a_fault_is_recorded_and_restarted_once(
    world: World,
) -> None:
    world.hit("end")
    world.supervisor.watch()
    world.hit(t_us=6)
    world.attempts[0].dies(-9)
    world.supervisor.watch()
    assert world.events()[1:] == ["nemesis-idle", "nemesis-over", "pipeline-killed", "pipeline-started"]
    assert len(world.attempts) == 2


def test_two_faults_that_both_start_a_pipeline_leave_one_running(world: World) -> None:
    world.hit("end")
    world.supervisor.watch()
    world.hit("outage", 0.0, t_us=6)
    for _ in range(3):
        world.supervisor.watch()
    assert ([attempt.alive for attempt in world.attempts], world.supervisor.fault_active) == ([False, True], False)


def test_a_failpoint_hit_during_the_stop_is_recorded(world: World) -> None:
    world.attempts[0].at_stop = world.hit
    world.supervisor.stop()
    assert world.events()[1:] == ["pipeline-killed"]


def test_a_stopped_pipeline_is_continued_once(world: World) -> None:
    world.hit("stop", 0.0)
    world.supervisor.watch()
    world.supervisor.watch()
    assert (world.attempts[0].thawed, world.events()[1:]) == (1, ["pipeline-continued", "nemesis-over"])


def test_a_fault_that_is_cut_short_is_not_recorded_as_over(world: World) -> None:
    world.hit("stop", 3600.0)
    world.supervisor.watch()
    world.supervisor.stop()
    world.hit("stop", 0.0)  # after the last look
    assert (world.timeline()[0]["tells_over"], "nemesis-over" in world.events()) == (True, False)


def test_a_fault_whose_pipeline_died_first_is_idle(world: World) -> None:
    world.attempts[0].still = False
    world.hit("outage", 5.0)
    world.attempts[0].dies(-9)
    world.supervisor.watch()
    assert (world.events().count("nemesis-idle"), world.supervisor.fault_active, len(world.attempts)) == (1, False, 2)


def test_a_death_recorded_by_a_fault_is_recorded_once(world: World) -> None:
    world.hit("outage", 3600.0)
    world.supervisor.watch()
    world.supervisor.end_faults()
    world.supervisor.watch()
    assert world.events()[1:] == ["pipeline-killed", "pipeline-started"]


def zombie_of(world: World) -> FakeChild:
    """The first attempt, stopped in batch 6, with a running successor."""
    world.commits(5)
    world.hit("zombie")
    time.sleep(0.001)  # the clock of the timeline counts microseconds
    world.supervisor.watch()
    assert world.events()[1:] == ["zombie-left", "pipeline-started"]
    return world.attempts[0]


def test_a_zombie_continues_when_its_successor_has_committed_the_batch(world: World) -> None:
    zombie = zombie_of(world)
    for batch, thawed in ((5, 0), (6, 1), (7, 1)):
        world.commits(batch)
        world.supervisor.watch()
        assert (zombie.thawed, world.supervisor.fault_active) == (thawed, True)
    assert world.attempts[1].thawed == 0


def test_the_end_of_a_zombie_is_recorded_and_its_successor_runs_on(world: World) -> None:
    zombie = zombie_of(world)
    zombie.log.write_text("stopped: an earlier message\n")
    world.commits(6)
    world.supervisor.watch()
    with zombie.log.open("a") as log:
        log.write("noise\nstopped: another driver\n")
    zombie.dies(3)
    world.supervisor.watch()
    assert world.timeline()[-2] | {"t_us": 0} == {
        "t_us": 0, "hit_us": 5, "event": "zombie-ended", "exit_code": 3, "why": "stopped: another driver"
    }  # fmt: skip
    assert (world.timeline()[-1]["event"], world.timeline()[-1]["hit_us"]) == ("nemesis-over", 5)
    assert (world.supervisor.fault_active, world.attempts[1].alive, world.supervisor.restarts) == (False, True, 1)
    assert zombie.session_killed  # its JVM and its workers may outlive it


def test_a_zombies_successor_may_become_a_zombie(world: World) -> None:
    zombie_of(world)
    world.hit("zombie")
    time.sleep(0.001)
    world.supervisor.watch()
    assert world.events().count("zombie-left") == 2
    world.commits(6)
    world.supervisor.watch()
    assert [attempt.thawed for attempt in world.attempts] == [1, 1, 0]
    world.supervisor.stop()
    assert [attempt.alive for attempt in world.attempts[:2]] == [False, False]


@pytest.mark.parametrize(("batch", "event"), [(5, "zombie-never-continued"), (6, "zombie-outlived")])
def test_a_zombie_that_runs_on_is_killed_at_the_end_of_the_run(world: World, batch: int, event: str) -> None:
    zombie = zombie_of(world)
    world.commits(batch)
    world.supervisor.watch()
    world.supervisor.stop()
    assert (zombie.alive, event in world.events()) == (False, True)


def test_temporary_files_of_a_killed_attempt_are_removed(world: World) -> None:
    (world.folder / "tmp-999999999").mkdir()
    world.supervisor.__exit__(None, None, None)
    assert not list(world.folder.glob("tmp-*"))


def test_a_successor_replaces_a_running_attempt_unless_it_is_kept(
    world: World,
) -> None:
    world.supervisor.start_successor()
    world.supervisor.start_successor(keep_predecessor=True)
    assert [attempt.alive for attempt in world.attempts] == [False, True, True]


def test_a_stopped_pipeline_is_not_restarted(world: World) -> None:
    world.supervisor.stop()
    assert world.supervisor.child is None
    world.supervisor.start()
    world.supervisor.watch()
    assert world.events() == ["pipeline-started", "pipeline-stopped", "pipeline-started"]


def test_an_engine_starts_and_sweeps_its_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    swept: list[Path] = []
    engine = Engine("other", lambda _config: ["other", "job"], lambda _name, _leader: "other", sweep=swept.append)
    world = World(tmp_path, engine=engine)
    start = lambda _name, command, log, **_others: started.append(command) or world.start("", command, log)  # noqa: E731
    monkeypatch.setattr(process, "start", start)
    with world.supervisor as supervisor:
        supervisor.start()
    assert (started, swept) == ([["other", "job"]], [tmp_path])
