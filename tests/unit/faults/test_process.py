"""What is done to the pipeline's processes: lives, workers and executors, and to no other process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.journal import Identity, open_journal
from oncebench.errors import UserError
from oncebench.faults import process as lives
from oncebench.run.spark.master import EXECUTORS, placed
from oncebench.scenario.cell import Cell
from oncebench.scenario.fault_check import require_possible
from tests.unit.faults.faults_world import Life, World, run

REFUSED = (
    "refused to start: the checkpoint checkpoint was made with partitions 2, and this start asks for 3. Start with "
    "partitions 2, or take a new checkpoint folder and a new sink_id."
)


def test_a_restart_with_another_number_of_partitions_is_tried_and_taken_back(world: World) -> None:
    stage = world.stage("repartition")
    world.words = REFUSED
    run(lives.repartition(stage, 0.0), world)
    assert [life.config and life.config.partitions for life in world.all[1:]] == [3, 2]
    assert "refused" in world.events


def test_a_crash_loop_kills_every_life_but_the_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "LOOP_MAX_S", 0.001)
    run(lives.crash_loop(world.stage("crash-loop"), 0.0), looks=10**6)
    assert [life.alive for life in world.all] == [False] * (lives.LOOP + 1) + [True]


def test_a_clean_stop_is_followed_by_a_start(world: World) -> None:
    run(lives.end(world.stage("end"), 0.0))
    assert (world.events, [life.alive for life in world.all]) == (["pipeline-stopped"], [False, True])


def test_a_clean_stop_is_asked_for_and_no_kill(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(
        world.all[0], "send", lambda number: (sent.append(number), setattr(world.all[0], "alive", False))
    )
    run(lives.end(world.stage("end"), 0.0))
    assert sent == [signal.SIGTERM]


@pytest.mark.parametrize("successor", [False, True])
def test_a_clean_stop_that_another_fault_came_before_starts_nothing_and_says_so(world: World, successor: bool) -> None:
    if successor:
        world.all.append(Life(2))
    else:
        world.hits = [{"t_us": 5, "action": "end"}, {"t_us": 6, "action": "kill"}]
        world.all[0].returncode = -signal.SIGKILL
    lived = len(world.all)
    run(lives.end(world.stage("end"), 0.0))
    assert (world.events, len(world.all)) == (["nemesis-idle"], lived)


def test_a_pipeline_that_met_another_fault_and_ended_well_was_stopped_cleanly(world: World) -> None:
    world.hits = [{"t_us": 6, "action": "stop"}]
    world.all[0].returncode = 0
    run(lives.end(world.stage("end"), 0.0))
    assert (world.events, len(world.all)) == (["pipeline-stopped"], 2)


def test_a_life_that_another_fault_killed_did_not_refuse_its_partitions(world: World) -> None:
    world.hits = [{"t_us": 6, "action": "kill"}]
    run(lives.repartition(world.stage("repartition"), 0.0), world)
    assert (world.events, len(world.all)) == (["pipeline-killed", "nemesis-idle"], 2)


def test_a_life_that_did_its_batch_on_other_partitions_and_then_died_did_not_refuse_them(world: World) -> None:
    act = lives.repartition(world.stage("repartition"), 0.0)
    next(act)
    world.done = [{"batch": 8}]
    world.all[-1].dies(1)
    run(act)
    assert world.events == ["pipeline-killed", "pipeline-failed"]


@pytest.mark.parametrize("words", ["stopped: NoKafka: no broker", "refused to start: no Java", "a line of the log"])
def test_a_life_on_other_partitions_that_died_of_something_else_has_refused_nothing(world: World, words: str) -> None:
    world.words = words
    act = lives.repartition(world.stage("repartition"), 0.0)
    next(act)
    world.all[-1].dies(1)
    run(act)
    assert world.events == ["pipeline-killed", "pipeline-failed", "nemesis-idle"]
    assert world.whys == [f"the pipeline was started with one partition more, and ended with exit code 1: {words}"]
    assert [life.config and life.config.partitions for life in world.all[1:]] == [3, 2]


def test_the_refusal_of_other_partitions_is_known_by_the_pipelines_own_words(world: World, tmp_path: Path) -> None:
    two = Identity("id", "kafka", "exactly-once", "two-phase", 2)
    open_journal(tmp_path / "own", two)
    for asked, event in ((replace(two, partitions=3), "refused"), (replace(two, sink_id="other"), "nemesis-idle")):
        with pytest.raises(RefusedStart) as refused:
            open_journal(tmp_path / "own", asked)
        world.words = f"refused to start: {refused.value}"
        run(lives.repartition(world.stage("repartition"), 0.0), world)
        assert event in world.events
        world.events.clear()


@pytest.mark.parametrize("code", [1, -signal.SIGSEGV])
def test_a_pipeline_that_fails_when_it_is_asked_to_stop_was_not_stopped_cleanly(world: World, code: int) -> None:
    world.words = "stopped: QueryDied: of something"
    world.all[0].returncode = code
    run(lives.end(world.stage("end"), 0.0))
    assert world.events == ["pipeline-failed", "nemesis-idle"]
    assert world.whys == [f"the pipeline was asked to stop, and ended with exit code {code}: {world.words}"]
    assert [life.alive for life in world.all] == [False, True]


def test_a_life_of_a_crash_loop_that_died_by_itself_is_told_as_that_and_no_kill(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lives, "pausing", lambda _seconds: iter([None]))
    act = lives.crash_loop(world.stage("crash-loop"), 0.0)
    for life in range(lives.LOOP):
        next(act)
        if life == 1:
            world.all[-1].dies(1)
    run(act)
    told = ["pipeline-killed"] * (lives.LOOP + 1)
    told[2] = "pipeline-failed"
    assert (world.events, len(world.all), world.all[-1].alive) == (told, lives.LOOP + 2, True)


def test_an_outage_lasts_as_long_as_was_asked_for(world: World) -> None:
    act = lives.outage(world.stage("outage"), 0.2)
    next(act)
    began = time.monotonic()
    assert world.events == ["pipeline-killed"]
    run(act, looks=10**7)
    assert time.monotonic() - began > 0.15
    assert [life.alive for life in world.all] == [False, True]


def test_a_crash_loop_is_of_five() -> None:
    assert lives.LOOP == 5


def test_the_worker_that_passes_the_point_is_killed_and_nothing_else(world: World) -> None:
    workers = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    try:
        stage = world.stage("kill-worker")
        stage.hit = {**stage.hit, "pid": workers[0].pid}
        world.all[0].others = tuple(worker.pid for worker in workers)
        run(lives.kill_worker(stage, 0.0))
        assert (workers[0].wait(10), workers[1].poll()) == (-signal.SIGKILL, None)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert world.events == ["worker-killed", "pipeline-continued"]


def test_a_worker_that_is_none_of_the_pipelines_is_not_killed(world: World) -> None:
    run(lives.kill_worker(world.stage("kill-worker"), 0.0))
    assert world.events == ["nemesis-idle", "pipeline-continued"]


@pytest.fixture
def executors() -> Iterator[list[tuple[subprocess.Popen[str], int]]]:
    """Two processes that look like executors, and the pid of the worker below each, in the order of their pids."""
    code = "import subprocess as s, sys; p = s.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    command = [sys.executable, "-c", code, lives.EXECUTOR]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [(each, int(each.stdout.readline())) for each in started if each.stdout is not None]
    yield sorted(found, key=lambda each: each[0].pid)
    for each, worker in found:
        os.kill(worker, signal.SIGKILL)
        each.kill()
        each.communicate()


@pytest.mark.parametrize("cut_short", [False, True])
def test_only_the_worker_that_passes_the_point_stands_still_and_all_go_on_also_when_the_run_ends_before(
    world: World, cut_short: bool
) -> None:
    stage = world.stage("stop-worker")
    world.all[0].others = (1, 76, 77)
    acting = lives.stop_worker(stage, 3600.0 if cut_short else 0.001)
    next(acting)
    assert (world.all[0].left, stage.standing) == ([frozenset({77})], False)
    acting.close() if cut_short else run(acting, looks=10**6)
    assert world.all[0].left == [frozenset({77}), frozenset()]
    assert world.events == ["pipeline-continued", "worker-stopped", "worker-continued"]


def test_the_executor_whose_worker_passes_the_point_stands_still_and_its_worker_does_not(
    world: World, executors: list[tuple[subprocess.Popen[str], int]]
) -> None:
    (first, _), (second, worker) = executors
    stage = world.stage("stop-executor")
    stage.hit = {**stage.hit, "pid": worker}
    world.all[0].others = (second.pid, os.getpid(), first.pid, worker)
    run(lives.stop_executor(stage, 0.001), looks=10**6)
    assert world.all[0].left == [frozenset({second.pid}), frozenset()]
    assert world.events == ["pipeline-continued", "executor-stopped", "executor-continued"]


@pytest.mark.parametrize("act", [lives.stop_worker, lives.stop_executor])
def test_where_there_is_nobody_to_stop_the_act_is_idle_and_the_pipeline_goes_on(world: World, act: Any) -> None:
    run(act(world.stage("stop"), 3600.0))
    assert (world.events, world.all[0].left) == (["nemesis-idle", "pipeline-continued"], [frozenset()])


@pytest.mark.parametrize("passed_by", ["the driver", "the second's worker"])
def test_the_executor_whose_worker_passes_the_point_is_killed_or_else_the_first_and_no_other(
    world: World, executors: list[tuple[subprocess.Popen[str], int]], passed_by: str
) -> None:
    (first, _), (second, worker) = executors
    stage = world.stage("kill-executor")
    stage.hit = {**stage.hit, "pid": os.getpid() if passed_by == "the driver" else worker}
    world.all[0].others = (second.pid, os.getpid(), first.pid, worker)
    run(lives.kill_executor(stage, 0.0))
    killed, spared = (first, second) if passed_by == "the driver" else (second, first)
    assert (killed.wait(10), spared.poll()) == (-signal.SIGKILL, None)
    assert (world.events, world.all[0].thawed) == (["executor-killed", "pipeline-continued"], 1)


def test_where_no_executor_is_beside_the_driver_that_is_told_and_the_pipeline_goes_on(world: World) -> None:
    run(lives.kill_executor(world.stage("kill-executor"), 0.0))
    assert (world.events, world.all[0].thawed) == (["nemesis-idle", "pipeline-continued"], 1)


def test_a_run_has_executors_of_its_own_where_a_fault_kills_one_and_nowhere_else() -> None:
    spark = {"jars": ("a.jar",), "driver_jars": ("b.jar",), "jvm_options": ("-XX:SharedArchiveFile=classes.jsa",)}
    plain = Cell("kafka", "exactly-once", "two-phase", faults=("mid-write:kill",), master="local[3]")
    assert placed(plain, spark) == {**spark, "master": "local[3]"}
    killing = replace(plain, faults=("mid-write:kill", "mid-write:kill-executor@after=2"))
    assert placed(killing, spark) == {**spark, "master": EXECUTORS, "jvm_options": ()}
    asked_for = replace(killing, master="local-cluster[3,2,2048]")
    assert placed(asked_for, spark)["master"] == "local-cluster[3,2,2048]"


def test_the_executors_of_somebody_elses_cluster_are_not_killed() -> None:
    cell = Cell("kafka", "exactly-once", "two-phase", faults=("mid-write:kill-executor",), master="spark://host:7077")
    with pytest.raises(UserError, match="the executors of spark://host:7077 are not ours to kill") as refused:
        require_possible([cell])
    assert refused.value.exit_code == 2
    require_possible([replace(cell, faults=("mid-write:kill",)), replace(cell, master="local[2]")])
