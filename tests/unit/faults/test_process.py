"""Faults of processes: attempts, workers and executors, and no other process."""

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
from oncebench.faults import process
from oncebench.lab.spark.master import EXECUTORS, master_for
from oncebench.scenario.cell import Cell
from oncebench.scenario.cell_check import require_possible
from oncebench.servers.spark_executors import EXECUTOR
from tests.unit.faults.fake_pipeline import Attempt, World, run

REFUSED = (
    "refused to start: the checkpoint checkpoint was made with partitions 2, and this start asks for 3. Start with "
    "partitions 2 (with deliver: spark.sql.shuffle.partitions), or take a new checkpoint, sink_id and output."
)


def test_a_refused_repartition_is_undone(world: World) -> None:
    context = world.context("repartition")
    world.words = REFUSED
    run(process.repartition(context, 0.0), world)
    assert [attempt.config and attempt.config.partitions for attempt in world.attempts[1:]] == [3, 2]
    assert "refused" in world.events


def test_a_crash_loop_kills_every_attempt_but_the_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOOP_MAX_S", 0.001)
    run(process.crash_loop(world.context("crash-loop"), 0.0), polls=10**6)
    assert [attempt.alive for attempt in world.attempts] == [False] * (process.LOOP + 1) + [True]


def test_a_clean_stop_is_followed_by_a_start(world: World) -> None:
    run(process.end(world.context("end"), 0.0))
    assert (world.events, [attempt.alive for attempt in world.attempts]) == (["pipeline-stopped"], [False, True])


def test_a_clean_stop_uses_sigterm(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(
        world.attempts[0], "send", lambda number: (sent.append(number), setattr(world.attempts[0], "alive", False))
    )
    run(process.end(world.context("end"), 0.0))
    assert sent == [signal.SIGTERM]


@pytest.mark.parametrize("successor", [False, True])
def test_an_overtaken_clean_stop_is_idle_and_starts_nothing(world: World, successor: bool) -> None:
    if successor:
        world.attempts.append(Attempt(2))
    else:
        world.later = [{"t_us": 5, "action": "end"}, {"t_us": 6, "action": "kill"}]
        world.attempts[0].returncode = -signal.SIGKILL
    lived = len(world.attempts)
    run(process.end(world.context("end"), 0.0))
    assert (world.events, len(world.attempts)) == (["nemesis-idle"], lived)


def test_exit_code_0_is_a_clean_stop_despite_another_hit(world: World) -> None:
    world.later = [{"t_us": 6, "action": "stop"}]
    world.attempts[0].returncode = 0
    run(process.end(world.context("end"), 0.0))
    assert (world.events, len(world.attempts)) == (["pipeline-stopped"], 2)


def test_an_overtaken_repartition_is_idle(world: World) -> None:
    world.later = [{"t_us": 6, "action": "kill"}]
    run(process.repartition(world.context("repartition"), 0.0), world)
    assert (world.events, len(world.attempts)) == (["pipeline-killed", "nemesis-idle"], 2)


def test_a_repartition_that_commits_its_batch_was_not_refused(world: World) -> None:
    injection = process.repartition(world.context("repartition"), 0.0)
    next(injection)
    world.done = [{"batch": 8}]
    world.attempts[-1].dies(1)
    run(injection)
    assert world.events == ["pipeline-killed", "pipeline-failed"]


@pytest.mark.parametrize("words", ["stopped: NoKafka: no broker", "refused to start: no Java", "a line of the log"])
def test_a_repartition_that_fails_for_another_reason_is_idle(world: World, words: str) -> None:
    world.words = words
    injection = process.repartition(world.context("repartition"), 0.0)
    next(injection)
    world.attempts[-1].dies(1)
    run(injection)
    assert world.events == ["pipeline-killed", "pipeline-failed", "nemesis-idle"]
    assert world.whys == [f"the pipeline was started with one more partition, and ended with exit code 1: {words}"]
    assert [attempt.config and attempt.config.partitions for attempt in world.attempts[1:]] == [3, 2]


def test_a_refused_repartition_is_recognised_by_the_journals_message(world: World, tmp_path: Path) -> None:
    two = Identity("id", "kafka", "exactly-once", "two-phase", 2)
    open_journal(tmp_path / "own", two)
    for asked, event in ((replace(two, partitions=3), "refused"), (replace(two, sink_id="other"), "nemesis-idle")):
        with pytest.raises(RefusedStart) as refused:
            open_journal(tmp_path / "own", asked)
        world.words = f"refused to start: {refused.value}"
        run(process.repartition(world.context("repartition"), 0.0), world)
        assert event in world.events
        world.events.clear()


@pytest.mark.parametrize("code", [1, -signal.SIGSEGV])
def test_a_pipeline_that_fails_on_sigterm_was_not_stopped_cleanly(world: World, code: int) -> None:
    world.words = "stopped: QueryDied: of something"
    world.attempts[0].returncode = code
    run(process.end(world.context("end"), 0.0))
    assert world.events == ["pipeline-failed", "nemesis-idle"]
    assert world.whys == [f"the pipeline received SIGTERM, and ended with exit code {code}: {world.words}"]
    assert [attempt.alive for attempt in world.attempts] == [False, True]


def test_a_crash_loop_records_an_attempt_that_died_by_itself_as_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "pausing", lambda _seconds: iter([None]))
    injection = process.crash_loop(world.context("crash-loop"), 0.0)
    for attempt in range(process.LOOP):
        next(injection)
        if attempt == 1:
            world.attempts[-1].dies(1)
    run(injection)
    expected = ["pipeline-killed"] * (process.LOOP + 1)
    expected[2] = "pipeline-failed"
    assert (world.events, len(world.attempts), world.attempts[-1].alive) == (expected, process.LOOP + 2, True)


