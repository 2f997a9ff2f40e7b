"""Kills, stops or replaces the pipeline, one of its workers or one of its executors.

Promise: a process that a fault stopped or started has ended or runs again when the fault ends.

The action `kill` is not here: the pipeline kills itself, exactly at the failpoint.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace

import psutil

from oncebench.delivery.errors import REFUSED
from oncebench.faults.context import OVERTAKEN, FaultContext, pausing, waiting
from oncebench.processes.child import messages_in
from oncebench.record import events
from oncebench.servers.spark_executors import executors_among

# How often a crash loop kills the pipeline before the pipeline may start completely.
LOOP = 5
# A start takes about 6 s and its first batch a little longer, so kills land before, during and after the start. On a
# cluster the executors start too, and the first batch after a kill came 20 to 30 s later.
LOOP_MAX_S, CLUSTER_LOOP_MAX_S = 8.0, 30.0


def stop(context: FaultContext, seconds: float) -> Generator[None]:
    """Keeps the whole pipeline stopped for `seconds`, as a long garbage collection would."""
    try:
        yield from pausing(seconds)
    finally:
        context.resume_pipeline()


def end(context: FaultContext, _seconds: float) -> Generator[None]:
    """Stops the pipeline cleanly (SIGTERM) and starts it again."""
    with context.without_restarts():
        context.child.send(signal.SIGTERM)
        context.thaw()
        yield from waiting(lambda: not context.child.alive)
        context.child.kill_session()
        clean = context.child.returncode == 0
        if context.control.child is not context.child or (not clean and context.later_hits()):
            context.idle(OVERTAKEN)  # that fault records the exit and starts the next attempt
            return
        if clean:
            context.note(events.PIPELINE_STOPPED, exit_code=context.child.returncode)
        else:
            context.idle_after_failure("the pipeline received SIGTERM")
        context.control.start_successor()


def outage(context: FaultContext, seconds: float) -> Generator[None]:
    """Kills the pipeline and starts it again `seconds` later."""
    with context.without_restarts():
        context.kill_pipeline()
        yield from pausing(seconds)
        context.control.start_successor()


def crash_loop(context: FaultContext, _seconds: float) -> Generator[None]:
    """Kills the pipeline, then LOOP more times during or soon after its start.

    An attempt that has died by itself is not killed.
    """
    drawn = random.Random(f"{context.seed} {context.batch}")
    longest_s = LOOP_MAX_S if context.cluster is None else CLUSTER_LOOP_MAX_S
    with context.without_restarts():
        context.kill_pipeline()
        for _ in range(LOOP):
            context.control.start_successor()
            yield from pausing(drawn.uniform(0.0, longest_s))
            context.kill_pipeline()
        context.control.start_successor()


def kill_worker(context: FaultContext, _seconds: float) -> Generator[None]:
    """Kills only the Python worker that passes the point."""
    if (pid := _worker(context)) is not None:
        os.kill(pid, signal.SIGKILL)
        context.note(events.WORKER_KILLED, pid=pid)
    context.resume_pipeline()
    yield


def stop_worker(context: FaultContext, seconds: float) -> Generator[None]:
    """Stops only the Python worker that passes the point, for `seconds`."""
    yield from _stop_process(context, _worker(context), seconds, events.WORKER_STOPPED, events.WORKER_CONTINUED)


def kill_executor(context: FaultContext, _seconds: float) -> Generator[None]:
    """Kills the JVM of one executor (see `_executor`); its workers notice it."""
    if (pid := _executor(context)) is not None:
        os.kill(pid, signal.SIGKILL)
        context.note(events.EXECUTOR_KILLED, pid=pid)
    context.resume_pipeline()
    yield


def stop_executor(context: FaultContext, seconds: float) -> Generator[None]:
    """Stops one executor's JVM (see `_executor`) for `seconds`. Its Python workers continue."""
    yield from _stop_process(context, _executor(context), seconds, events.EXECUTOR_STOPPED, events.EXECUTOR_CONTINUED)


