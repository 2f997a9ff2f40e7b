"""The configuration of one pipeline process, read from a JSON file.

Promise: an unknown, missing or wrong field is refused with its name before anything starts.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from oncebench.delivery.durable import is_uri
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.failpoints import Fault, parse_fault
from oncebench.delivery.stores.choose import Place, place_at
from oncebench.delivery.stores.objects import ObjectStore
from oncebench.kafka_access.access import KafkaAccess
from oncebench.kafka_access.refused import AccessRefused
from oncebench.sinks.sink_ids import refuse_unfit_sink_id

# As fast as possible: the next batch begins when the previous one has ended.
TRIGGER_ASAP = 0
TUNED, AS_SHIPPED = "tuned", "as-shipped"
CHANGELOG, SNAPSHOTS = "changelog", "snapshots"
SESSIONS, WINDOWS, RECORDS = "sessions", "windows", "records"


@dataclass(frozen=True)
class PipelineConfig:
    """All settings of one run of the pipeline.

    Attributes:
        bootstrap_servers: the Kafka cluster of the input (and of the Kafka sink).
        input_topic: events, keyed by session.
        output: where rows go: a target that the sink's kind has provided.
        quarantine_topic: where rejected records go.
        sink, guarantee, variant: see `oncebench.sinks` and `oncebench.delivery.protocols`.
        sink_id: permanent name of this pipeline in the sink; letters, digits, `.`, `_` and `-`.
        checkpoint: the place of Spark's checkpoint and of our journal: a path, or `s3://bucket/folder`.
        record: the run folder; progress.jsonl, hits.jsonl and trace.jsonl go there.
        workload: the query, `sessions` (`pipeline.query`), `windows` or `records` (`pipeline.workloads`).
        partitions: tasks per batch (state partitions and writers).
        trigger_ms: ms between the starts of two batches; 0: no pause.
        max_events_per_batch: limit of one batch; None: all available events. The default is what a pipeline processes
            within the default of `transaction_timeout_ms` at 10,000 events/s, the least that the suite expects.
        session_timeout_ms: how long a session without a new event stays in the state at least, see
            `pipeline.sessions`.
        transaction_timeout_ms: how long a transaction may stay open, from its first row to its commit.
        on_lost: `rewrite`, or `drop` as Flink's sink does, if a decided transaction was aborted by its time-out.
        checkpoint_writing: `tuned` or `as-shipped`, see `pipeline.spark.session`.
        state_store: what each batch writes of RocksDB's state: changes (`changelog`) or files (`snapshots`).
        master: Spark master.
        jars: of the sink, for driver and workers.
        driver_jars: on the driver's own class path: Spark's Kafka connector, and the tuned local file system.
        jvm_options: more options of the driver's JVM (an archive of its classes).
        sockets: folder of the sockets between the JVM and its Python workers, set by `pipeline.spark.sockets`; None:
            TCP.
        faults: in the order in which they take effect.
        trace: whether passed failpoints are noted, which shows where a random kill hit.
        progress_whole: for a run that the audit judges by progress.jsonl: a line that cannot be written stops the
            pipeline, and no line is dropped because of its age. Otherwise see `pipeline.progress`.
        accept_gap: a loss of input or output that a refused start has printed, to go on without what is lost; see
            `oncebench.delivery.starts.gaps`.
        kafka: settings of every client, and of Spark's source as `kafka.NAME`, with the names of Java clients.
        kafka_conf: a file of Java properties with further settings, such as security; see `oncebench.kafka_access`.
        spark: the job's own Spark settings; they override those of `pipeline.spark.session`.
    """

    bootstrap_servers: str
    input_topic: str
    output: dict[str, Any]
    quarantine_topic: str
    sink: str
    guarantee: str
    variant: str
    sink_id: str
    checkpoint: Place
    record: Path
    workload: str = SESSIONS
    partitions: int = 2
    trigger_ms: int = TRIGGER_ASAP
    max_events_per_batch: int | None = 500_000
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
    progress_whole: bool = False
    accept_gap: str | None = None
    kafka: dict[str, str] = field(default_factory=dict, repr=False)
    kafka_conf: str = ""
    spark: dict[str, str] = field(default_factory=dict)

    @cached_property
    def access(self) -> KafkaAccess:
        """How clients reach the cluster.

        Raises:
            AccessRefused: a setting of `kafka` or `kafka_conf` cannot be used.
        """
        return KafkaAccess(self.bootstrap_servers, self.kafka_conf, self.kafka)

    @property
    def kafka_client(self) -> dict[str, str]:
        """The librdkafka settings of the cluster."""
        return self.access.client

    @property
    def monitoring_group(self) -> str:
        """The consumer group that shows the lag in any Kafka tool; the pipeline never reads it."""
        return f"{self.sink_id}.monitoring"


def read_config(path: Path) -> PipelineConfig:
    """Reads a configuration file.

    Raises:
        RefusedStart: the file is missing, not JSON, or a field is unknown, missing or wrong.
    """
    try:
        fields = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise RefusedStart(
            f"cannot read the pipeline's configuration {path}: {error}. Correct the path or the JSON."
        ) from error
    if not isinstance(fields, dict):
        raise RefusedStart(
            f"{path} must hold one JSON object with a field for each setting. Write the settings as such an object."
        )
    if "delivery" in fields and "guarantee" not in fields:  # its name in earlier versions
        fields["guarantee"] = fields.pop("delivery")
    known = {f.name: f for f in dataclasses.fields(PipelineConfig)}
    unknown = sorted(set(fields) - set(known))
    missing = sorted(name for name, f in known.items() if name not in fields and _required(f))
    if unknown or missing:
        raise RefusedStart(
            f"{path}: unknown fields {unknown}, missing fields {missing}. Rename or remove the unknown ones, and add "
            "the missing ones."
        )
    for name, value in fields.items():
        if not _is_text(value):
            raise RefusedStart(
                f"{path}: {name} has a character that no name, path or setting can have (NUL or half of a surrogate "
                "pair). Remove the character."
            )
        if not _fits(value, _HINTS[name]):
            raise RefusedStart(f"{path}: {_misfit(name, value)}")
        if name in _ONE_OF and value not in _ONE_OF[name]:
            choices = ", ".join(_ONE_OF[name])
            raise RefusedStart(f"{path}: {name} is {value!r}, and must be one of: {choices}. Correct this field.")
        if name in _AT_LEAST and value is not None and value < _AT_LEAST[name]:
            raise RefusedStart(
                f"{path}: {name} is {value!r}, and must be {_AT_LEAST[name]} or more. Correct this field."
            )
    refuse_unfit_sink_id(fields["sink_id"], str(path))
    if not isinstance(fields["output"].get("output"), str):
        raise RefusedStart(
            f'{path}: the field "output" lacks the text "output". Write "output": {{"output": NAME}} with the sink\'s '
            "topic, table or folder."
        )
    for name, text in (("output", fields["output"]["output"]), *((name, fields[name]) for name in _FOLDERS)):
        if not text:
            what = "folder" if name in _FOLDERS else "target"
            raise RefusedStart(f"{path}: {name} is empty, and must name a {what}. Correct this field.")
    if is_uri(str(Path(fields["record"]))):
        raise RefusedStart(
            f"{path}: record is {fields['record']!r}, a URI. Give the path of a folder in a mounted file system, for "
            "example /data/record."
        )
    try:
        checkpoint = place_at(fields["checkpoint"])
    except RefusedStart as refused:
        raise RefusedStart(f"{path}: {refused}") from None
    try:
        fields["faults"] = tuple(parse_fault(text) for text in fields.get("faults", ()))
    except ValueError as error:
        raise RefusedStart(f"{path}: {error}") from error
    for name in ("jars", "driver_jars", "jvm_options"):
        fields[name] = tuple(fields.get(name, ()))
    fields["record"] = Path(fields["record"])
    fields["checkpoint"] = checkpoint
    config = PipelineConfig(**fields)
    try:
        config.access  # noqa: B018  reads and checks the settings
    except AccessRefused as refused:
        raise RefusedStart(f"{path}: {refused}.") from None
    return config


def write_config(config: PipelineConfig, path: Path) -> None:
    """Writes a configuration file that `read_config` reads back."""
    fields: dict[str, Any] = dataclasses.asdict(config)
    fields["faults"] = [str(fault) for fault in config.faults]
    fields["checkpoint"] = str(config.checkpoint)
    path.write_text(json.dumps(fields, indent=1, default=str))


_HINTS = get_type_hints(PipelineConfig)
_FOLDERS = ("checkpoint", "record")
# In a wrong type, `kafka_conf` may hold the settings themselves, and `output` an address with its password.
_MAY_BE_SECRET = ("kafka", "kafka_conf", "spark", "output")
_ONE_OF = {
    "on_lost": ("rewrite", "drop"), "checkpoint_writing": (TUNED, AS_SHIPPED), "state_store": (CHANGELOG, SNAPSHOTS),
    "workload": (SESSIONS, WINDOWS, RECORDS),
}  # fmt: skip
_AT_LEAST = {
    "partitions": 1, "trigger_ms": TRIGGER_ASAP, "max_events_per_batch": 1, "session_timeout_ms": 1,
    "transaction_timeout_ms": 1,
}  # fmt: skip


def _is_text(value: Any) -> bool:
    """Whether the system, Spark and servers take every text in a value of a JSON file."""
    if isinstance(value, dict):
        return all(map(_is_text, (*value, *value.values())))
    if isinstance(value, list):
        return all(map(_is_text, value))
    try:
        return not isinstance(value, str) or b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _misfit(name: str, value: Any) -> str:
    """Returns the message for a value of the wrong type, without values that may be secret."""
    wanted = _in_json(_HINTS[name])
    if wanted == "an object of texts" and isinstance(value, dict):
        entry = next(key for key, each in value.items() if not isinstance(each, str))
        return f"{name}: {entry} must be a text. Write its value in quotation marks"
    if name in _MAY_BE_SECRET:
        return f"{name} must be {wanted}"
    return f"{name} is {value!r}, and must be {wanted}"


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value of a JSON file has a field's type."""
    if isinstance(hint, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin is tuple:  # faults or texts
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(inner[1] is Any or isinstance(each, inner[1]) for each in value.values())
    if origin is Path:
        return isinstance(value, str)
    return isinstance(value, origin) and (origin is not int or not isinstance(value, bool))


def _in_json(hint: Any) -> str:
    if isinstance(hint, UnionType):
        return " or ".join(dict.fromkeys(map(_in_json, get_args(hint))))
    words = {
        str: "a text",
        Path: "a text",
        ObjectStore: "a text",
        int: "a whole number",
        bool: "true or false",
        type(None): "null",
    }
    lists = {tuple: "a list of texts", dict: "an object" if get_args(hint)[1:] == (Any,) else "an object of texts"}
    return words.get(hint) or lists[get_origin(hint)]


def _required(f: Any) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