def test_an_outage_lasts_its_seconds(world: World) -> None:
    injection = process.outage(world.context("outage"), 0.2)
    began = time.monotonic()
    next(injection)
    assert world.events == ["pipeline-killed"]
    run(injection, polls=10**7)
    assert time.monotonic() - began >= 0.2
    assert [attempt.alive for attempt in world.attempts] == [False, True]


def test_a_crash_loop_kills_five_more_times() -> None:
    assert process.LOOP == 5


def test_only_the_worker_that_passes_the_point_is_killed(world: World) -> None:
    workers = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    try:
        context = world.context("kill-worker")
        context.hit = {**context.hit, "pid": workers[0].pid}
        world.attempts[0].others = tuple(worker.pid for worker in workers)
        run(process.kill_worker(context, 0.0))
        assert (workers[0].wait(10), workers[1].poll()) == (-signal.SIGKILL, None)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert world.events == ["worker-killed", "pipeline-continued"]


def test_a_worker_of_another_process_is_not_killed(world: World) -> None:
    run(process.kill_worker(world.context("kill-worker"), 0.0))
    assert world.events == ["nemesis-idle", "pipeline-continued"]


@pytest.fixture
def executors() -> Iterator[list[tuple[subprocess.Popen[str], int]]]:
    """Two processes that look like executors, by pid, each with the pid of its worker."""
    code = "import subprocess as s, sys; p = s.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    command = [sys.executable, "-c", code, EXECUTOR]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [(each, int(each.stdout.readline())) for each in started if each.stdout is not None]
    yield sorted(found, key=lambda each: each[0].pid)
    for each, worker in found:
        os.kill(worker, signal.SIGKILL)
        each.kill()
        each.communicate()


@pytest.mark.parametrize("cut_short", [False, True])
def test_only_the_worker_at_the_point_is_stopped_and_later_continued(world: World, cut_short: bool) -> None:
    context = world.context("stop-worker")
    world.attempts[0].others = (1, 76, 77)
    injection = process.stop_worker(context, 3600.0 if cut_short else 0.001)
    next(injection)
    assert (world.attempts[0].left, context.standing) == ([frozenset({77})], False)
    injection.close() if cut_short else run(injection, polls=10**6)
    assert world.attempts[0].left == [frozenset({77}), frozenset()]
    assert world.events == ["pipeline-continued", "worker-stopped", "worker-continued"]