def _stop_process(
    context: FaultContext, pid: int | None, seconds: float, stopped: str, continued: str
) -> Generator[None]:
    """Continues the pipeline except this process, and the process `seconds` later.

    Args:
        stopped: the event of the first step.
        continued: the event of the second step.
    """
    if pid is None:
        context.resume_pipeline()
        return
    context.control.kept_stopped.add(pid)
    try:
        context.resume_pipeline()
        context.note(stopped, pid=pid)
        yield from pausing(seconds)
    finally:
        context.control.kept_stopped.discard(pid)
        # Harmless if the process, or the whole pipeline, has died meanwhile.
        context.thaw()
        context.note(continued, pid=pid)


def repartition(context: FaultContext, _seconds: float) -> Generator[None]:
    """Kills the pipeline and starts it with one more partition.

    If the new attempt refuses, the pipeline starts again with the old number of partitions. If the attempt ends for
    another reason, the fault counts as idle, because it is unknown whether the attempt would have refused.
    """
    with context.without_restarts():
        context.kill_pipeline()
        context.control.start_successor(replace(context.config, partitions=context.config.partitions + 1))
        yield from waiting(lambda: context.batch_committed() or not context.pipeline_alive())
        if context.batch_committed():
            context.kill_pipeline()
        elif context.later_hits():
            context.idle(OVERTAKEN)
            return
        elif _refuses_partitions(message := context.control.last_words(), context.config.partitions):
            context.note(events.REFUSED, why=message)
        else:
            context.idle_after_failure("the pipeline was started with one more partition")
        context.control.start_successor(context.config)


def zombie(context: FaultContext, _seconds: float) -> Generator[None]:
    """Starts a successor while the pipeline is stopped, and continues the first one later.

    A false alarm of a failure detector has this effect. The first pipeline continues when its successor has committed
    the batch, so the next step of the first pipeline meets a finished batch. The end and the last message of the first
    pipeline are recorded.
    """
    context.note(events.ZOMBIE_LEFT, pid=context.child.pid)
    continued = ended = False
    try:
        context.control.start_successor(keep_predecessor=True)
        yield from waiting(context.batch_committed)
        log_before = context.child.log.stat().st_size
        context.thaw()
        continued = True
        context.note(events.ZOMBIE_CONTINUED)
        yield from waiting(lambda: not context.child.alive)
        context.child.kill_session()  # its JVM and its workers may outlive the driver
        ended = True
        context.note(events.ZOMBIE_ENDED, exit_code=context.child.returncode, why=_last_message(context, log_before))
    finally:
        if not ended:
            context.note(events.ZOMBIE_OUTLIVED if continued else events.ZOMBIE_NEVER_CONTINUED)
            context.child.kill_session()


def _refuses_partitions(message: str, recorded: int) -> bool:
    """Whether this message refuses a number of partitions other than the recorded one."""
    return message.startswith(REFUSED) and f" was made with partitions {recorded}," in message


def _worker(context: FaultContext) -> int | None:
    """The pid of the Python worker that passes the point; idle and None without one."""
    pid = int(context.hit["pid"])
    if pid != context.child.pid and pid in context.members():
        return pid
    context.idle("no worker passed the point")
    return None


def _executor(context: FaultContext) -> int | None:
    """The pid of an executor's JVM; idle and None without executors.

    It is the executor whose worker passes the point, or the first executor if the driver passes the point.
    """
    found = executors_among(context.members())
    own = [executor for executor in found if any(each.pid == context.hit["pid"] for each in _descendants(executor))]
    if found:
        return int((own or found)[0].pid)
    context.idle("the pipeline has no executor on this machine")
    return None


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    with suppress(psutil.Error):
        found += process.children(recursive=True)
    return found


def _last_message(context: FaultContext, log_before: int) -> str:
    # The successor writes to the same log, but prints such a line only when it ends.
    return next(iter(messages_in(context.child.log, log_before)), "it printed no reason")
