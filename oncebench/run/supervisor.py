"""Starts the pipeline, brings it back after every death, kills it at random, and lets each nemesis act.

Promise: every start, death and restart is a line of timeline.jsonl; when a failpoint has stopped the pipeline, the
nemesis that it names acts (`oncebench.faults`) and is undone in all circumstances; nothing of the pipeline is left
when the supervisor is closed. What can go wrong: the pipeline refuses to start (`UserError` with its own words), or
dies again and again (`UserError` after MAX_FAILURES in a row).

timeline.jsonl: {"t_us", "event", ...} with the events pipeline-started, pipeline-killed (by a failpoint or a nemesis),
random-kill (with `landed`: the failpoint that this life passed last, None if it passed none), pipeline-failed (died
by itself, also under a nemesis, with `exit_code` and `why`), pipeline-continued, pipeline-stopped; nemesis-over (an act
came to its own end, and was not cut short by that of the run); and what the nemeses note.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any

from oncebench.errors import ExitCode, UserError
from oncebench.faults.catalogue import NEMESES
from oncebench.faults.context import Stage
from oncebench.home import HOME
from oncebench.processes import child as process
from oncebench.processes.child import Child
from oncebench.record.json_lines import AllLines
from oncebench.record.streams import LineWriter, read_lines
from pipeline.config import PipelineConfig, write_config
from pipeline.spark.sockets import sweep
from pipeline.spark.temporary import sweep_temporary

# Unasked deaths in a row, all but the first before the query ran, after which a restart will not help. A pipeline that
# runs and dies again and again is a finding, and no error: its run stalls.
MAX_FAILURES = 4
# A healthy driver stops between two batches; longer than the longest batch of a slow machine.
STOP_LIMIT_S = 30.0
# Mean time from "running" to a random kill. A restarted pipeline's first batch, the replay, takes 3 to 5 s: so about
# half of the kills land in a replay, the others in all steps of the batches after it, and the run makes progress.
RANDOM_KILL_MEAN_S = 6.0
REFUSED = 2  # exit code of `python -m pipeline`
_DONE = object()  # of an act that has come to its end


class Supervisor:
    """One pipeline, kept alive.

    Args:
        config: of the pipeline; `config.record` is the run folder.
        environment: of the process.
        random_kills: how many SIGKILLs at random times.
        seed: of those times, and of what a nemesis draws.
        servers: those that the suite started, by name: what a nemesis may break.
    """

    def __init__(
        self,
        config: PipelineConfig,
        environment: dict[str, str],
        random_kills: int,
        seed: int,
        servers: Mapping[str, Any] | None = None,
    ) -> None:
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
        self._hits_seen = 0
        self._hits_before = 0  # this life of the pipeline
        self._log_before = 0
        self._started_us = 0
        self._death_noted = False  # of this life; a nemesis may have done so
        self._failures = 0
        self._timeline = LineWriter(self._folder / "timeline.jsonl")
        self._child: Child | None = None
        self._acting: list[tuple[Stage, Generator[None]]] = []
        self.restarts = 0

    @property
    def child(self) -> Child | None:
        """The running pipeline."""
        return self._child

    def note(self, event: str, **fields: Any) -> None:
        """Appends a line to the timeline."""
        self._timeline.append({"t_us": _now_us(), "event": event, **fields})
        self._death_noted = self._death_noted or event in ("pipeline-killed", "pipeline-failed")

    def start(self, config: PipelineConfig | None = None) -> None:
        """Starts the pipeline process, with another configuration if one is given."""
        path = self._folder / "pipeline.json"
        write_config(config or self._config, path)
        # A C library that crashes while it is imported then says in the log where.
        command = [sys.executable, "-X", "faulthandler", "-m", "pipeline", str(path)]
        log = self._folder / "logs" / "pipeline.log"
        self._hits_before = len(self._hits())
        self._log_before = log.stat().st_size if log.exists() else 0
        self._started_us = _now_us()
        self._death_noted = False
        self._child = process.start("the pipeline", command, log, env=self._environment, cwd=HOME)
        self._running_before = self._times_running()
        self.note("pipeline-started", pid=self._child.pid, tells_over=True)  # older supervisors did not

    @property
    def random_kills_left(self) -> int:
        """Random kills that are still to come."""
        return self._kills_left

    @property
    def hits(self) -> int:
        """Faults that have been met so far."""
        return self._hits_seen

    @property
    def acting(self) -> bool:
        """Whether a nemesis is at work, or about to be: a server may be down, or an older driver still be there."""
        return bool(self._acting) or self._hits_seen < len(self._hits())

    @property
    def breaking(self) -> bool:
        """Whether a nemesis keeps a server from serving: it will serve again only if `watch` is called."""
        return any(stage.held and NEMESES[stage.hit["action"]].breaks for stage, _ in self._acting)

    def begin_random_kills(self) -> None:
        """Random kills happen from now on: not before the load, for they would only lengthen the start-up."""
        self._kills_begun = True

    def running(self) -> bool:
        """Whether the process that was started last has its query running."""
        return self._times_running() > self._running_before

    def watch(self) -> None:
        """To be called often: lets each nemesis act, kills at random, brings back what died.

        Raises:
            UserError: see the module.
        """
        assert self._child is not None, "start() comes first"
        self._begin_acts(self._child)
        self._acting = [(stage, act) for stage, act in self._acting if not _is_over(stage, act)]
        if any(stage.held for stage, _ in self._acting):
            return
        if not self._child.alive:
            self._bring_back()
        elif self._kills_begun and self._kills_left and not self.acting and not self._killed():
            self._kill_at_random(time.monotonic())

    def _begin_acts(self, child: Child) -> None:
        """Lets those act whose hit is on disk and whose pipeline stands still: before that, a SIGCONT would be lost."""
        for hit in self._hits()[self._hits_seen :]:
            act = NEMESES[hit["action"]].act
            if act is not None and not child.stands_still(hit["pid"]):
                return
            self._hits_seen += 1
            if act is not None:
                stage = Stage(self, child, hit, self._config, self._servers, self._seed)
                if child.alive and hit["life"] == child.pid:
                    self._acting.append((stage, act(stage, hit["seconds"])))
                else:
                    stage.idle("the pipeline died before it stood still")

    def stop(self) -> None:
        """Ends the pipeline between two batches; kills it if it does not end in time. It stays away until the next
        start. A death that came first, or that a failpoint brought while it was ending, is noted as that."""
        self.end_acts()
        if self._child is None:
            return
        if not self._child.alive:
            self.note_death()
        else:
            self._child.thaw()
            self._child.stop_gently(STOP_LIMIT_S)
            self.note("pipeline-killed" if self._killed() else "pipeline-stopped")
        self._child = None

    def _kill_at_random(self, now: float) -> None:
        if self._kill_at is None:
            if self.running():
                self._kill_at = now + self._random.expovariate(1 / RANDOM_KILL_MEAN_S)
        elif now >= self._kill_at:
            assert self._child is not None, "start() comes first"
            self._kill_at = None
            self._kills_left -= 1
            killed_us = _now_us()
            self._child.kill_session()
            self.note("random-kill", t_us=killed_us, landed=self._landed())
            self.succeed()

    def end_acts(self) -> None:
        """Ends what nemeses are at, the last one first; what they broke is mended, and a pipeline that stands still for
        one of them goes on. One that can't be mended does not keep the others from it; its error is raised when all
        are ended."""
        with ExitStack() as stack:
            for stage, act in self._acting:
                stack.callback(_let_go, stage)
                stack.callback(act.close)
            self._acting = []

    def met(self) -> tuple[dict[str, Any], ...]:
        """Hits of the life that was started last."""
        return self._hits()[self._hits_before :]

    def batches(self) -> list[dict[str, Any]]:
        """Progress lines of the batches that the life which was started last has committed."""
        done = [line for line in self._progress_lines.read() if line["kind"] == "batch" and not line.get("recovered")]
        return [line for line in done if line["t_us"] > self._started_us]

    def _landed(self) -> dict[str, Any] | None:
        trace = read_lines(self._folder / "trace.jsonl").items
        if not trace or trace[-1]["t_us"] < self._started_us:
            return None
        return {name: trace[-1][name] for name in ("point", "batch")}

    def _killed(self) -> bool:
        """Whether a failpoint has killed this life; its hit is on disk before it acts, so it is there at the death."""
        return any(hit["action"] == "kill" for hit in self.met())

    def note_death(self) -> tuple[int | None, str] | None:
        """Notes the death of this life, once; exit code and last words if nobody asked for it, else None."""
        assert self._child is not None, "start() comes first"
        self._child.kill_session()
        if self._death_noted:
            return None
        if self._killed():
            self.note("pipeline-killed")
            return None
        code, why = self._child.returncode, self.last_words()
        self.note("pipeline-failed", exit_code=code, why=why)
        return code, why

    def _bring_back(self) -> None:
        assert self._child is not None, "start() comes first"
        unasked = self.note_death()
        if unasked is None:
            self._failures = 0
            return self.succeed()
        code, why = unasked
        if code == REFUSED:
            raise UserError(f"the pipeline {why}", exit_code=ExitCode.ERROR)
        self._failures = self._failures + 1 if self._times_running() == self._running_before else 1
        if self._failures >= MAX_FAILURES:
            raise UserError(
                f"the pipeline died {self._failures} times in a row: {why}; see {self._child.log}",
                exit_code=ExitCode.ERROR,
            )
        return self.succeed()

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.kill_session()

    def succeed(self, config: PipelineConfig | None = None, beside: bool = False) -> None:
        """Starts another life; `beside`: whoever asks answers for the one before, which is killed otherwise."""
        if not beside:
            self._end_child()
        self.restarts += 1
        self.start(config)

    def last_words(self) -> str:
        """What the life that was started last has said, or the last line of its log."""
        assert self._child is not None, "start() comes first"
        own = self._child.log.read_bytes()[self._log_before :]
        lines = own.decode("utf-8", errors="replace").splitlines()
        telling = [line for line in lines if line.startswith(("refused to start", "stopped:"))]
        return (telling or [line for line in lines if line.strip()] or ["it left no log"])[-1]

    def _hits(self) -> tuple[dict[str, Any], ...]:
        return self._hit_lines.read()

    def _times_running(self) -> int:
        return sum(line["kind"] == "running" for line in self._progress_lines.read())

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:  # each of these happens, whatever becomes of the others
            stack.callback(self._timeline.close)
            stack.callback(sweep_temporary, self._folder)
            stack.callback(sweep, self._folder)
            stack.callback(self._end_child)
            self.end_acts()


def _let_go(stage: Stage) -> None:
    """Continues a pipeline whose act was ended before it did so. Of any other the next fault may have been hit, for
    which it stands still."""
    if stage.standing:
        stage.thaw()


def _is_over(stage: Stage, act: Generator[None]) -> bool:
    """Lets an act go on until it waits again; whether it has come to its end, which is noted."""
    if next(act, _DONE) is not _DONE:
        return False
    stage.note("nemesis-over")
    return True


def _now_us() -> int:
    return time.time_ns() // 1000
