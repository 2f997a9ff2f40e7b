"""What the supervisor writes down of each death, with a pipeline that only seems to run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from oncebench.errors import UserError
from oncebench.run import supervisor as module
from oncebench.run.supervisor import Supervisor
from pipeline.config import PipelineConfig


@dataclass
class Pretended:
    """A child that lives until told otherwise."""

    log: Path
    pid: int
    alive: bool = True
    returncode: int | None = None
    thawed: int = 0
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

    def thaw(self, _but: frozenset[int] = frozenset()) -> None:
        self.thawed += 1

    def send(self, _number: int) -> None:
        pass

    def stands_still(self, pid: int) -> bool:
        return self.still or pid != self.pid or not self.alive

    def dies(self, code: int) -> None:
        self.alive, self.returncode = False, code


class World:
    """A supervisor in a folder of its own, and the hits and the log of its pretended pipeline."""

    def __init__(self, folder: Path, random_kills: int = 0) -> None:
        self.folder = folder
        self.lives: list[Pretended] = []
        config = PipelineConfig(
            "localhost:1", "in", {"output": "out"}, "bad", "kafka", "exactly-once", "two-phase", "id", folder, folder
        )
        self.supervisor = Supervisor(config, {}, random_kills, seed=1)

    def start(self, _name: str, _command: object, log: Path, **_others: object) -> Pretended:
        log.parent.mkdir(exist_ok=True)
        log.touch()
        self.lives.append(Pretended(log, 1000 + len(self.lives)))
        return self.lives[-1]

    def hit(self, action: str = "kill", seconds: float = 0.0, t_us: int = 5) -> None:
        life = self.lives[-1].pid
        hit = {"fault": f"mid-write:{action}", "action": action, "seconds": seconds, "batch": 6, "t_us": t_us}
        self._append("hits.jsonl", {**hit, "life": life, "pid": life})

    def passes(self, point: str, batch: int) -> None:
        self._append("trace.jsonl", {"t_us": time.time_ns() // 1000, "point": point, "batch": batch})

    def runs(self) -> None:
        self._append("progress.jsonl", {"kind": "running", "t_us": time.time_ns() // 1000})

    def commits(self, batch: int) -> None:
        self._append("progress.jsonl", {"kind": "batch", "batch": batch, "t_us": time.time_ns() // 1000})

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "timeline.jsonl").read_text().splitlines()]

    def events(self) -> list[str]:
        return [line["event"] for line in self.told()]

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


def test_a_kill_that_was_seen_a_look_before_the_death_is_told_as_a_kill(world: World) -> None:
    world.hit()
    world.supervisor.watch()  # the hit is on disk, and the process is not dead yet
    world.lives[0].dies(-9)
    world.supervisor.watch()
    assert world.events() == ["pipeline-started", "pipeline-killed", "pipeline-started"]


def test_faults_met_so_far_are_counted_over_all_lives(world: World) -> None:
    for met in (1, 2):
        world.hit()
        world.supervisor.watch()
        assert world.supervisor.hits_handled == met
        world.lives[-1].dies(-9)
        world.supervisor.watch()
        assert world.supervisor.hits_handled == met


def test_any_number_of_kills_by_failpoints_is_no_reason_to_give_up(world: World) -> None:
    for _ in range(module.MAX_FAILURES + 1):
        world.hit()
        world.supervisor.watch()
        world.lives[-1].dies(-9)
        world.supervisor.watch()
    assert world.events().count("pipeline-killed") == module.MAX_FAILURES + 1


def test_a_kill_of_an_earlier_life_does_not_explain_a_later_death(world: World) -> None:
    world.hit()
    world.lives[0].dies(-9)
    world.supervisor.watch()
    world.lives[1].log.write_text("stopped: of an earlier life\n")
    world.lives[1].dies(-11)
    world.supervisor.watch()
    failed = world.told()[-2]
    assert (failed["event"], failed["exit_code"]) == ("pipeline-failed", -11)


def test_last_words_are_those_of_the_life_that_died(world: World) -> None:
    world.lives[0].log.write_text("stopped: the first\n")
    world.lives[0].dies(1)
    world.supervisor.watch()
    world.lives[1].log.write_text("stopped: the first\nsomething else\n")
    world.lives[1].dies(-11)
    world.supervisor.watch()
    assert [line["why"] for line in world.told() if "why" in line] == ["stopped: the first", "something else"]


def test_a_pipeline_that_dies_unasked_again_and_again_is_given_up(world: World) -> None:
    with pytest.raises(UserError, match="4 times in a row"):
        for _ in range(module.MAX_FAILURES):
            world.lives[-1].dies(-11)
            world.supervisor.watch()


@pytest.mark.parametrize("code", [-9, -11])
def test_a_death_just_before_the_stop_is_noted(world: World, code: int) -> None:
    if code == -9:
        world.hit()
    world.lives[0].dies(code)
    world.supervisor.stop()
    assert world.events()[1:] == ["pipeline-killed" if code == -9 else "pipeline-failed"]


def test_a_kill_that_comes_while_a_nemesis_ends_the_pipeline_is_noted_as_a_kill_and_brought_back_once(
    world: World,
) -> None:
    world.hit("end")
    world.supervisor.watch()
    world.hit(t_us=6)
    world.lives[0].dies(-9)
    world.supervisor.watch()
    assert world.events()[1:] == ["nemesis-idle", "nemesis-over", "pipeline-killed", "pipeline-started"]
    assert len(world.lives) == 2


def test_two_faults_that_both_start_a_pipeline_leave_one(world: World) -> None:
    world.hit("end")
    world.supervisor.watch()
    world.hit("outage", 0.0, t_us=6)
    for _ in range(3):
        world.supervisor.watch()
    assert ([life.alive for life in world.lives], world.supervisor.acting) == ([False, True], False)


def test_a_failpoint_hit_while_the_pipeline_ends_is_noted(world: World) -> None:
    world.lives[0].at_stop = world.hit
    world.supervisor.stop()
    assert world.events()[1:] == ["pipeline-killed"]


def test_a_stopped_pipeline_is_continued_once(world: World) -> None:
    world.hit("stop", 0.0)
    world.supervisor.watch()
    world.supervisor.watch()
    assert (world.lives[0].thawed, world.events()[1:]) == (1, ["pipeline-continued", "nemesis-over"])


def test_an_act_that_is_cut_short_is_not_noted_as_over(world: World) -> None:
    world.hit("stop", 3600.0)
    world.supervisor.watch()
    world.supervisor.stop()
    world.hit("stop", 0.0)  # after the last look
    assert (world.told()[0]["tells_over"], "nemesis-over" in world.events()) == (True, False)


def test_no_nemesis_acts_and_nobody_overtakes_it_before_the_pipeline_stands_still(world: World) -> None:
    world.runs()
    world.supervisor.begin_random_kills()
    world.supervisor._kill_at = 0.0
    world.lives[0].still = False
    world.hit("stop", 0.0)
    world.supervisor.watch()
    assert (world.lives[0].thawed, world.events()[1:], world.supervisor.hits_handled) == (0, [], 0)
    assert (world.supervisor.acting, world.supervisor.random_kills_left) == (True, 1)
    world.lives[0].still = True
    world.supervisor.watch()
    assert (world.lives[0].thawed, world.events()[1], world.supervisor.hits_handled) == (1, "pipeline-continued", 1)


def test_a_nemesis_whose_pipeline_died_before_it_stood_still_does_nothing_and_says_so(world: World) -> None:
    world.lives[0].still = False
    world.hit("outage", 5.0)
    world.lives[0].dies(-9)
    world.supervisor.watch()
    assert (world.events().count("nemesis-idle"), world.supervisor.acting, len(world.lives)) == (1, False, 2)


def test_a_hit_that_comes_with_a_random_kill_is_not_passed_over_and_strikes_no_later_life(world: World) -> None:
    world.lives[0].at_kill = lambda: world.hit("outage", 5.0)
    kill_at_random(world)
    world.supervisor.watch()
    assert (world.events().count("nemesis-idle"), world.supervisor.acting, world.supervisor.hits_handled) == (
        1,
        False,
        1,
    )
    assert (len(world.lives), world.lives[1].alive) == (2, True)


def test_a_death_that_a_nemesis_has_noted_is_not_told_again_when_its_act_is_cut_short(world: World) -> None:
    world.hit("outage", 3600.0)
    world.supervisor.watch()
    world.supervisor.end_acts()
    world.supervisor.watch()
    assert world.events()[1:] == ["pipeline-killed", "pipeline-started"]


def left(world: World) -> Pretended:
    """The first life, after it was stopped in batch 6 and succeeded."""
    world.commits(5)
    world.hit("zombie")
    time.sleep(0.001)  # the clock of the timeline counts microseconds
    world.supervisor.watch()
    assert world.events()[1:] == ["zombie-left", "pipeline-started"]
    return world.lives[0]


def test_a_zombie_is_continued_when_its_successor_has_done_the_batch(world: World) -> None:
    zombie = left(world)
    for batch, thawed in ((5, 0), (6, 1), (7, 1)):
        world.commits(batch)
        world.supervisor.watch()
        assert (zombie.thawed, world.supervisor.acting) == (thawed, True)
    assert world.lives[1].thawed == 0


def test_the_end_of_a_zombie_and_its_words_are_noted_and_its_successor_goes_on(world: World) -> None:
    zombie = left(world)
    zombie.log.write_text("stopped: of before\n")
    world.commits(6)
    world.supervisor.watch()
    with zombie.log.open("a") as log:
        log.write("noise\nstopped: another driver\n")
    zombie.dies(3)
    world.supervisor.watch()
    assert world.told()[-2] | {"t_us": 0} == {
        "t_us": 0, "hit_us": 5, "event": "zombie-ended", "exit_code": 3, "why": "stopped: another driver"
    }  # fmt: skip
    assert (world.told()[-1]["event"], world.told()[-1]["hit_us"]) == ("nemesis-over", 5)
    assert (world.supervisor.acting, world.lives[1].alive, world.supervisor.restarts) == (False, True, 1)
    assert zombie.session_killed  # its JVM and its workers may outlive it


def test_a_zombies_successor_may_become_one_too_and_each_is_continued_and_ended(world: World) -> None:
    left(world)
    world.hit("zombie")
    time.sleep(0.001)
    world.supervisor.watch()
    assert world.events().count("zombie-left") == 2
    world.commits(6)
    world.supervisor.watch()
    assert [life.thawed for life in world.lives] == [1, 1, 0]
    world.supervisor.stop()
    assert [life.alive for life in world.lives[:2]] == [False, False]


@pytest.mark.parametrize(("batch", "said"), [(5, "zombie-never-continued"), (6, "zombie-outlived")])
def test_a_zombie_that_does_not_end_is_ended_with_the_run_and_told(world: World, batch: int, said: str) -> None:
    zombie = left(world)
    world.commits(batch)
    world.supervisor.watch()
    world.supervisor.stop()
    assert (zombie.alive, said in world.events()) == (False, True)


def test_nothing_of_a_killed_life_is_left_in_the_record(world: World) -> None:
    (world.folder / "tmp-999999999").mkdir()
    world.supervisor.__exit__(None, None, None)
    assert not list(world.folder.glob("tmp-*"))


def test_a_life_that_is_still_there_is_killed_when_another_takes_its_place_unless_it_is_to_live_beside(
    world: World,
) -> None:
    world.supervisor.start_successor()
    world.supervisor.start_successor(keep_predecessor=True)
    assert [life.alive for life in world.lives] == [False, True, True]


def kill_at_random(world: World) -> dict[str, Any]:
    world.runs()
    world.supervisor.begin_random_kills()
    world.supervisor._kill_at = 0.0
    world.supervisor.watch()
    return world.told()[-2]


def test_random_kills_come_at_times_that_are_drawn_anew_and_not_at_once(world: World) -> None:
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


def test_a_random_kill_says_which_step_its_own_life_passed_last(world: World) -> None:
    world.passes("mid-write", 7)
    assert kill_at_random(world)["landed"] == {"point": "mid-write", "batch": 7}


def test_a_random_kill_before_the_first_step_of_its_life_says_none(world: World) -> None:
    world.passes("mid-write", 7)
    world.lives[0].dies(-11)
    time.sleep(0.001)
    world.supervisor.watch()
    killed = kill_at_random(world)
    assert (killed["event"], killed["landed"]) == ("random-kill", None)


def test_no_random_kill_is_spent_on_a_pipeline_that_is_dead(world: World) -> None:
    world.runs()
    world.supervisor.begin_random_kills()
    world.supervisor._kill_at = 0.0
    world.lives[0].dies(-11)
    world.supervisor.watch()
    assert world.events() == ["pipeline-started", "pipeline-failed", "pipeline-started"]
    assert world.supervisor.random_kills_left == 1


def test_a_pipeline_that_was_stopped_stays_away_until_it_is_started(world: World) -> None:
    world.supervisor.stop()
    assert world.supervisor.child is None
    world.supervisor.start()
    world.supervisor.watch()
    assert world.events() == ["pipeline-started", "pipeline-stopped", "pipeline-started"]
