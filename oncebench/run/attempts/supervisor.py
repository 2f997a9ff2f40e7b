"""Starts and restarts the pipeline, and lets faults and random kills act on it.

Each start of the pipeline is an attempt. When a failpoint has stopped the pipeline, the fault that it names begins
(`oncebench.run.attempts.active_faults`).

Promise: every start, death and restart is a line of timeline.jsonl (`oncebench.record.events`). Every fault is undone
in all circumstances. No process of the pipeline is left when the supervisor is closed. Failures, with the pipeline's
own last words (`PipelineEnded`): it ends in a way that no restart mends, or dies MAX_FAILURES times in a row before it
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from oncebench.delivery.errors import NO_RESTART_HELPS
from oncebench.errors import ExitCode, UserError
from oncebench.home import HOME
from oncebench.lab.engine import SPARK, Engine
from oncebench.processes import child as process
from oncebench.processes.child import Child
from oncebench.processes.language import in_english
from oncebench.record import events
from oncebench.record.json_lines import LineWriter
from oncebench.run.attempts.active_faults import ActiveFaults
from oncebench.run.attempts.attempt import Attempt, AttemptFiles
from oncebench.run.attempts.random_kills import RandomKills, Work
from oncebench.sinks.reader import now_us
from pipeline.config import PipelineConfig

if TYPE_CHECKING:  # it imports Spark
    from oncebench.servers.spark_cluster import SparkCluster

# Unrequested deaths in a row after which no restart will help. All but the first came before the query ran. A pipeline
# that runs and dies repeatedly is a finding and no error: its run stalls.
MAX_FAILURES = 4
# A healthy driver stops between two batches; longer than the longest batch of a slow machine.
STOP_LIMIT_S = 30.0


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
        self._engine, self._cluster, self._interrupted = engine, cluster, interrupted
        self._config = replace(config, trace=config.trace or random_kills > 0)
        self._folder = config.record
        self._environment = environment
        self._servers = servers or {}
        self._random_kills = RandomKills(random_kills, seed, outage_s)
        self._files = AttemptFiles(self._folder)
        self._failures = 0
        self._death: str | None = None
        self._timeline = LineWriter(self._folder / "timeline.jsonl")
        self._attempt: Attempt | None = None
        self._faults = ActiveFaults(self, self._config, self._servers, seed, cluster)
        self.kept_stopped: set[int] = set()  # see `PipelineControl`
        self.restarts = 0

    @property
    def child(self) -> Child | None:
        """The newest attempt; None before the start and after a stop."""
        return None if self._attempt is None else self._attempt.child

    @property
    def _newest(self) -> Attempt:
        assert self._attempt is not None, "start() comes first"
        return self._attempt

    def note(self, event: str, **fields: Any) -> None:
        """Appends a line to the timeline."""
        self._timeline.append({"t_us": now_us(), "event": event, **fields})

    def start(self, config: PipelineConfig | None = None) -> None:
        """Starts an attempt, with `config` instead of the run's configuration if given."""
        command = self._engine.start(config or self._config)
        before = self._files.mark()
        # Faults look for the texts of errors in its log.
        environment = in_english(self._environment)
        child = process.start("the pipeline", command, self._files.log, env=environment, cwd=HOME)
        self._attempt = Attempt(child, self._files, before)
        self.note(events.PIPELINE_STARTED, pid=child.pid, tells_over=True)

    @property
    def random_kills_left(self) -> int:
        """The number of random kills still to come."""
        return self._random_kills.left

    @property
    def hits_handled(self) -> int:
        """The number of failpoint hits whose fault has begun or was passed over."""
        return self._faults.handled

    @property
    def fault_active(self) -> bool:
        """Whether a fault is active or about to begin.

        Then a server may be down, or an older driver may still run.
        """
        return bool(self._faults) or self._random_kills.outage or self.hits_handled < len(self._files.hits())

    @property
    def server_down(self) -> bool:
        """Whether a fault keeps a server down. The server comes back only if `watch` is called."""
        return self._faults.server_down

    def begin_random_kills(self, work: Work) -> None:
        """Allows random kills from now on, while there is work.

        Before the load they would only lengthen the start.
        """
        self._random_kills.begin(work)

    def hasten_random_kill(self) -> None:
        """Makes the next random kill due at once, if one is left.

        Call it when the pipeline has read everything.
        """
        if self._newest.child.alive:  # else the kill would hit the next attempt while it starts
            self._random_kills.hasten()

    def running(self) -> bool:
        """Whether the query of the newest attempt runs."""
        return self._attempt is not None and self._attempt.running

    @property
    def starting(self) -> bool:
        """Whether the newest attempt is alive and its query does not run yet."""
        return self._attempt is not None and self._attempt.starting

    def watch(self) -> None:
        """Advances each fault, kills at random, and restarts a dead pipeline; call this often.

        Raises:
            PipelineEnded: see the module.
        """
        self._faults.begin(self._newest.child, self._files.hits())
        self._faults.advance()
        if self._faults.held:
            return
        attempt = self._newest  # a fault may have started it just before
        if self._random_kills.outage:
            if self._random_kills.outage_ends():
                self.start_successor()
        elif not attempt.child.alive:
            self._restart(attempt)
        elif not self.fault_active and not attempt.killed() and self._random_kills.due(attempt):
            self._kill_at_random(attempt)

    def stop(self) -> None:
        """Ends the pipeline between two batches, or kills it after STOP_LIMIT_S; no restart.

        A death before the stop is recorded as a death, and so is a kill by a failpoint during the stop.
        """
        self.end_faults()
        if self._attempt is None:
            return
        child = self._attempt.child
        if not child.alive:
            self.record_exit()
        else:
            for session in (child, *(self._cluster.workers if self._cluster is not None else ())):
                session.thaw()
            child.stop_gently(STOP_LIMIT_S)
            killed = self._attempt.killed(or_worker=child.returncode != 0)
            self.note(events.PIPELINE_KILLED if killed else events.PIPELINE_STOPPED)
        self._attempt = None

    def _kill_at_random(self, attempt: Attempt) -> None:
        fields = self._random_kills.kill(attempt, self._config, self._servers, self._cluster, self._interrupted)
        if fields is None:
            return  # the next look records a death, if there is one
        self.note(events.RANDOM_KILL, **fields)
        attempt.exit_recorded = True
        if not self._random_kills.outage:
            self.start_successor()

    def end_faults(self) -> None:
        """Ends and undoes the active faults, the newest first; see `ActiveFaults.end`."""
        self._faults.end()

    def hits(self) -> Sequence[dict[str, Any]]:
        """Failpoints that the newest attempt has hit."""
        return self._newest.hits()

    def batches(self) -> Sequence[dict[str, Any]]:
        """Progress lines of the batches that the newest attempt has committed."""
        return self._newest.batches()

    def record_kill(self, **fields: Any) -> None:
        """Records that a fault has killed the newest attempt."""
        self._newest.exit_recorded = True
        self.note(events.PIPELINE_KILLED, **fields)

    def record_exit(self) -> tuple[int | None, str] | None:
        """Records the exit of the newest attempt, once, and kills its remaining processes.

        Returns the exit code and the last message of an unrequested death, else None.
        """
        attempt = self._newest
        attempt.child.kill_session()
        if attempt.exit_recorded:
            return None
        if attempt.killed():
            self.record_kill()
            return None
        attempt.exit_recorded = True
        code, why = attempt.child.returncode, attempt.last_words()
        self._death = why
        self.note(events.PIPELINE_FAILED, exit_code=code, why=why)
        return code, why

    def _restart(self, attempt: Attempt) -> None:
        unrequested = self.record_exit()
        if unrequested is None:
            self._failures = 0
            return self.start_successor()
        code, why = unrequested
        if code == NO_RESTART_HELPS:
            raise PipelineEnded(f"the pipeline {why}", exit_code=ExitCode.ERROR)
        self._failures = 1 if attempt.running else self._failures + 1
        if self._failures >= MAX_FAILURES:
            raise PipelineEnded(
                f"the pipeline died {self._failures} times in a row: {why}. See {attempt.child.log}",
                exit_code=ExitCode.ERROR,
            )
        return self.start_successor()

    def _end_child(self) -> None:
        if self._attempt is not None:
            self._attempt.child.kill_session()

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
        return self._newest.last_words()

    def death(self) -> str | None:
        """Returns the last words of the newest attempt that died by itself; None if none did."""
        return self._death

    def signs_of_life(self) -> tuple[int, int]:
        """Returns a value that changes whenever the pipeline writes to its log or reports progress."""
        return self._files.log_bytes(), len(self._files.progress())

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
