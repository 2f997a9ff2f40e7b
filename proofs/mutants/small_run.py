"""A recorded run of the pipeline in one process without a JVM, over several attempts.

Real parts: the operator, batches, names of failpoints, protocols, journal, sinks and their committed readers, over real
files on a real disk. Stand-ins: Spark (`small_spark`), Kafka's input topic (a list) and the quarantine topic (a list).

A death is an exception at a failpoint: no later step is done, and a new driver starts. Any other fault is a function
that is called at a failpoint. A mutant replaces one part. The record goes to the auditors.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa

from oncebench.delivery.contract import Sink, SinkSettings
from oncebench.delivery.errors import PipelineError
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.journal import open_journal
from oncebench.delivery.protocols import Protocol, protocol_of
from oncebench.delivery.quarantine import Quarantine
from oncebench.jobs.batches import Batches
from oncebench.jobs.start import identity_of, refuse_older_checkpoint
from oncebench.kafka_access.access import KafkaAccess
from oncebench.record import FINAL, OBSERVED, Record, events
from oncebench.record.json_lines import Lines, read_lines
from oncebench.record.streams import Stream
from oncebench.sinks.reader import Reader, Rows
from oncebench.sinks.registry import suite_sinks
from oncebench.sinks.suite import Place
from pipeline.config import PipelineConfig
from pipeline.progress import Progress
from pipeline.rows import KEY, SCHEMA
from pipeline.sessions import Sessions
from pipeline.sink import target_of
from proofs.mutants.small_spark import PARTITIONS, Checkpoint, Spark, SparkDied
from proofs.without_jvm import as_columns, as_lines
from tests.unit.audit.audit_world import STARTED_US, Sent, World, input_table, make_record, make_world, quarantine_table

SESSIONS, NEVER_ENDS = 12, 2  # session 2 lacks its end
BATCHES = 7
FAULT_BATCH = 5  # this batch and its neighbours have rows in both partitions
MAX_ATTEMPTS = 8  # the supervisor gives up after this many attempts


class Died(Exception):
    """The process dies here, by kill -9 or another fault."""


@cache
def small_world() -> tuple[World, tuple[tuple[Sent, ...], ...]]:
    """Sessions that begin one after another, and all arriving records by batch.

    The last record is not a valid event.
    """
    made = make_world(SESSIONS, PARTITIONS)
    counted: Counter[bytes | None] = Counter()
    arrived: list[tuple[int, Sent]] = []
    for each in made.sent:
        session, seq = int((each.key or b"").rsplit(b"-", 1)[1]), counted[each.key]
        counted[each.key] += 1
        if (session, seq) != (NEVER_ENDS, 99):
            arrived.append((10 * session + seq, each))  # each session begins ten events after the previous one
    arrived.sort(key=lambda item: item[0])
    offsets = [0] * PARTITIONS
    batches: list[list[Sent]] = [[] for _ in range(BATCHES)]
    for at, each in arrived:
        batches[at * BATCHES // (arrived[-1][0] + 1)].append(replace(each, offset=offsets[each.partition]))
        offsets[each.partition] += 1
    world = replace(made, sent=tuple(each for batch in batches for each in batch), rows=())
    batches[-1].append(Sent(0, offsets[0], b"stranger", b"{"))
    return world, tuple(map(tuple, batches))


def input_of(arrivals: Sequence[Sequence[Sent]]) -> Stream:
    """The input topic, read to its end."""
    return Stream(input_table([each for batch in arrivals for each in batch]), complete=True)


@dataclass(frozen=True)
class Fault:
    """A fault that hits the driver when it first passes a point of a batch.

    At a point inside a task it hits the task of partition 1, after that of partition 0 has ended.
    """

    point: str
    does: Callable[[Run], None] | None = None  # None: the driver dies
    batch: int = FAULT_BATCH


class QuarantineList:
    """The quarantine topic as a list; stands in for `Quarantine`."""

    def __init__(self) -> None:
        self.held: list[dict[str, Any]] = []

    def copy(self, rejected: pa.StructArray) -> None:
        self.held += rejected.to_pylist()

    def flush(self) -> dict[str, int]:
        return {}


@dataclass(frozen=True)
class Parts:
    """The parts of a pipeline; parts that are not given are the real ones."""

    sink: str
    guarantee: str
    variant: str
    protocol: Protocol | None = None
    opens: Callable[[SinkSettings], Sink] | None = None
    operator: type[Sessions] = Sessions
    spark: type[Spark] = Spark
    quarantine: type[QuarantineList] = QuarantineList
    watched_by: Callable[[Mapping[str, Any]], Reader] | None = None  # the observer's reader
    config: Callable[[PipelineConfig, int], PipelineConfig] = lambda config, _attempt: config
    on_lost: str = "rewrite"
    refuses_older_checkpoint: bool = True


class Run:
    """One run: its folder, its durable state, its faults, and the rows that its observer saw."""

    faults = ("some",)  # as in Failpoints: with faults, the protocols pass every point

    def __init__(self, parts: Parts, faults: tuple[Fault, ...], folder: Path) -> None:
        self.parts, self.left, self.folder = parts, list(faults), folder
        self.sink = suite_sinks()[parts.sink]
        self.kind = self.sink.kind
        self.world, self.arrivals = small_world()
        self.checkpoint = Checkpoint()
        self.quarantine = parts.quarantine()
        self.attempts = 0
        (folder / "record").mkdir(parents=True)
        self.target = self.sink.provide(Place("small", folder, PARTITIONS, KafkaAccess(""), str, SCHEMA, KEY))
        self.observer = (parts.watched_by or self.sink.read)(self.target)
        self.seen: list[Rows] = []
        self.batch_lines: list[dict[str, Any]] = []  # survive the loss of a checkpoint
        self.forced: set[int] = set()  # inodes of files forced to the disk

    def asks_for(self, _point: str) -> bool:
        """See `Failpoints.asks_for`: true, so the protocols pass every point."""
        return True

    def reach(self, point: str, batch: int, _rows: int | None = None, partition: int | None = None) -> None:
        """See `Failpoints.reach`."""
        if partition is None or point == "after-prepare":
            self.look()  # not earlier: the reader would read a file that was just begun as empty, and never again
        for fault in self.left:
            if (fault.point, fault.batch) == (point, batch) and partition in (None, PARTITIONS - 1):
                self.left.remove(fault)
                if fault.does is None:
                    raise Died(f"at {point} of batch {batch}")
                fault.does(self)
                break

    def batch_line(self, number: int) -> dict[str, Any]:
        """The progress line of a batch in the commit log."""
        ends = {str(partition): offset for partition, offset in self.checkpoint.offsets[number].items()}
        return {"kind": "batch", "batch": number, "end_offsets": ends}

    def look(self) -> None:
        """Lets the observer poll the sink once."""
        self.seen.append(self.observer.poll(0))

    def run_attempt(self) -> bool:
        """Runs one attempt; returns whether it survived until the input ended."""
        progress = Progress(self.folder / "record" / "progress.jsonl", whole=False)
        try:
            with patch("os.fsync", lambda handle: self.forced.add(os.fstat(handle).st_ino)):
                return self._run_attempt(self.config(self.attempts), progress)
        finally:
            os.close(progress._handle)

    def _run_attempt(self, config: PipelineConfig, progress: Progress) -> bool:
        attempt, self.attempts = self.attempts, self.attempts + 1
        parts, target = self.parts, target_of(config)
        operator = parts.operator(config.session_timeout_ms)
        encode = as_lines if parts.sink == "files-jsonl" else as_columns
        spark = parts.spark(self.checkpoint, self.arrivals, operator, attempt, encode)
        try:
            journal = open_journal(config.checkpoint, identity_of(target, config.partitions))
            sink = (parts.opens or self.kind.open)(
                SinkSettings(config.output, config.sink_id, config.partitions, config.checkpoint)
            )
            sink.check_schema(SCHEMA)
            sink.start(target.support, journal.generation, journal.newest_prepared())
            journal.check_still_ours()
            if parts.refuses_older_checkpoint:
                refuse_older_checkpoint(sink, target)
            protocol, quarantine = (
                parts.protocol or protocol_of(self.kind, target.support),
                cast(Quarantine, self.quarantine),
            )
            deliver = Batches(
                protocol,
                sink,
                journal,
                config.partitions,
                quarantine,
                on_lost=config.on_lost,
                failpoints=cast(Failpoints, self),
                delivered=(progress.write_delivered,),
            )
            offsets = config.checkpoint / "offsets"  # the delivery code reads only the names of Spark's files
            offsets.mkdir(exist_ok=True)
            while (number := spark.plan()) is not None:
                (offsets / str(number)).touch()
                deliver(cast(Any, spark.rows(number)), spark.name(number))
                spark.commit(number)
                self.batch_lines.append(self.batch_line(number))
                self.reach("after-commit-log", number)
        except (Died, SparkDied, PipelineError):
            return False
        self.look()
        return True

    def config(self, attempt: int) -> PipelineConfig:
        """The configuration of one attempt."""
        parts = self.parts
        config = PipelineConfig(
            bootstrap_servers="nowhere",
            input_topic="input",
            output=self.target,
            quarantine_topic="quarantine",
            sink=parts.sink,
            guarantee=parts.guarantee,
            variant=parts.variant,
            sink_id="small",
            checkpoint=self.folder / "checkpoint",
            record=self.folder / "record",
            partitions=PARTITIONS,
            session_timeout_ms=200,
            on_lost=parts.on_lost,
        )
        return parts.config(config, attempt)

    def to_the_end(self) -> Record:
        """Starts the driver again and again, as the supervisor does; returns the record of the run."""
        drained = any(self.run_attempt() for _ in range(MAX_ATTEMPTS))
        return self.record(events.DRAINED if drained else events.STALLED)

    def record(self, end: str) -> Record:
        """The record for the auditors."""
        self.observer.close()
        final: list[Rows] = []
        with closing(self.sink.read(self.target)) as reader:
            report = reader.read_to_end(final.append, settle_s=0.0, idle_s=0.0)
            leftovers = reader.leftovers()
        ends = {"output": report.ends_json(), "output_is_log": report.log, "leftovers": leftovers}
        log = self.checkpoint
        batches = [
            *self.batch_lines,
            *(line for line in map(self.batch_line, sorted(log.commits)) if line not in self.batch_lines),
        ]
        lines = read_lines(self.folder / "record" / "progress.jsonl").items
        reported = [line for line in lines if line["kind"] == "sink"]
        return make_record(
            self.world,
            input=input_of(self.arrivals),
            final=Stream(table(final, FINAL, "timestamp_ms"), complete=report.complete),
            observed=Stream(table(self.seen, OBSERVED, "append_ms"), complete=True),
            quarantine=Stream(quarantine_table(self.quarantine.held), complete=True),
            ends={**ends, "final_complete": report.complete},
            progress=Lines((*batches, *reported)),
            timeline=Lines(({"t_us": 1, "event": end},)),
        )


def table(reads: list[Rows], schema: pa.Schema, time: str) -> pa.Table:
    """The rows of a reader's polls, in order; polls are a millisecond apart."""
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for look, rows in enumerate(reads):
        for name in ("partition", "offset", "key", "value"):
            columns[name] += getattr(rows, name)
        columns[time] += rows.append_ms
        if "seen_us" in columns:
            columns["seen_us"] += [STARTED_US + 1000 * (look + 1)] * len(rows)
    return pa.table(columns, schema)


def start_successor(run: Run) -> None:
    """The driver stops here; a successor starts and runs to its end; then the driver continues."""
    run.run_attempt()
