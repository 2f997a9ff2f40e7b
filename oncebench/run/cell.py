"""Runs one cell: load, pipeline, observer and faults together, then the final reads. It records; it doesn't judge.

Promise: when `run_cell` returns, the run folder holds everything that the audit needs, and every process that it
started is gone; also when it raises. A first interruption stops load and pipeline gently and still reads what there
is. What can go wrong: the interruption came before there was anything to read (`UserError`, exit code 130); the
pipeline refuses to start or dies again and again (`UserError`); the run does not drain within its patience (recorded as
`stalled`, judged by the audit).
"""

from __future__ import annotations

import json
import sys
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
from oncebench.delivery.failpoints import parse_fault
from oncebench.errors import UserError
from oncebench.faults.disk import CHECKPOINT
from oncebench.faults.server import KAFKA
from oncebench.home import HOME
from oncebench.lab.broker import open_broker
from oncebench.lab.disk import open_disks
from oncebench.lab.lab import Lab
from oncebench.lab.links import Links, open_links
from oncebench.live.newest_fault import FaultsSeen
from oncebench.live.status import Seen, Show
from oncebench.observe.final_read import ends_json, save_output, save_quarantine, save_topic
from oncebench.observe.resources import Use
from oncebench.processes import child as process
from oncebench.processes.child import Child
from oncebench.record.json_lines import Tail
from oncebench.run.configs import load_config, observer_config, pipeline_config
from oncebench.run.interrupt import nothing_to_report
from oncebench.run.meters import PIPELINE, Meters
from oncebench.run.priming import PRIMING_BATCHES, open_sessions, prime
from oncebench.run.progress_timeout import Patience
from oncebench.run.supervisor import Supervisor
from oncebench.run.topics import Topics, make_topics
from oncebench.run.workdir import full_disk_told
from oncebench.scenario.cell import Cell
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.registry import suite_sinks

# Looked at this often; processes report every 250 to 500 ms, faults must be answered sooner.
LOOK_S = 0.05
# While a load is sent to which nothing is done there is nobody to answer, and looks are at the pipeline's expense.
CALM_LOOK_S = 0.2
# Spark and its JVM start in 5 to 10 s on two idle cores; a machine under load may take several times that.
START_LIMIT_S = 120.0
# A run has stalled when so long no batch was committed and no fault came, once the load has ended. A restart with its
# replay takes 15 s on two idle cores, and was seen to take 100 under other load: slow is not stalled.
STANDSTILL_S = 180.0
# After Ctrl-C: long enough for the batch in hand, short enough for whoever pressed it.
INTERRUPTED_DRAIN_S = 8.0
CHILD_STOP_S = 15.0
LOADING = "loading"  # the phase in which the generator sends
# The broker looks for timed-out transactions every 10 s, and writes their markers.
ABORT_MARGIN_S = 20.0
# Of what is due at once the generator sends at least so much: a third of the slowest in results/runs/costs-flat-out.
FLAT_OUT_EVENTS_PER_S = 10_000.0
# Of the batch that takes the open sessions in, an event each: a pipeline that does fewer than these is stuck.
OPEN_SESSIONS_PER_S = 200.0


@dataclass(frozen=True)
class Ran:
    """What a finished run knows beside its folder."""

    run: str
    topics: Topics
    kafka: dict[str, Any]
    durability: dict[str, dict[str, str]]
    uses: dict[str, Use]
    checkpoint_written: dict[str, int]
    measured_from_us: int
    interrupted: bool


def run_cell(cell: Cell, lab: Lab, folder: Path, show: Show, interrupted: threading.Event) -> Ran:
    """Runs `cell` in `folder` (an open work dir).

    Args:
        show: called about every LOOK_S or CALM_LOOK_S with what there is to see.
        interrupted: set by the first Ctrl-C.
    """
    with ExitStack() as stack:
        stack.enter_context(full_disk_told(folder))
        stack.enter_context(open_disks(cell, folder))
        own = stack.enter_context(open_broker(cell, lab, folder))
        links = stack.enter_context(open_links(cell, own))
        return _Run(cell, own, links, folder, show, interrupted).run()


