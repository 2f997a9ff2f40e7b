"""A cell: everything that one run depends on.

A cell consists of sink, guarantee, variant, faults, load and settings.

Promise: `reproduce` returns the one command that runs the same cell again. `oncebench.scenario.reproduce` adds servers.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any, cast

from loadgen.pacing import Rate, lasts_s, parse_shape
from loadgen.session import EVENTS_PER_SESSION
from oncebench.delivery.decisions import DROP, REWRITE
from pipeline.config import AS_SHIPPED, CHANGELOG, SESSIONS, SNAPSHOTS, TUNED
from pipeline.spark.cluster.masters import is_local

RECOVERY_CHOICES = (REWRITE, DROP)
CHECKPOINT_CHOICES = (TUNED, AS_SHIPPED)
STATE_CHOICES = (CHANGELOG, SNAPSHOTS)
# One broker, or the smallest cluster that takes rows with acks=all while one of its brokers is away.
BROKER_CHOICES = (1, 3)
MOST_FAULTS_LISTED = 3  # so many fit into one line of a terminal


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
        sink, guarantee, variant: the configuration under test.
        faults: fault specifications, in the order in which they act. A cell without faults is healthy.
        random_kills: number of SIGKILLs at Poisson times, drawn from `seed`, in addition to `faults`. The times are
            drawn from the time for which the pipeline has work. Kills that are left when the pipeline has read the
            whole load come at once, and the run is vacuous.
        outage_s: seconds between a random kill and the restart. Under exactly-once such a kill waits until the pipeline
            commits a Kafka transaction, and the commit does not reach the broker.
        workload: what the pipeline computes, see `oncebench.scenario.workloads`.
        records: a file of JSON lines, for the workload `records` only.
        records_key: the field of a record that is its key in Kafka; empty: the records have no key.
        passes: how often the file is sent.
        rate: events per second, or "max": the whole load is in the topic before the pipeline starts.
        sessions: number of sessions, of `EVENTS_PER_SESSION` events each.
        open_sessions: sessions that are in the pipeline's state before the load begins, and never end.
        record_bytes: shorter events are padded to so many bytes. 0: no padding (an event has about 110 bytes).
        shape: how the rate changes over time, see `loadgen.pacing`.
        skew: how unevenly the sessions are spread over the partitions of the input, see `loadgen.session.partitions`;
            0: by their keys.
        seed: seed of the load and of random kills.
        trigger_ms: time between micro-batches. 0: as fast as possible.
        partitions: partitions of input and output topics, and Spark tasks per batch.
        max_events_per_batch: limit of one batch. None: a batch takes everything that is there.
        transaction_timeout_ms, on_lost, checkpoint_writing, state_store, master: see `pipeline.config`.
        checkpoint: where the checkpoint is, as `s3://bucket/folder`; each run has a folder of its own there. Empty: in
            the run's folder.
        spark_conf: Spark's settings of the user, each as NAME=VALUE; a later one overrides an earlier one.
        warmup_s: seconds that are not measured, from the load's start. Excluded are latencies of sessions that ended
            earlier, batches that began earlier, and resources that processes used until then. A load that is over
            sooner has no latencies and no batches, and its prices are those of the whole load. For a flat-out load they
            count from the query's start; it is measured as a whole if less than half of it is left then.
        brokers: brokers of the run's own Kafka, each with a replica of every topic.
        workers: workers of a Spark cluster that the run starts on this machine. 0: the Spark of `master`.
        replication: replicas of the run's topics on the user's own Kafka. None: its default.replication.factor.
        generators: processes that make the load together, each some of the sessions (`loadgen.share`).
        observers: processes that follow the output together, each some of its partitions.
        black_box: the user's functions and settings as JSON, for the sink `black-box` only
            (`oncebench.sinks.black_box.target`).
    """

    sink: str
    guarantee: str
    variant: str
    faults: tuple[str, ...] = ()
    random_kills: int = 0
    outage_s: float = 0.0
    workload: str = SESSIONS
    records: str = ""
    records_key: str = ""
    passes: int = 1
    rate: float | str = 2000.0
    sessions: int = 200
    open_sessions: int = 0
    record_bytes: int = 0
    shape: str = "constant"
    skew: float = 0.0
    seed: int = 1
    trigger_ms: int = 0
    partitions: int = 2
    max_events_per_batch: int | None = None
    transaction_timeout_ms: int = 60_000
    on_lost: str = REWRITE
    checkpoint_writing: str = TUNED
    state_store: str = CHANGELOG
    master: str = "local[2]"
    checkpoint: str = ""
    spark_conf: tuple[str, ...] = ()
    warmup_s: float = 3.0
    brokers: int = 1
    workers: int = 0
    replication: int | None = None
    generators: int = 1
    observers: int = 1
    black_box: str = ""

    @property
    def faulted(self) -> bool:
        """Whether the run has any fault."""
        return bool(self.faults or self.random_kills)

    @property
    def on_this_machine(self) -> bool:
        """Whether all processes of the pipeline run on this machine.

        The suite measures and stops them only there.
        """
        return is_local(self.master)

    @property
    def on_cluster(self) -> bool:
        """Whether tasks run in executors of a standalone cluster, the run's own or another."""
        return not is_local(self.master) or bool(self.workers)

    @property
    def spark_text(self) -> str:
        """The option that chose the cell's Spark."""
        return f"--cluster {self.workers}" if self.workers else f"--master {self.master}"

    @property
    def load_s(self) -> float:
        """Planned duration of the load in seconds; 0 where the whole load is due at once."""
        events = self.sessions * EVENTS_PER_SESSION
        return lasts_s(parse_shape(self.shape, cast(Rate, self.rate), events), events)

    @property
    def title(self) -> str:
        """The cell in words: `kafka exactly-once two-phase, after-commit:kill`."""
        what = ", ".join((*self.faults, *([f"{self.random_kills} random kills"] if self.random_kills else [])))
        return f"{self.sink} {self.guarantee} {self.variant}, {what or 'healthy'}{self._more_text}"

    @property
    def brief(self) -> str:
        """Returns the title for progress lines, with the number of faults if the list is long."""
        if len(self.faults) <= MOST_FAULTS_LISTED:
            return self.title
        plain = replace(
            self,
            faults=(),
            workload=SESSIONS,
            skew=0.0,
            open_sessions=0,
            brokers=1,
            workers=0,
            checkpoint="",
            generators=1,
            observers=1,
        )
        configuration = plain.title.removesuffix(", healthy")
        return f"{configuration}, {len(self.faults)} faults{self._more_text}"

    @property
    def _more_text(self) -> str:
        brokers = f", {self.brokers} brokers" if self.brokers > 1 else ""
        workers = f", cluster of {self.workers}" if self.workers else ""
        store = ", checkpoint in an object store" if self.checkpoint else ""
        generators = f", {self.generators} generators" if self.generators > 1 else ""
        observers = f", {self.observers} observers" if self.observers > 1 else ""
        state = f", {self.open_sessions} open sessions" if self.open_sessions else ""
        workload = "" if self.workload == SESSIONS else f", {self.workload}"
        skew = f", skew {self.skew:g}" if self.skew else ""
        return workload + skew + state + brokers + workers + store + generators + observers

    def reproduce(
        self, program: Sequence[str] = ("oncebench", "run"), defaults: Mapping[str, Any] = MappingProxyType({})
    ) -> str:
        """The command that runs this cell again; options at their defaults are left out.

        Args:
            program: the words before the options.
            defaults: the program's defaults that differ from those of a cell.
        """
        default = replace(Cell(self.sink, self.guarantee, self.variant), **defaults)
        words = [*program, "--sink", self.sink, "--guarantee", self.guarantee, "--variant", self.variant]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("sink", "guarantee", "variant") or value == getattr(default, field.name):
                continue
            if field.name == "sessions" and self.records:  # the file gives their number
                continue
            if field.name in _REPEATED:
                words += [word for each in value for word in (_REPEATED[field.name], each)]
            else:
                text = f"{value:.0f}" if isinstance(value, float) and value.is_integer() else f"{value}"
                words += [_OPTIONS.get(field.name, "--" + field.name.replace("_", "-")), text]
        words += [] if "--sessions" in words or self.records else ["--sessions", str(self.sessions)]
        return shlex.join(words)

    def as_json(self) -> dict[str, Any]:
        """The cell as stored in `cell.json` and in a report."""
        return asdict(self) | {name: list(getattr(self, name)) for name in _REPEATED}


# Options that may be given several times.
_REPEATED = {"faults": "--fault", "spark_conf": "--spark-conf"}
# Options whose name differs from the field's.
_OPTIONS = {
    "outage_s": "--outage",
    "records_key": "--key",
    "trigger_ms": "--trigger",
    "transaction_timeout_ms": "--transaction-timeout",
    "warmup_s": "--warmup",
    "workers": "--cluster",
}


def counts_rows(variant: str) -> bool:
    """Whether the pipeline counts the rows of each batch. Spark's own sinks return no count."""
    return variant not in ("native", "format")