def test_a_stopped_executor_leaves_its_workers_running(
    world: World, executors: list[tuple[subprocess.Popen[str], int]]
) -> None:
    (first, _), (second, worker) = executors
    context = world.context("stop-executor")
    context.hit = {**context.hit, "pid": worker}
    world.attempts[0].others = (second.pid, os.getpid(), first.pid, worker)
    run(process.stop_executor(context, 0.001), polls=10**6)
    assert world.attempts[0].left == [frozenset({second.pid}), frozenset()]
    assert world.events == ["pipeline-continued", "executor-stopped", "executor-continued"]


@pytest.mark.parametrize("injection", [process.stop_worker, process.stop_executor])
def test_a_stop_without_target_is_idle_and_the_pipeline_continues(world: World, injection: Any) -> None:
    run(injection(world.context("stop"), 3600.0))
    assert (world.events, world.attempts[0].left) == (["nemesis-idle", "pipeline-continued"], [frozenset()])


@pytest.mark.parametrize("passed_by", ["the driver", "the second's worker"])
def test_kill_executor_kills_one_executor_only(
    world: World, executors: list[tuple[subprocess.Popen[str], int]], passed_by: str
) -> None:
    (first, _), (second, worker) = executors
    context = world.context("kill-executor")
    context.hit = {**context.hit, "pid": os.getpid() if passed_by == "the driver" else worker}
    world.attempts[0].others = (second.pid, os.getpid(), first.pid, worker)
    run(process.kill_executor(context, 0.0))
    killed, spared = (first, second) if passed_by == "the driver" else (second, first)
    assert (killed.wait(10), spared.poll()) == (-signal.SIGKILL, None)
    assert (world.events, world.attempts[0].thawed) == (["executor-killed", "pipeline-continued"], 1)


def test_kill_executor_is_idle_without_executors(world: World) -> None:
    run(process.kill_executor(world.context("kill-executor"), 0.0))
    assert (world.events, world.attempts[0].thawed) == (["nemesis-idle", "pipeline-continued"], 1)


def test_only_runs_with_an_executor_fault_get_executors() -> None:
    spark = {"jars": ("a.jar",), "driver_jars": ("b.jar",), "jvm_options": ("-XX:SharedArchiveFile=classes.jsa",)}
    plain = Cell("kafka", "exactly-once", "two-phase", faults=("mid-write:kill",), master="local[3]")
    assert master_for(plain, spark) == {**spark, "master": "local[3]"}
    killing = replace(plain, faults=("mid-write:kill", "mid-write:kill-executor@after=2"))
    assert master_for(killing, spark) == {**spark, "master": EXECUTORS, "jvm_options": ()}
    asked_for = replace(killing, master="local-cluster[3,2,2048]")
    assert master_for(asked_for, spark)["master"] == "local-cluster[3,2,2048]"


def test_executors_of_a_foreign_cluster_are_not_killed() -> None:
    cell = Cell("kafka", "exactly-once", "two-phase", faults=("mid-write:kill-executor",), master="spark://host:7077")
    with pytest.raises(UserError, match="Give --cluster 2 in place of --master spark://host:7077") as refused:
        require_possible([cell])
    assert refused.value.exit_code == 2
    require_possible([replace(cell, master="local[2]")])


def test_a_fault_does_not_continue_what_another_fault_keeps_stopped(world: World) -> None:
    world.attempts[0].others = (1, 76, 77)
    stopped = process.stop_worker(world.context("stop-worker"), 3600.0)
    next(stopped)
    world.context("kill-broker").resume_pipeline()
    assert world.attempts[0].left == [frozenset({77}), frozenset({77})]
    stopped.close()
    assert world.attempts[0].left[-1] == frozenset()
