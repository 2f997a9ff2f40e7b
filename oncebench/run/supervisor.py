"""Starts and restarts the pipeline, kills it at random times, and runs the faults.

Each start of the pipeline is an attempt. When a failpoint has stopped the pipeline, the fault that it names begins
(`oncebench.faults`).

Promise: every start, death and restart is a line of timeline.jsonl. Every fault is undone in all circumstances. No
process of the pipeline is left when the supervisor is closed. Failures, with the pipeline's own last words
(`PipelineEnded`): it ends in a way that no restart mends, or dies MAX_FAILURES times in a row before it runs.

timeline.jsonl has lines {"t_us", "event", ...} with these events and those that the faults note (a nemesis is
a fault, in Jepsen's word):

- pipeline-started
- pipeline-killed: by a failpoint or a fault
- random-kill: `landed` is the failpoint that the attempt passed last, or None. `commit_held`, before an outage: whether
  the kill came while the pipeline committed a transaction
- pipeline-failed: died by itself, also during a fault, with `exit_code` and `why`
- pipeline-continued, pipeline-stopped
- spark-worker-replaced: a failpoint killed a Spark worker of the run's own cluster, and another one is started
- nemesis-over: a fault ended by itself; it is missing if the end of the run ended the fault
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from oncebench.delivery.failpoints import stops_attempt
from oncebench.errors import ExitCode, UserError
from oncebench.faults.catalogue import FAULTS
from oncebench.faults.context import FaultContext
from oncebench.faults.link import commit_held
from oncebench.home import HOME
from oncebench.lab.engine import REFUSED, SPARK, Engine
from oncebench.processes import child as process
from oncebench.processes.child import Child
from oncebench.record.json_lines import AllLines, LineWriter, read_lines
from pipeline.config import PipelineConfig

if TYPE_CHECKING:  # it imports Spark
    from oncebench.servers.spark_cluster import SparkCluster

# Unrequested deaths in a row after which no restart will help. All but the first came before the query ran. A pipeline
# that runs and dies repeatedly is a finding and no error: its run stalls.
MAX_FAILURES = 4
# A healthy driver stops between two batches; longer than the longest batch of a slow machine.
STOP_LIMIT_S = 30.0
# Mean time from "running" to a random kill, at least. The first batch of a restarted pipeline, the replay, takes 3 to
# 5 s. So about half of the kills hit a replay, the others any step of the batches after it, and the run makes progress.
RANDOM_KILL_MEAN_S = 6.0
_ENDED = object()  # of a fault's generator


class PipelineEnded(UserError):
    """The pipeline ended and is not started again; the message has its own last words."""


class Supervisor:
    """Keeps one pipeline running.

    Args:
        config: of the pipeline; `config.record` is the run folder.
        environment: of the pipeline process.
        random_kills: number of SIGKILLs at random times.
        seed: of the random times and of the faults' random choices.
        servers: the servers that the suite started, by name; faults may break these.
        engine: starts the attempts.
        outage_s: seconds between a random kill and the restart; see `Cell.outage_s`.
        cluster: the Spark cluster that the run has started for the pipeline, if any.
        interrupted: whether the run was interrupted.
    """

    def __init__(
        self,
        config: PipelineConfig,
        environment: dict[str, str],
        random_kills: int,
        seed: int,
        servers: Mapping[str, Any] | None = None,
        engine: Engine = SPARK,
        outage_s: float = 0.0,
        cluster: SparkCluster | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._engine, self._outage_s, self._cluster, self._interrupted = engine, outage_s, cluster, interrupted
        self._restart_at: float | None = None
        self._config = replace(config, trace=config.trace or random_kills > 0)
        self._folder = config.record
        self._environment = environment
        self._seed = seed
        self._servers = servers or {}
        self._random = random.Random(seed)
        self._kills_left = random_kills
        self._kill_at: float | None = None
        self._kills_begun = False
        self._hit_lines = AllLines(self._folder / "hits.jsonl")
        self._progress_lines = AllLines(self._folder / "progress.jsonl")
        self._hits_handled = 0
        self._hits_before = 0  # the newest attempt
        self._log_before = self._started_us = 0
        self._exit_recorded = False  # of the newest attempt, here or by a fault
        self._failures = 0
        self._death: str | None = None
        self._timeline = LineWriter(self._folder / "timeline.jsonl")
        self._child: Child | None = None
        self._active: list[tuple[FaultContext, Generator[None]]] = []
        self.kept_stopped: set[int] = set()  # see `PipelineControl`
        self.restarts = 0

    @property
    def child(self) -> Child | None:
        """The newest attempt; None before the start and after a stop."""
        return self._child

    def note(self, event: str, **fields: Any) -> None:
        """Appends a line to the timeline."""
        self._timeline.append({"t_us": _now_us(), "event": event, **fields})
        self._exit_recorded = self._exit_recorded or event in ("pipeline-killed", "pipeline-failed")

    def start(self, config: PipelineConfig | None = None) -> None:
        """Starts an attempt, with `config` instead of the run's configuration if given."""
        command = self._engine.start(config or self._config)
        log = self._folder / "logs" / "pipeline.log"
        self._hits_before = len(self._hit_lines.read())
        self._log_before = log.stat().st_size if log.exists() else 0
        self._started_us = _now_us()
        self._exit_recorded = False
        self._child = process.start("the pipeline", command, log, env=self._environment, cwd=HOME)
        self._running_before = self._times_running()
        self.note("pipeline-started", pid=self._child.pid, tells_over=True)  # `nemesis-over` events will follow

    @property
    def random_kills_left(self) -> int:
        """The number of random kills still to come."""
        return self._kills_left

    @property
    def hits_handled(self) -> int:
        """The number of failpoint hits whose fault has begun or was passed over."""
        return self._hits_handled

    @property
    def fault_active(self) -> bool:
        """Whether a fault is active or about to begin.

        Then a server may be down, or an older driver may still run.
        """
        return bool(self._active) or self._restart_at is not None or self._hits_handled < len(self._hit_lines.read())

    @property
    def server_down(self) -> bool:
        """Whether a fault keeps a server down. The server comes back only if `watch` is called."""
        return any(
            context.away or (context.held and FAULTS[context.hit["action"]].breaks) for context, _ in self._active
        )

    def begin_random_kills(self) -> None:
        """Allows random kills from now on. Before the load they would only lengthen the start-up."""
        self._kills_begun = True

    def running(self) -> bool:
        """Whether the query of the newest attempt runs."""
        return self._times_running() > self._running_before

    @property
    def starting(self) -> bool:
        """Whether the newest attempt is alive and its query does not run yet."""
        return self._child is not None and self._child.alive and not self.running()

    def watch(self) -> None:
        """Advances each fault, kills at random, and restarts a dead pipeline; call this often.

        Raises:
            PipelineEnded: see the module.
        """
        assert self._child is not None, "start() comes first"
        self._begin_faults(self._child)
        self._active = [(context, fault) for context, fault in self._active if not _has_ended(context, fault)]
        if any(context.held for context, _ in self._active):
            return
        if self._restart_at is not None:
            if time.monotonic() >= self._restart_at:
                self._restart_at = None
                self.start_successor()
        elif not self._child.alive:
            self._restart()
        elif self._kills_begun and self._kills_left and not self.fault_active and not self._killed():
            self._kill_at_random(time.monotonic())

    def _begin_faults(self, child: Child) -> None:
        """Begins each fault whose hit is on disk and whose process stands still, or the fault loses its SIGCONT."""
        for hit in self._hit_lines.read()[self._hits_handled :]:
            inject, place = FAULTS[hit["action"]].inject, self._stopped_session(child, hit)
            if inject is not None and place is not None and not place.stands_still(hit["pid"]):
                return
            self._hits_handled += 1
            if inject is not None:
                context = FaultContext(self, child, hit, self._config, self._servers, self._seed, self._cluster)
                if place is not None:
                    context.freeze()
                    self._active.append((context, inject(context, hit["seconds"])))
                else:
                    if self._cluster is not None and (worker := self._cluster.worker(hit["session"])) is not None:
                        worker.thaw()  # it stands still although its driver has died
                    context.idle("the pipeline, or its Spark worker, died before the fault began")
            elif self._cluster is not None and self._cluster.replace_worker(hit["session"]):
                self.note("spark-worker-replaced", hit_us=hit["t_us"])

    def _stopped_session(self, child: Child, hit: Mapping[str, Any]) -> Child | None:
        """Returns what a failpoint has stopped: the attempt, or a Spark worker. None if it has died."""
        if hit["life"] != child.pid or not child.alive:
            return None
        if stops_attempt(hit):
            return child
        return None if self._cluster is None else self._cluster.worker(hit["session"])

    def stop(self) -> None:
        """Ends the pipeline between two batches, or kills it after STOP_LIMIT_S; no restart.

        A death before the stop is recorded as a death, and so is a kill by a failpoint during the stop.
        """
        self.end_faults()
        if self._child is None:
            return
        if not self._child.alive:
            self.record_exit()
        else:
            for session in (self._child, *(self._cluster.workers if self._cluster is not None else ())):
                session.thaw()
            self._child.stop_gently(STOP_LIMIT_S)
            killed = self._killed(or_worker=self._child.returncode != 0)
            self.note("pipeline-killed" if killed else "pipeline-stopped")
        self._child = None

    def _kill_at_random(self, now: float) -> None:
        if self._kill_at is None:
            if self.running():
                # A start takes about 6 s. Where it takes longer, the replay does too.
                mean_s = max(RANDOM_KILL_MEAN_S, (_now_us() - self._started_us) / 1e6)
                self._kill_at = now + self._random.expovariate(1 / mean_s)
        elif now >= self._kill_at:
            self._kill_at, child = None, self._child
            assert child is not None, "start() comes first"
            given_up = lambda: self._interrupted() or not child.alive  # noqa: E731
            with commit_held(self._servers, self._config, self._outage_s, given_up) as held:
                if held is None:
                    return  # and the next look records a death
                self._kills_left, killed_us = self._kills_left - 1, _now_us()
                child.kill_session()
                if self._outage_s and self._cluster is not None:  # a living executor would send the commit again
                    self._cluster.kill_executors()
            self.note("random-kill", t_us=killed_us, landed=self._last_failpoint(), **held)
            if self._outage_s:
                self._exit_recorded = True
                self._restart_at = time.monotonic() + self._outage_s
            else:
                self.start_successor()

    def end_faults(self) -> None:
        """Ends and undoes the active faults, the newest first.

        A pipeline that is stopped for one of them continues.
        If undoing one fault fails, the others are still undone; then the error is raised.
        """
        with ExitStack() as stack:
            for context, fault in self._active:
                stack.callback(_continue, context)
                stack.callback(fault.close)
            self._active = []

    def hits(self) -> tuple[dict[str, Any], ...]:
        """Failpoints that the newest attempt has hit."""
        return self._hit_lines.read()[self._hits_before :]

    def batches(self) -> list[dict[str, Any]]:
        """Progress lines of the batches that the newest attempt has committed."""
        found = [line for line in self._progress_lines.read() if line["kind"] == "batch" and not line.get("recovered")]
        return [line for line in found if line["t_us"] > self._started_us]

    def _last_failpoint(self) -> dict[str, Any] | None:
        """The failpoint that the newest attempt passed last, if any."""
        trace = read_lines(self._folder / "trace.jsonl").items
        if not trace or trace[-1]["t_us"] < self._started_us:
            return None
        return {name: trace[-1][name] for name in ("point", "batch")}

    def _killed(self, or_worker: bool = False) -> bool:
        """Whether a failpoint has killed the newest attempt, or, if `or_worker`, a Spark worker of it.

        A failpoint writes its hit to disk before it kills, so the hit is there at the death.
        """
        return any(hit["action"] == "kill" and (or_worker or stops_attempt(hit)) for hit in self.hits())

    def record_exit(self) -> tuple[int | None, str] | None:
        """Records the exit of the newest attempt, once, and kills its remaining processes.

        Returns the exit code and the last message of an unrequested death, else None.
        """
        assert self._child is not None, "start() comes first"
        self._child.kill_session()
        if self._exit_recorded:
            return None
        if self._killed():
            self.note("pipeline-killed")
            return None
        code, why = self._child.returncode, self.last_words()
        self._death = why
        self.note("pipeline-failed", exit_code=code, why=why)
        return code, why

    def _restart(self) -> None:
        assert self._child is not None, "start() comes first"
        unrequested = self.record_exit()
        if unrequested is None:
            self._failures = 0
            return self.start_successor()
        code, why = unrequested
        if code == REFUSED:
            raise PipelineEnded(f"the pipeline {why}", exit_code=ExitCode.ERROR)
        self._failures = self._failures + 1 if self._times_running() == self._running_before else 1
        if self._failures >= MAX_FAILURES:
            raise PipelineEnded(
                f"the pipeline died {self._failures} times in a row: {why}. See {self._child.log}",
                exit_code=ExitCode.ERROR,
            )
        return self.start_successor()

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.kill_session()

    def start_successor(self, config: PipelineConfig | None = None, keep_predecessor: bool = False) -> None:
        """Starts another attempt.

        Args:
            config: replaces the configuration of the run.
            keep_predecessor: lets the previous attempt continue, and the caller ends it. Otherwise it is killed here.
        """
        if not keep_predecessor:
            self._end_child()
        self.restarts += 1
        self.start(config)

    def last_words(self) -> str:
        """Returns the final message of the newest attempt, or the last line of its log."""
        assert self._child is not None, "start() comes first"
        own = self._child.log.read_bytes()[self._log_before :]
        lines = own.decode("utf-8", errors="replace").splitlines()
        messages = [line for line in lines if line.startswith(("refused to start", "stopped:"))]
        return (messages or [line for line in lines if line.strip()] or ["it left no log"])[-1]

    def death(self) -> str | None:
        """Returns the last words of the newest attempt that died by itself; None if none did."""
        return self._death

    def signs_of_life(self) -> tuple[int, int]:
        """Returns a value that changes whenever the pipeline writes to its log or reports progress."""
        log = self._folder / "logs" / "pipeline.log"
        return log.stat().st_size if log.exists() else 0, len(self._progress_lines.read())

    def _times_running(self) -> int:
        return sum(line["kind"] == "running" for line in self._progress_lines.read())

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:  # each callback runs, even if another one fails
            stack.callback(self._timeline.close)
            stack.callback(self._engine.sweep, self._folder)
            stack.callback(self._end_child)
            self.end_faults()


def _continue(context: FaultContext) -> None:
    """Continues a pipeline whose fault ended without continuing it.

    If the fault continued the pipeline, the pipeline may now be stopped for the next fault, and stays stopped.
    """
    if context.standing:
        context.thaw()


def _has_ended(context: FaultContext, fault: Generator[None]) -> bool:
    """Advances a fault until it waits again; returns whether it has ended, which is noted."""
    if next(fault, _ENDED) is not _ENDED:
        return False
    context.note("nemesis-over")
    return True


def _now_us() -> int:
    return time.time_ns() // 1000
