"""Runs one cell: load, pipeline, observer and faults together, then the final reads.

Promise: the run records and does not judge. When `run_cell` returns or raises, every process that it started is gone.
When it returns, the run folder holds everything that the audit needs. After a first interruption, load and pipeline
stop gently and the final reads still happen.

Failures: interrupted before there is anything to read (`UserError`, exit code 130); the pipeline refuses to start or
dies repeatedly (`UserError`). A run that does not drain in time is recorded as `stalled`, or as `start-timed-out` if an
attempt was alive and starting. The audit judges it.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from loadgen.session import EVENTS_PER_SESSION
from oncebench.disk_errors import explain_full_disk
from oncebench.errors import UserError
from oncebench.faults.disk import CHECKPOINT
from oncebench.kafka_access.forms import described
from oncebench.lab.broker import open_broker
from oncebench.lab.disk import open_disks
from oncebench.lab.engine import SPARK, Engine
from oncebench.lab.lab import Lab
from oncebench.lab.links import Links, open_links
from oncebench.lab.restart import start_dead_servers
from oncebench.lab.spark.cluster import open_cluster
from oncebench.live.status import (
    DRAINING,
    LOADING,
    PRELOADING,
    READING,
    STARTING,
    STOPPING,
    WARMING_UP,
    Phase,
    Show,
)
from oncebench.observe.final_read import final_reads
from oncebench.observe.resources import Use
from oncebench.processes.child import Child
from oncebench.record import events
from oncebench.run.attempts.supervisor import PipelineEnded, Supervisor
from oncebench.run.attempts.work_left import WorkLeft
from oncebench.run.configs import load_configs, load_plans, observer_configs, pipeline_config, warm_up_file
from oncebench.run.extra_load.closing import CLOSING_EVENTS, send_closing
from oncebench.run.extra_load.warm_up import WARM_UP_BATCHES, WARM_UP_SESSIONS, open_sessions, send_warm_up
from oncebench.run.interrupt import nothing_to_report
from oncebench.run.limits import INTERRUPTED_DRAIN_S, Limits
from oncebench.run.measurement import Measurement
from oncebench.run.meters import Meters, measured
from oncebench.run.phases import Phases
from oncebench.run.processes import GENERATOR, OBSERVER, RunProcesses
from oncebench.run.progress import RunProgress
from oncebench.run.progress_timeout import ProgressTimeout
from oncebench.run.topics import Topics, make_topics
from oncebench.scenario.cell import Cell
from oncebench.scenario.workloads import WORKLOADS
from oncebench.servers.limits import SERVER_LIMIT_S
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.reader import now_us
from oncebench.sinks.registry import suite_sinks
from oncebench.sinks.suite import SuiteSink
from pipeline.config import PipelineConfig

During = Callable[[Child], None]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """The facts about a finished run that are not in its folder."""

    run: str
    topics: Topics
    kafka: dict[str, Any]
    durability: dict[str, dict[str, str]]
    uses: dict[str, Use]
    checkpoint_written: dict[str, int] | None
    measured_from_us: int
    measured_until_us: int  # 0: until the load was drained
    clock_moved_us: int
    interrupted: bool
    engine: dict[str, Any]


def run_cell(
    cell: Cell,
    lab: Lab,
    folder: Path,
    show: Show,
    interrupted: threading.Event,
    engine: Engine = SPARK,
    during: During | None = None,
) -> RunResult:
    """Runs `cell` in `folder`, an open work dir.

    Args:
        show: displays the state of the run; called every LOOK_S or CALM_LOOK_S (`oncebench.run.phases`).
        interrupted: set by the first Ctrl-C.
        engine: runs the pipeline.
        during: called with the running pipeline at each look, from the end of the warm-up until everything is read.
    """
    with ExitStack() as stack:
        stack.enter_context(explain_full_disk(folder))
        stack.enter_context(open_disks(cell, folder))
        own = stack.enter_context(open_broker(cell, lab, folder))
        start_dead_servers(cell, own)
        own = stack.enter_context(open_cluster(cell, own, folder, interrupted.is_set))
        links = stack.enter_context(open_links(cell, own))
        return _made(cell, own, links, folder, show, interrupted, engine, during).run()


def _made(
    cell: Cell,
    lab: Lab,
    links: Links,
    folder: Path,
    show: Show,
    interrupted: threading.Event,
    engine: Engine,
    during: During | None,
) -> _Run:
    """Makes the topics of a run, opens its timeline, and puts its parts together."""
    run = f"ob-{time.strftime('%H%M%S')}-{uuid.uuid4().hex[:6]}"
    sink = suite_sinks()[cell.sink]
    topics = make_topics(cell, lab.kafka, run, folder, lab.start_timeout_s)
    # The output topic of a sink has the same settings as the input topic.
    durability = lab.durability(topics.input, sink.traits.services)
    config = pipeline_config(cell, lab, links.kafka, topics, run, folder)
    supervisor = Supervisor(
        config, {**lab.environment(), **links.environment}, cell.random_kills, cell.seed,
        {**lab.servers, **links.proxies}, engine, cell.outage_s, lab.cluster, interrupted.is_set,
    )  # fmt: skip
    processes = RunProcesses(folder, lab.environment())
    meters = Meters(partial(measured, supervisor, processes, lab, sink.traits.services), folder / CHECKPOINT, engine)
    progress = RunProgress(
        folder, None if cell.rate == "max" else cell.load_s, cell.trigger_ms / 1000, cell.generators, cell.observers
    )
    return _Run(
        id=run, cell=cell, lab=lab, folder=folder, sink=sink, topics=topics, durability=durability, config=config,
        engine=engine, supervisor=supervisor, processes=processes, meters=meters, progress=progress,
        measurement=Measurement(cell, load_plans(cell, folder)[0], meters, progress),
        limits=Limits(cell, lab.start_timeout_s), show=show, interrupted=interrupted, during=during,
    )  # fmt: skip


@dataclass(kw_only=True)
class _Run:
    """One run, made of its parts."""

    id: str
    cell: Cell
    lab: Lab
    folder: Path
    sink: SuiteSink
    topics: Topics
    durability: dict[str, dict[str, str]]
    config: PipelineConfig
    engine: Engine
    supervisor: Supervisor
    processes: RunProcesses
    meters: Meters
    progress: RunProgress
    measurement: Measurement
    limits: Limits
    show: Show
    interrupted: threading.Event
    during: During | None

    def __post_init__(self) -> None:
        broker = self.lab.own_kafka
        self.phases = Phases(self.supervisor, broker, self._look, self.interrupted, self.cell.faulted)

    def run(self) -> RunResult:
        """Runs every phase."""
        (self.folder / "cell.json").write_text(json.dumps(self._description(), indent=1))
        with ExitStack() as stack:
            stack.enter_context(self.supervisor)
            stack.enter_context(self.processes)
            stack.enter_context(self.meters)
            self._start_observers()
            try:
                self._run_load()
            except PipelineEnded as ended:
                if not self._load_began():
                    raise
                self._end_early(ended)
            self.meters.drained()
            self.phases.begin(STOPPING)
            self.supervisor.stop()
            self.phases.begin(READING)
            topics, kafka = self.topics, self.lab.kafka.access.client
            final_reads(self.sink, topics.target, kafka, topics.input, topics.quarantine, self.folder,
                        self.limits.settle_s)  # fmt: skip
            self.processes.report_deaths(self.supervisor.note)
            self.processes.stop(OBSERVER)
            counted = self.engine.keeps_checkpoint_files and not self.cell.checkpoint
            written = self.meters.checkpoint.total() if counted else None
        return self._result(written)

    def _result(self, written: dict[str, int] | None) -> RunResult:
        """Returns what the run measured itself; `written`: bytes and files of the checkpoint."""
        self.measurement.clock.look()
        until_us = self.progress.last_row_us if self.cell.rate == "max" else 0
        uses, cut = self.meters.uses(until_us or None), self.interrupted.is_set()
        return RunResult(self.id, self.topics, self._kafka(), self.durability, uses, written, self.measurement.from_us,
                         until_us, self.measurement.clock.moved_us, cut, self.engine.as_json())  # fmt: skip

    def _run_load(self) -> None:
        if self.cell.open_sessions:
            self._preload()
        if self.cell.rate == "max":
            self._load()
            self._start_pipeline()
            self.measurement.begin()
        else:
            self._start_pipeline()
            self._warm_up()
            self.measurement.begin()
            self._load()
        self._drain()

    def _load_began(self) -> bool:
        return all(plan.exists() for plan in load_plans(self.cell, self.folder))

    def _end_early(self, ended: PipelineEnded) -> None:
        """Ends a run whose pipeline will not come back, so that it can be judged up to here."""
        _log.warning("%s. The run ends here, and is judged as it is.", str(ended).rstrip("."))
        self.processes.stop(GENERATOR)
        self.supervisor.stop()
        self.supervisor.note(events.STALLED, position=self.progress.position, ends=self._input_ends(), why=str(ended))

    def _start_observers(self) -> None:
        self.processes.start_observers(observer_configs(self.cell, self.topics, self.folder))

    def _start_pipeline(self) -> None:
        self.supervisor.start()
        # A pipeline that dies before it runs gets no further: the supervisor counts its deaths.
        timeout = ProgressTimeout(self.limits.start_s, self.supervisor.signs_of_life)
        self._require(STARTING, self.supervisor.running, timeout)

    def _warm_up(self) -> None:
        """Runs the warm-up batches, so that the load is not measured with Spark's start-up costs."""
        sessions = WARM_UP_BATCHES * WARM_UP_SESSIONS
        ahead = f"{sessions * EVENTS_PER_SESSION:,} records ahead of the load"
        phase = replace(WARMING_UP, waits_for=ahead if self.cell.records else f"{sessions} {WARMING_UP.waits_for}")
        remedy = ", and check that the sink's function returns" if self.cell.black_box else ""
        for number in range(WARM_UP_BATCHES):
            self._wait_for_servers()
            self.progress.sent_ahead += send_warm_up(
                self.lab.kafka.access, self.topics.input, self.folder, number, warm_up_file(self.cell, number),
                self.interrupted,
            )  # fmt: skip
            timeout = ProgressTimeout(self.limits.warm_up_s, self._warming_up)
            self._require(phase, self.progress.has_read_ahead, timeout, remedy)

    def _warming_up(self) -> object:
        """The progress of the warm-up; what a pipeline writes after a restart is none."""
        return self.progress.events_read, None if self.supervisor.restarts else self.supervisor.signs_of_life()

    def _preload(self) -> None:
        """Puts the open sessions into the pipeline's state, in one batch and before every fault.

        An attempt of its own reads them. It has no faults and no limit of events per batch.
        """
        count = self.cell.open_sessions
        access, topic = self.lab.kafka.access, self.topics.input
        self.progress.sent_ahead += open_sessions(access, topic, self.folder, count, self.interrupted)
        ends = self._input_ends()
        self.supervisor.start(replace(self.config, faults=(), max_events_per_batch=None))
        timeout = ProgressTimeout(self.limits.preload_s, self._preloaded)
        self._require(PRELOADING, lambda: self.progress.has_read(ends), timeout, " or with fewer --open-sessions")
        self.supervisor.stop()

    def _preloaded(self) -> tuple[int, bool]:
        """The progress of preloading; a restart of the pipeline is none."""
        return self.progress.events_read, self.supervisor.running() and not self.supervisor.restarts

    def _load(self) -> None:
        self._start_load()
        timeout = ProgressTimeout(self.limits.server_s, self.progress.of_load)
        over = self.phases.wait(LOADING, lambda: self.processes.load_over, timeout) or self.interrupted.is_set()
        self.processes.report_deaths(self.supervisor.note)
        self.processes.stop(GENERATOR)
        self.supervisor.note(events.LOAD_DONE)
        if not self._load_began():
            raise nothing_to_report("load began") if self.interrupted.is_set() else self.processes.nothing_sent()
        if not over:
            _log.warning(
                "Kafka acknowledged nothing of the load for %g s, so the load was stopped. The run is judged as it "
                "is. See %s.", timeout.limit_s, self.folder / "logs",
            )  # fmt: skip

    def _start_load(self) -> None:
        self.supervisor.note(events.LOAD_STARTED)
        self.processes.start_generators(load_configs(self.cell, self.lab.kafka.access, self.topics, self.folder))
        self.supervisor.begin_random_kills(WorkLeft(self.cell, self.progress))

    def _drain(self) -> None:
        """Waits until the pipeline has returned every row and every fault is over; records the end."""
        closing_s = WORKLOADS[self.cell.workload].closing_s
        end, ends = self._read_all(closing_s or 0.0)
        sent, in_a_row, at_us = 0, CLOSING_EVENTS if closing_s is None else 0, now_us()
        while end == events.DRAINED and in_a_row < CLOSING_EVENTS:
            restarts, access, stop = self.supervisor.restarts, self.lab.kafka.access, self.interrupted
            self.progress.sent_ahead += send_closing(access, self.topics.input, self.folder, sent, at_us, stop)
            end, ends = self._read_all()
            sent, in_a_row = sent + 1, in_a_row + 1 if self.supervisor.restarts == restarts else 0
        self.supervisor.note(end, position=self.progress.position, ends=ends)

    def _read_all(self, least_s: float = 0.0) -> tuple[str, dict[str, int]]:
        """Waits until the pipeline has read everything, and for at least `least_s` seconds.

        Returns how the wait ended, and the ends of the input.
        """
        self._wait_for_servers()
        ends, timeout = self._input_ends(), self.limits.drain(self.progress, self.supervisor)
        until = time.monotonic() + least_s
        if self.phases.wait(
            DRAINING, lambda: time.monotonic() >= until and self._drained(ends), timeout, INTERRUPTED_DRAIN_S
        ):
            return events.DRAINED, ends
        if self.interrupted.is_set():
            return events.INTERRUPTED, ends  # and not stalled: it might have drained
        return events.START_TIMED_OUT if timeout.starting else events.STALLED, ends

    def _drained(self, ends: dict[str, int]) -> bool:
        if not self.progress.has_read(ends) or not self.supervisor.running():
            return False
        if not self.interrupted.is_set():
            self.supervisor.hasten_random_kill()
        return not (self.supervisor.random_kills_left or self.supervisor.fault_active)

    def _wait_for_servers(self) -> None:
        self.phases.wait_for_servers(ProgressTimeout(self.limits.server_s))

    def _require(self, phase: Phase, done: Callable[[], bool], timeout: ProgressTimeout, remedy: str = "") -> None:
        """Waits for a phase that must succeed.

        Raises:
            UserError: the run was interrupted, or made no progress within the timeout.
        """
        if self.phases.wait(phase, done, timeout):
            return
        if self.interrupted.is_set():
            raise nothing_to_report("pipeline ran" if self.processes.load_started else "load began")
        log = self.folder / "logs" / "pipeline.log"
        # A pipeline that died says why; only one that is alive may be slow.
        said = self.supervisor.death()
        why = "Is the machine busy? Run it again when it is not" if said is None else f"Its last words: {said}"
        raise UserError(
            f"the pipeline made no progress for {timeout.limit_s:g} s in the phase '{phase.name}'. {why.rstrip('.')}"
            f"{remedy}. A longer --start-timeout, where the command has it, gives it more time. See {log}"
        )

    def _look(self, phase: Phase) -> None:
        """Reads the progress, measures, and displays the run."""
        self.progress.update()
        self.meters.checkpoint.scan_if_due()
        self.measurement.look(phase)
        pipeline, warm = self.supervisor.child, self.measurement.warm
        if self.during and warm and phase in (LOADING, DRAINING) and pipeline and self.supervisor.running():
            self.during(pipeline)
        self.show(self.progress.status(phase))

    def _input_ends(self) -> dict[str, int]:
        # A fault may have killed the broker just before. A busy machine was seen to take 36 s to start it again.
        with closing(KafkaReader.of(self.lab.kafka.access.client, self.topics.input, SERVER_LIMIT_S)) as reader:
            return {str(p): end.lso for p, end in reader.ends().items()}

    def _description(self) -> dict[str, Any]:
        return {"schema": 1, "run": self.id, "cell": self.cell.as_json(),
                "sink_traits": asdict(self.sink.traits), "session_timeout_ms": self.config.session_timeout_ms,
                "topics": self.topics.as_json(), "kafka": self._kafka()}  # fmt: skip

    def _kafka(self) -> dict[str, Any]:
        return {**self.lab.kafka.access.as_json(), "own": self.lab.own_kafka is not None,
                **described(self.lab.kafka.access.client)}  # fmt: skip
