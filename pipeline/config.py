"""The configuration of one pipeline process, read from a JSON file.

Promise: an unknown, missing or wrong field is refused with its name before anything is started.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import RefusedStart
from pipeline.failpoints import Fault, parse_fault

# As fast as possible: the next micro-batch begins when the last one is done.
TRIGGER_ASAP = 0
TUNED, AS_SHIPPED = "tuned", "as-shipped"
CHANGELOG, SNAPSHOTS = "changelog", "snapshots"


@dataclass(frozen=True)
class PipelineConfig:
    """Everything that a run of the pipeline depends on.

    Attributes:
        bootstrap_servers: the Kafka cluster of the input (and of the Kafka sink).
        input_topic: events, keyed by session.
        output: where rows go: a target that the sink's kind has provided.
        quarantine_topic: where records go that give no row.
        sink, delivery, variant: see `pipeline.sinks` and `pipeline.delivery`.
        sink_id: names this pipeline to the sink, for ever; letters, digits, `.`, `_` and `-`.
        checkpoint: folder of Spark's checkpoint and of our journal.
        record: folder for progress.jsonl, hits.jsonl and trace.jsonl.
        partitions: tasks per batch (state partitions and writers).
        trigger_ms: time between micro-batches; 0: as fast as possible.
        max_events_per_batch: limit of one batch; None: everything that is there.
        session_timeout_ms: event time after which a session that does not end leaves the state.
        transaction_timeout_ms: how long a prepared transaction may stay open.
        on_lost: `rewrite` or `drop` (as Flink's sink does) when a decided transaction was aborted by its time-out.
        checkpoint_writing: `tuned` or `as-shipped`, see `pipeline.spark`.
        state_store: what of RocksDB's state is written in each batch: its changes (`changelog`) or files (`snapshots`).
        master: Spark master.
        jars: of the sink, for driver and workers.
        driver_jars: on the driver's own class path: Spark's Kafka connector, and the tuned local file system.
        jvm_options: more options of the driver's JVM (an archive of its classes).
        sockets: folder of the sockets between the JVM and its Python workers; None: TCP. `pipeline.sockets` sets it.
        faults: in the order in which they are to act.
        trace: whether passed failpoints are noted (needed to tell where a random kill landed).
    """

    bootstrap_servers: str
    input_topic: str
    output: dict[str, Any]
    quarantine_topic: str
    sink: str
    delivery: str
    variant: str
    sink_id: str
    checkpoint: Path
    record: Path
    partitions: int = 2
    trigger_ms: int = TRIGGER_ASAP
    max_events_per_batch: int | None = None
    session_timeout_ms: int = 600_000
    transaction_timeout_ms: int = 60_000
    on_lost: str = "rewrite"
    checkpoint_writing: str = TUNED
    state_store: str = CHANGELOG
    master: str = "local[2]"
    jars: tuple[str, ...] = ()
    driver_jars: tuple[str, ...] = ()
    jvm_options: tuple[str, ...] = ()
    sockets: str | None = None
    faults: tuple[Fault, ...] = ()
    trace: bool = False
    kafka: dict[str, str] = field(default_factory=dict)

    @property
    def kafka_client(self) -> dict[str, Any]:
        """librdkafka settings of the cluster."""
        return {"bootstrap.servers": self.bootstrap_servers, **self.kafka}

    @property
    def monitoring_group(self) -> str:
        """Consumer group whose offsets show the lag to any Kafka tool; nothing reads them back."""
        return f"{self.sink_id}.monitoring"


def read_config(path: Path) -> PipelineConfig:
    """Reads a configuration file.

    Raises:
        RefusedStart: the file is missing, not JSON, or a field is unknown, missing or wrong.
    """
    try:
        fields = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RefusedStart(f"cannot read the pipeline's configuration {path}: {error}") from error
    known = {f.name: f for f in dataclasses.fields(PipelineConfig)}
    unknown = sorted(set(fields) - set(known))
    missing = sorted(name for name, f in known.items() if name not in fields and _required(f))
    if unknown or missing:
        raise RefusedStart(f"{path}: unknown fields {unknown}, missing fields {missing}")
    if not isinstance(fields["output"], dict):
        raise RefusedStart(f"{path}: output must be an object, as the sink's kind provides it")
    try:
        fields["faults"] = tuple(parse_fault(text) for text in fields.get("faults", ()))
    except ValueError as error:
        raise RefusedStart(f"{path}: {error}") from error
    for name in ("jars", "driver_jars", "jvm_options"):
        fields[name] = tuple(fields.get(name, ()))
    for name in ("checkpoint", "record"):
        fields[name] = Path(fields[name])
    return PipelineConfig(**fields)


def write_config(config: PipelineConfig, path: Path) -> None:
    """Writes a configuration file that `read_config` reads back."""
    fields: dict[str, Any] = dataclasses.asdict(config)
    fields["faults"] = [str(fault) for fault in config.faults]
    path.write_text(json.dumps(fields, indent=1, default=str))


def _required(f: Any) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