class _Run:
    def __init__(
        self, cell: Cell, lab: Lab, links: Links, folder: Path, show: Show, interrupted: threading.Event
    ) -> None:
        self.cell, self.lab, self.folder = cell, lab, folder
        self.show, self.interrupted = show, interrupted
        self.sink = suite_sinks()[cell.sink]
        self.id = f"ob-{time.strftime('%H%M%S')}-{uuid.uuid4().hex[:6]}"
        self.topics = make_topics(cell, lab.kafka, self.id, folder)
        # The output's topic, where it is one, is made in the same way.
        self.durability = lab.durability(self.topics.input, self.sink.traits.services)
        self.config = pipeline_config(cell, lab, links.bootstrap_servers, self.topics, self.id, folder)
        self.supervisor = Supervisor(
            self.config,
            {**lab.environment(), **links.environment},
            cell.random_kills,
            cell.seed,
            {**lab.servers, **links.proxies},
        )
        self.children: dict[str, Child] = {}
        self.meters = Meters(self._processes, folder / CHECKPOINT)
        self.load_lines = Tail(folder / "load.jsonl")
        self.observer_lines = Tail(folder / "observer.jsonl")
        self.progress_lines = Tail(folder / "progress.jsonl")
        self.faults = FaultsSeen(folder)
        self.interruption_noted = False
        self.batch: dict[str, Any] = {}
        self.position: dict[str, int] = {}
        self.phase = "starting"
        self.primed = 0
        self.measured_from_us = 0
        self.warm = cell.rate == "max"  # such a load has no time
        at_once = cell.sessions * EVENTS_PER_SESSION / FLAT_OUT_EVENTS_PER_S
        self.load_s = at_once if cell.rate == "max" else cell.load_s

    def run(self) -> Ran:
        (self.folder / "cell.json").write_text(json.dumps(self._described(), indent=1))
        with ExitStack() as stack:
            stack.enter_context(self.supervisor)
            stack.callback(self._end_children)
            stack.enter_context(self.meters)
            self._start_observer()
            if self.cell.open_sessions:
                self._preload()
            if self.cell.rate == "max":
                self._load()
                self.supervisor.start()
                self._wait("starting", self.supervisor.running)
                self._measure_from_now()
            else:
                self._start_pipeline()
                self._measure_from_now()
                self._load()
            self._let_servers_serve()
            ends = self._input_ends()
            drained = self._until("draining", lambda: self._drained(ends), self._patience(), INTERRUPTED_DRAIN_S)
            # A run that was asked to stop has not stalled: it only cannot tell.
            end = "drained" if drained else "interrupted" if self.interrupted.is_set() else "stalled"
            self.supervisor.note(end, position=self.position, ends=ends)
            self.meters.drained()
            self._say("stopping")
            self.supervisor.stop()
            self._say("reading")
            self._final_reads()
            self._end("observer")
            written = self.meters.checkpoint.total()
        uses, cut = self.meters.uses(), self.interrupted.is_set()
        return Ran(self.id, self.topics, self._kafka(), self.durability, uses, written, self.measured_from_us, cut)

    def _measure_from_now(self) -> None:
        """What is used counts from here: from the load's start, and anew from the end of its warm-up."""
        self.meters.mark()
        self.measured_from_us = time.time_ns() // 1000

    def _load(self) -> None:
        self._start_load()
        generator = self.children["generator"]
        in_time = self._until(LOADING, lambda: not generator.alive, Patience(START_LIMIT_S + self.load_s))
        self._end("generator")
        self.supervisor.note("load-done")
        if not in_time and not self.interrupted.is_set():
            raise UserError(f"the load did not end within {START_LIMIT_S + self.load_s:.0f} s; see {generator.log}")
        if not (self.folder / "ledger" / "plan.json").exists():
            if self.interrupted.is_set():
                raise nothing_to_report("load began")
            raise UserError(f"the generator sent nothing: {_last_line(generator.log)}; see {generator.log}")

    def _start_pipeline(self) -> None:
        """Starts the pipeline and primes it: its first batches pay for start-up, and not at the load's expense."""
        self.supervisor.start()
        self._wait("starting", self.supervisor.running)
        for number in range(PRIMING_BATCHES):
            self._let_servers_serve()
            done = partial(self._has_batch_after, self.batch.get("batch", -1))
            self.primed += prime(self.lab.kafka.bootstrap_servers, self.topics.input, self.folder, number)
            self._wait("priming", done)

    def _preload(self) -> None:
        """Begins the sessions that stay open, and has a life of their own take them into the pipeline's state: in one
        batch, whatever its limit is to be, and before every fault."""
        count = self.cell.open_sessions
        self.primed += open_sessions(self.lab.kafka.bootstrap_servers, self.topics.input, self.folder, count)
        ends = self._input_ends()
        self.supervisor.start(replace(self.config, faults=(), max_events_per_batch=None))
        limit_s = START_LIMIT_S + count / OPEN_SESSIONS_PER_S
        self._wait(
            "preloading", lambda: not self._behind(ends), limit_s, self._taken_in, " or with fewer --open-sessions"
        )
        self.supervisor.stop()

    def _taken_in(self) -> tuple[int, bool]:
        """What shows that preloading gets on; that another life has begun does not."""
        return sum(self.position.values()), self.supervisor.running() and not self.supervisor.restarts

    def _has_batch_after(self, batch: int) -> bool:
        newest: int = self.batch.get("batch", -1)
        return newest > batch

    def _wait(
        self, phase: str, done: Callable[[], bool], limit_s: float = START_LIMIT_S,
        so_far: Callable[[], object] = lambda: None, way_out: str = "",
    ) -> None:  # fmt: skip
        if self._until(phase, done, Patience(limit_s, so_far)):
            return
        if self.interrupted.is_set():
            raise nothing_to_report("pipeline ran" if "generator" in self.children else "load began")
        log = self.folder / "logs" / "pipeline.log"
        raise UserError(f"{phase} the pipeline got no further for {limit_s:g} s. Is the machine busy? Run it again "
                        f"when it is not{way_out}; what the pipeline said is in {log}")  # fmt: skip

    def _let_servers_serve(self) -> None:
        """Waits until no nemesis keeps a server from serving, and ends what lasts too long: whoever asks a server
        something watches nothing meanwhile, and would wait for it in vain."""
        patience = Patience(START_LIMIT_S + self._stopped_s())
        if not self._until(self.phase, lambda: not self.supervisor.breaking, patience):
            self.supervisor.end_acts()

    def _stopped_s(self) -> float:
        """How long the faults take that say so."""
        return sum(parse_fault(fault).seconds or 0.0 for fault in self.cell.faults)

    def _patience(self) -> Patience:
        # A backlog may come as one batch. Restarts do not count: a pipeline that dies again and again gets nowhere.
        return Patience(
            STANDSTILL_S + self._stopped_s() + 2 * self.load_s,
            lambda: (sum(self.position.values()), self.supervisor.hits_handled, self.supervisor.random_kills_left),
        )

    def _described(self) -> dict[str, Any]:
        return {"schema": 1, "run": self.id, "cell": self.cell.as_json(),
                "sink_traits": asdict(self.sink.traits), "topics": self.topics.as_json(),
                "kafka": self._kafka()}  # fmt: skip

    def _kafka(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.lab.kafka.bootstrap_servers, "own": self.lab.own_broker is not None}

    def _start_observer(self) -> None:
        self._start_child(
            "observer", "oncebench.observe.observer", observer_config(self.cell, self.topics, self.folder)
        )

    def _start_load(self) -> None:
        self.supervisor.note("load-started")
        servers = self.lab.kafka.bootstrap_servers
        self._start_child("generator", "loadgen", load_config(self.cell, servers, self.topics, self.folder))
        self.supervisor.begin_random_kills()

    def _start_child(self, name: str, module: str, config: dict[str, Any]) -> None:
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(config, indent=1))
        command = [sys.executable, "-m", module, str(path)]
        log = self.folder / "logs" / f"{name}.log"
        self.children[name] = process.start(f"the {name}", command, log, cwd=HOME, env=self.lab.environment())

    def _until(self, phase: str, done: Callable[[], bool], patience: Patience, interrupted_s: float = 0.0) -> bool:
        """Watches and shows until `done` or patience is over; an interruption leaves `interrupted_s` of it."""
        self._say(phase)
        while not done():
            if self.interrupted.is_set():
                self._note_interruption()
                patience.shorten(interrupted_s)
            if patience.over():
                return False
            if self.supervisor.child is not None:
                self.supervisor.watch()
            if self.lab.own_broker is not None and not self.lab.own_broker.alive and not self.supervisor.acting:
                raise UserError(f"the Kafka broker died while {phase}; see {self.lab.own_broker.log}")
            self._look()
            time.sleep(CALM_LOOK_S if phase == LOADING and not self.cell.faulted else LOOK_S)
        return True

    def _note_interruption(self) -> None:
        if not self.interruption_noted:
            self.interruption_noted = True
            self.supervisor.end_acts()  # a server that is down or stopped would hold up all that is still to be read
            self.supervisor.note("interrupted", phase=self.phase)

    def _say(self, phase: str) -> None:
        self.phase = phase
        self._look()

    def _look(self) -> None:
        for line in self.progress_lines.fresh():
            if line["kind"] == "started":
                self.position = {}  # a life on an older checkpoint begins further back, and tells where
            elif line["kind"] == "batch":
                self.batch = line
                for partition, offset in line["end_offsets"].items():
                    self.position[partition] = max(offset, self.position.get(partition, 0))
        self.meters.checkpoint.scan_if_due()
        self._end_warm_up()
        load, observer = self.load_lines.last(), self.observer_lines.last()
        sent = load.get("summary", load).get("acknowledged", 0)
        lag = self.primed + sent - sum(self.position.values()) if self.position else None
        load_s = None if self.cell.rate == "max" else self.load_s
        self.show(Seen(self.phase, load, observer, self.batch, lag, self.faults.told(), load_s))

    def _end_warm_up(self) -> None:
        plan = self.folder / "ledger" / "plan.json"
        if not self.warm and self.phase == "loading" and plan.exists():
            started_us = json.loads(plan.read_text())["started_us"]
            if time.time_ns() // 1000 >= started_us + self.cell.warmup_s * 1e6:
                self.warm = True
                self._measure_from_now()

    def _input_ends(self) -> dict[str, int]:
        # A nemesis may have killed the broker just now, and a busy machine was seen to take 36 s to start it again.
        servers, topic = self.lab.kafka.bootstrap_servers, self.topics.input
        with closing(KafkaReader(servers, topic, start_s=START_LIMIT_S)) as reader:
            return {str(p): end.lso for p, end in reader.ends().items()}

    def _behind(self, ends: dict[str, int]) -> bool:
        return any(self.position.get(partition, 0) < end for partition, end in ends.items())

    def _drained(self, ends: dict[str, int]) -> bool:
        more = self.supervisor.random_kills_left or self.supervisor.acting
        return not self._behind(ends) and self.supervisor.running() and not more

    def _final_reads(self) -> None:
        servers = self.lab.kafka.bootstrap_servers
        settle_s = self.cell.transaction_timeout_ms / 1000 + ABORT_MARGIN_S
        output = save_output(self.sink, self.topics.target, self.folder, settle_s=settle_s)
        with closing(KafkaReader(servers, self.topics.input)) as reader:
            source = save_topic(reader, self.folder / "input.arrow", settle_s=settle_s)
        with closing(KafkaReader(servers, self.topics.quarantine)) as reader:
            save_quarantine(reader, self.folder / "quarantine.arrow", settle_s=settle_s)
        (self.folder / "ends.json").write_text(json.dumps(ends_json(output, source), indent=1))

    def _processes(self) -> dict[str, Any]:
        pipeline = {} if self.supervisor.child is None else {PIPELINE: self.supervisor.child}
        servers = {
            name: self.lab.servers[name] for name in (KAFKA, *self.sink.traits.services) if name in self.lab.servers
        }
        return {**self.children, **pipeline, **servers}

    def _end(self, name: str) -> None:
        self.children[name].stop_gently(CHILD_STOP_S)

    def _end_children(self) -> None:
        for child in self.children.values():
            child.kill_session()


def _last_line(log: Path) -> str:
    return next(filter(str.strip, reversed(log.read_text("utf-8", errors="replace").splitlines())), "it left no word")
