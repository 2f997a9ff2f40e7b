"""What is done to the pipeline itself: stopped, ended, killed in part, kept away, succeeded while it lives.

Promise: whatever an act has stopped or started has ended or goes on when the act is over. The `kill` of a failpoint is
not here: the pipeline does that by itself, at the very instruction.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import replace

import psutil

from oncebench.faults.context import OVERTAKEN, Stage, pausing, waiting

# The class that an executor's JVM runs.
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
# Times that a crash loop kills before it lets the pipeline come up.
LOOP = 5
# A start takes some 6 s, its first batch some more: kills land before, in and after the start.
LOOP_MAX_S = 8.0


def stop(stage: Stage, seconds: float) -> Generator[None]:
    """All of it stands still for so long, as in a long garbage collection or on a suspended machine."""
    try:
        yield from pausing(seconds)
    finally:
        stage.go_on()


def end(stage: Stage, _seconds: float) -> Generator[None]:
    """A clean stop: SIGTERM, and another start."""
    with stage.holding():
        stage.child.send(signal.SIGTERM)
        stage.thaw()
        yield from waiting(lambda: not stage.child.alive)
        stage.child.kill_session()
        clean = stage.child.returncode == 0
        if stage.lives.child is not stage.child or (not clean and stage.others()):
            stage.idle(OVERTAKEN)  # its death is noted, and another life started, by whoever does so after that fault
            return
        if clean:
            stage.note("pipeline-stopped", exit_code=stage.child.returncode)
        else:
            stage.failed("the pipeline was asked to stop")
        stage.lives.succeed()


def outage(stage: Stage, seconds: float) -> Generator[None]:
    """Killed, and not started again for so long."""
    with stage.holding():
        stage.kill()
        yield from pausing(seconds)
        stage.lives.succeed()


def crash_loop(stage: Stage, _seconds: float) -> Generator[None]:
    """Killed, and killed again LOOP times while it starts or soon after, unless it has died by itself."""
    drawn = random.Random(f"{stage.seed} {stage.batch}")
    with stage.holding():
        stage.kill()
        for _ in range(LOOP):
            stage.lives.succeed()
            yield from pausing(drawn.uniform(0.0, LOOP_MAX_S))
            stage.kill()
        stage.lives.succeed()


def kill_worker(stage: Stage, _seconds: float) -> Generator[None]:
    """SIGKILL for the Python worker that passes the point, and for nothing else."""
    if (pid := _worker(stage)) is not None:
        os.kill(pid, signal.SIGKILL)
        stage.note("worker-killed", pid=pid)
    stage.go_on()
    yield


def stop_worker(stage: Stage, seconds: float) -> Generator[None]:
    """The Python worker that passes the point stands still for so long, and nothing else does."""
    yield from _stopped(stage, _worker(stage), "worker", seconds)


def kill_executor(stage: Stage, _seconds: float) -> Generator[None]:
    """SIGKILL for the JVM of one executor (`_executor`). Its Python workers find out by themselves."""
    if (pid := _executor(stage)) is not None:
        os.kill(pid, signal.SIGKILL)
        stage.note("executor-killed", pid=pid)
    stage.go_on()
    yield


def stop_executor(stage: Stage, seconds: float) -> Generator[None]:
    """The JVM of one executor (`_executor`) stands still for so long; its Python workers go on."""
    yield from _stopped(stage, _executor(stage), "executor", seconds)


def _stopped(stage: Stage, pid: int | None, told: str, seconds: float) -> Generator[None]:
    """All but this process, which stands still, goes on; that one so many seconds later."""
    stage.go_on(frozenset() if pid is None else frozenset({pid}))
    if pid is None:
        return
    stage.note(f"{told}-stopped", pid=pid)
    try:
        yield from pausing(seconds)
    finally:
        # If it has died meanwhile, or all has, there is nobody to continue; others go on anyway.
        stage.child.thaw()
        stage.note(f"{told}-continued", pid=pid)


def repartition(stage: Stage, _seconds: float) -> Generator[None]:
    """Killed, and started with one partition more; started as it was if that is refused. Of no other death is it known
    whether it would have been: such an act is idle."""
    with stage.holding():
        stage.kill()
        stage.lives.succeed(replace(stage.config, partitions=stage.config.partitions + 1))
        yield from waiting(lambda: stage.done() or not stage.alive())
        if stage.done():
            stage.kill()
        elif stage.others():
            stage.idle(OVERTAKEN)
            return
        elif _refuses_partitions(words := stage.lives.last_words(), stage.config.partitions):
            stage.note("refused", why=words)
        else:
            stage.failed("the pipeline was started with one partition more")
        stage.lives.succeed(stage.config)


def zombie(stage: Stage, _seconds: float) -> Generator[None]:
    """Taken for dead and succeeded; continued when its successor has done the batch, so that its late step meets a
    finished one. Its end and its last words are noted."""
    stage.note("zombie-left", pid=stage.child.pid)
    continued = ended = False
    try:
        stage.lives.succeed(beside=True)
        yield from waiting(stage.done)
        log_before = stage.child.log.stat().st_size
        stage.thaw()
        continued = True
        stage.note("zombie-continued")
        yield from waiting(lambda: not stage.child.alive)
        stage.child.kill_session()  # its JVM and its workers may outlive it
        ended = True
        stage.note("zombie-ended", exit_code=stage.child.returncode, why=_last_words(stage, log_before))
    finally:
        if not ended:
            stage.note("zombie-outlived" if continued else "zombie-never-continued")
            stage.child.kill_session()


def _refuses_partitions(words: str, recorded: int) -> bool:
    """Whether these are the words with which the pipeline refuses another number of partitions than this."""
    return words.startswith("refused to start: ") and f" was made with partitions {recorded}," in words


def _worker(stage: Stage) -> int | None:
    """The pid of the Python worker that passes the point; None, and the act is idle, if none does."""
    pid = int(stage.hit["pid"])
    if pid != stage.child.pid and pid in stage.child.members():
        return pid
    stage.idle("the point was not passed by a worker")
    return None


def _executor(stage: Stage) -> int | None:
    """The pid of the JVM of the executor whose worker passes the point, or, where the driver does, of the first; None,
    and the act is idle, if there is none."""
    found = _executors(stage.child.members())
    own = [executor for executor in found if any(each.pid == stage.hit["pid"] for each in _below(executor))]
    if found:
        return int((own or found)[0].pid)
    stage.idle("the pipeline has no executors of its own")
    return None


def _executors(pids: Iterable[int]) -> list[psutil.Process]:
    """Those of these processes that are executors, in the order of their pids."""
    found = []
    for pid in sorted(pids):
        with suppress(psutil.Error):  # it may have ended since
            process = psutil.Process(pid)
            if EXECUTOR in process.cmdline():
                found.append(process)
    return found


def _below(process: psutil.Process) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    with suppress(psutil.Error):
        found += process.children(recursive=True)
    return found


def _last_words(stage: Stage, log_before: int) -> str:
    with stage.child.log.open("rb") as log:  # its successor writes to the same log, but says this only at its end
        log.seek(log_before)
        lines = log.read().decode("utf-8", errors="replace").splitlines()
    return next((line for line in lines if line.startswith(("refused to start", "stopped:"))), "it said nothing")
