"""A kind of sink in the benchmark suite: an output per run, a committed reader and traits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from oncebench.delivery.contract import SinkKind
from oncebench.kafka_access.access import KafkaAccess

if TYPE_CHECKING:
    from oncebench.sinks.reader import LogReader, Reader


@dataclass(frozen=True)
class Place:
    """The place for a run's output, and the form of its rows.

    Attributes:
        name: of the run, never used before; letters, digits, `.`, `_` and `-`. Also the pipeline's sink_id.
        folder: of the run, for sinks that write files.
        partitions: of the input and of each batch.
        kafka: the cluster that every run has.
        make_topic: creates a topic of that many partitions on the cluster, and returns its name.
        schema: columns of the rows.
        key: the column that names a row's session, for readers of sinks that have no record key.
        black_box: see `Cell.black_box`; other sinks ignore it.
        start_timeout_s: how long a user's function may give no answer. None: as long as the sink allows.
    """

    name: str
    folder: Path
    partitions: int
    kafka: KafkaAccess
    make_topic: Callable[[str], str]
    schema: StructType
    key: str
    black_box: str = ""
    start_timeout_s: float | None = None


@dataclass(frozen=True)
class Traits:
    """Facts about a kind of sink that the audit needs, written into each run's record.

    Attributes:
        ordered: a reader sees the rows of a session in the order in which they were written.
        self_cleaning: no reader sees leftovers of dead writers; the sink or the table's maintenance removes them
            (for example Delta's VACUUM). They are reported, not counted as a violation.
        batch_atomic: a batch becomes visible in one step.
        has_write_timestamps: the reader returns when a row was written, which may be before it was committed; other
            readers return when the row was committed or found.
        services: servers that a run needs in addition to Kafka (`oncebench.servers.sink_servers`).
    """

    ordered: bool
    self_cleaning: bool = False
    batch_atomic: bool = False
    has_write_timestamps: bool = False
    services: tuple[str, ...] = ()


@dataclass(frozen=True)
class SuiteSink:
    """A kind of sink as the suite runs it.

    Attributes:
        kind: what a job needs.
        traits: what the audit needs.
        provide: makes an empty output and returns its target, a JSON object. `SinkSettings.output` and `read` find the
            output by it; its field `output` is a name for people. Secrets stay in the environment.
        read: opens a committed reader of a target.
        read_part: (target, part, parts) -> a committed reader of some partitions of the target. All parts together,
            numbered from 1, read each row once. None: only one observer can read the output.
        log: opens a reader of the log under a target, where the log names the writer of each record.
        transactional_ids: sink_id -> prefix of its Kafka transactional ids, if it holds Kafka transactions.
        marker_group: (sink_id, partition) -> the consumer group with the partition's marker, if the sink keeps its
            markers in Kafka.
        single_writer: a task that has begun to write keeps every other writer out until it ends.
        writes_local_files: its rows are files below `Place.folder`.
        fault_s, random_kill_s: seconds per fault of a chain, and per random kill, by which `oncebench faults` estimates
            its time. Measured on two cores, with three runs in parallel and a part of the run's start (docs/faults.md).
    """

    kind: SinkKind
    traits: Traits
    provide: Callable[[Place], dict[str, Any]]
    read: Callable[[Mapping[str, Any]], Reader]
    read_part: Callable[[Mapping[str, Any], int, int], Reader] | None = None
    log: Callable[[Mapping[str, Any]], LogReader] | None = None
    transactional_ids: Callable[[str], str] | None = None
    marker_group: Callable[[str, int], str] | None = None
    single_writer: bool = False
    writes_local_files: bool = False
    fault_s: float = 14.0
    random_kill_s: float = 9.0  # 1,190 of them took 26 s each in one of three parallel runs
