"""The supervisor records every death of a pipeline and restarts it; the pipeline is faked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from oncebench.errors import UserError
from oncebench.lab.engine import SPARK, Engine
from oncebench.run import supervisor as module
from oncebench.run.supervisor import Supervisor
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


class World:
    """A supervisor with its folder, and the hits and the log of its fake pipeline."""

    def __init__(
        self, folder: Path, random_kills: int = 0, engine: Engine = SPARK, outage_s: float = 0.0, servers: Any = None,
        interrupted: threading.Event | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.attempts: list[FakeChild] = []
        config = PipelineConfig(
            "localhost:1", "in", {"output": "out"}, "bad", "kafka", "exactly-once", "two-phase", "id", folder, folder
        )
        self.supervisor = Supervisor(
            config, {}, random_kills, seed=1, servers=servers, engine=engine, outage_s=outage_s,
            interrupted=(interrupted or threading.Event()).is_set,
        )  # fmt: skip

    def start(self, _name: str, _command: object, log: Path, **_others: object) -> FakeChild:
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


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, random_kills=1)
    monkeypatch.setattr(module.process, "start", made.start)
    with made.supervisor:
        made.supervisor.start()
        yield made


def test_a_kill_whose_hit_is_seen_before_the_death_is_a_kill(world: World) -> None:
    world.hit()
    world.supervisor.watch()  # the hit is on disk, and the process is not dead yet
    world.attempts[0].dies(-9)
    world.supervisor.watch()
    assert world.events() == ["pipeline-started", "pipeline-killed", "pipeline-started"]


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


def test_a_fault_begins_when_the_pipeline_is_stopped_and_no_random_kill_comes_before(world: World) -> None:
    world.runs()
    world.supervisor.begin_random_kills()
    world.supervisor._kill_at = 0.0
    world.attempts[0].still = False
    world.hit("stop", 0.0)
    world.supervisor.watch()
    assert (world.attempts[0].thawed, world.events()[1:], world.supervisor.hits_handled) == (0, [], 0)
    assert (world.supervisor.fault_active, world.supervisor.random_kills_left) == (True, 1)
    world.attempts[0].still = True
    world.supervisor.watch()
    assert (world.attempts[0].thawed, world.events()[1], world.supervisor.hits_handled) == (1, "pipeline-continued", 1)


def test_a_fault_whose_pipeline_died_first_is_idle(world: World) -> None:
    world.attempts[0].still = False
    world.hit("outage", 5.0)
    world.attempts[0].dies(-9)
    world.supervisor.watch()
    assert (world.events().count("nemesis-idle"), world.supervisor.fault_active, len(world.attempts)) == (1, False, 2)


def test_a_hit_together_with_a_random_kill_is_idle(world: World) -> None:
    world.attempts[0].at_kill = lambda: world.hit("outage", 5.0)
    kill_at_random(world)
    world.supervisor.watch()
    assert (world.supervisor.fault_active, world.supervisor.hits_handled) == (False, 1)
    assert world.events().count("nemesis-idle") == 1
    assert (len(world.attempts), world.attempts[1].alive) == (2, True)


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


def kill_at_random(world: World) -> dict[str, Any]:
    world.runs()
    world.supervisor.begin_random_kills()
    world.supervisor._kill_at = 0.0
    world.supervisor.watch()
    return world.timeline()[-2]


def test_random_kills_have_random_waiting_times(world: World) -> None:
    waits = []
    for _ in range(50):
        world.runs()
        world.supervisor.begin_random_kills()
        world.supervisor._kills_left, world.supervisor._kill_at = 1, None
        before = time.monotonic()
        world.supervisor.watch()
        assert world.supervisor._kill_at is not None
        waits.append(world.supervisor._kill_at - before)
    assert len({round(wait, 3) for wait in waits}) > 40
    assert module.RANDOM_KILL_MEAN_S / 2 < sum(waits) / len(waits) < 2 * module.RANDOM_KILL_MEAN_S


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
    world.supervisor.begin_random_kills()
    world.supervisor._kill_at = 0.0
    world.attempts[0].dies(-11)
    world.supervisor.watch()
    assert world.events() == ["pipeline-started", "pipeline-failed", "pipeline-started"]
    assert world.supervisor.random_kills_left == 1


def test_a_stopped_pipeline_is_not_restarted(world: World) -> None:
    world.supervisor.stop()
    assert world.supervisor.child is None
    world.supervisor.start()
    world.supervisor.watch()
    assert world.events() == ["pipeline-started", "pipeline-stopped", "pipeline-started"]
