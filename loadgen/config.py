"""The configuration of a load, read from JSON and checked before anything starts."""

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import ConfigDict, Field, SkipValidation, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from loadgen.errors import ConfigError
from loadgen.pacing import Rate, Shape, parse_rate, parse_shape
from loadgen.replay.file import RecordFile
from loadgen.session import EVENTS_PER_SESSION, MAX_RECORD_BYTES
from loadgen.share import Share
from loadgen.workloads import SESSIONS, WORKLOADS
from oncebench.kafka_access.access import KafkaAccess
from oncebench.kafka_access.refused import AccessRefused

MAX_SESSIONS = 10**8
"""A session key has eight digits."""

MAX_SKEW = 10
"""Of 1,000 sessions, less than one then comes to the second partition."""

MAX_PASSES = 10**6
"""Enough to make any load of any file; a load has at most MAX_SESSIONS."""

MAX_GENERATORS = 64
"""Each is a process of 80 MB, and plans the whole load."""

_TOPIC = r"^(?!\.\.?\Z)[a-zA-Z0-9._-]{1,249}\Z"  # Kafka's rule (org.apache.kafka.common.internals.Topic)

_OTHER_NAME = "message.timeout.ms"

_RESERVED = {
    "bootstrap.servers": "use the field bootstrap_servers",
    "metadata.broker.list": "use the field bootstrap_servers",
    _OTHER_NAME: "use its other name, delivery.timeout.ms",
    "enable.idempotence": "without it the topic may hold events that the ledger does not record",
    "acks": "an acknowledgement must mean that the event is in the topic",
    "request.required.acks": "an acknowledgement must mean that the event is in the topic",
    "transactional.id": "the load is not transactional",
    "partitioner": "a key must be in the partition where Java clients look for it (murmur2)",
    "delivery.report.only.error": "the ledger needs every report",
    "allow.auto.create.topics": "a mistyped topic must fail and not be created",
}


def _whole(lowest: int, highest: int) -> Any:
    """A whole number in a range; an error message prints its description as what is expected."""
    return Field(strict=True, ge=lowest, le=highest, description=f"a whole number from {lowest} to {highest}")


@dataclass(frozen=True)
class Replayed:
    """The file of the workload `records`.

    Attributes:
        path, key: see `RecordFile`.
        passes: how often the whole file is sent; None: as often as the sessions of the load need.
        prefix: of the events' ids.
    """

    path: Path
    key: str = ""
    passes: Annotated[int | None, _whole(1, MAX_PASSES)] = 1
    prefix: str = ""

    @cached_property
    def file(self) -> RecordFile:
        """The file, which must not change any more."""
        return RecordFile(self.path, self.key)

    @cached_property
    def events(self) -> int | None:
        """The number of events of all passes; None if the passes have no limit.

        This reads the whole file.

        Raises ConfigError as `RecordFile.count`.
        """
        return None if self.passes is None else self.file.count() * self.passes


@dataclass(frozen=True, config=ConfigDict(extra="forbid", regex_engine="python-re"))
class LoadConfig:
    """A load.

    Attributes:
        bootstrap_servers: addresses of Kafka brokers.
        topic: the topic that receives the events; it must exist.
        rate: events per second, or "max" (flat out).
        sessions: number of sessions.
        ledger_dir: folder for the ledger; it must not hold one yet.
        shape: how the rate changes over time, see `loadgen.pacing`.
        seed: start of the random numbers.
        events_per_session: the first events of each session; with fewer than 100 no session ends.
        record_bytes: shorter values are padded to this size.
        skew: how unevenly sessions are spread over the partitions, see `loadgen.session.partitions`; 0: by their keys.
        workload: `sessions`, `windows` or `records`, see `loadgen.workloads`.
        replayed: the file of the workload `records`, and None for the others. The load has at most its events.
        status_path: JSON-lines file for the status; only `python -m loadgen` writes it.
        client: further librdkafka settings (linger.ms). They may hold secrets and are never written.
        kafka_conf: a file of Java properties with the settings of the cluster, such as security.
        kafka: further settings of the cluster, with the names of Java clients; no secrets.
        generator, generators: this process makes share number `generator` (from 1) of `generators`, see
            `loadgen.share`.
        meeting_dir: where several generators agree on the start, see `loadgen.plan`.

    Raises:
        ConfigError: a field is wrong; the message names the first one, its value and what is expected.
    """

    bootstrap_servers: Annotated[str, Field(pattern=r".*\S", description="host:port[,host:port...]")]
    topic: Annotated[str, Field(pattern=_TOPIC, description="a topic name; use letters, digits, '.', '_', '-'")]
    rate: Annotated[Rate, SkipValidation]  # `parse_rate` checks it
    sessions: Annotated[int, _whole(1, MAX_SESSIONS)]
    ledger_dir: Annotated[Path, Field(description="a path")]
    shape: Annotated[str, Field(description="text")] = "constant"
    seed: Annotated[int, _whole(0, 2**64 - 1)] = 0
    events_per_session: Annotated[int, _whole(1, EVENTS_PER_SESSION)] = EVENTS_PER_SESSION
    record_bytes: Annotated[int, _whole(0, MAX_RECORD_BYTES)] = 0
    skew: Annotated[
        float, Field(ge=0, le=MAX_SKEW, allow_inf_nan=False, description=f"a number from 0 to {MAX_SKEW}")
    ] = 0.0
    workload: Annotated[
        str, Field(pattern=rf"^({'|'.join(WORKLOADS)})\Z", description=f"one of {', '.join(WORKLOADS)}")
    ] = SESSIONS.name
    replayed: Annotated[Replayed | None, Field(description="an object with the path of a file")] = None
    status_path: Annotated[Path | None, Field(description="a path")] = None
    client: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    kafka_conf: Annotated[str, Field(description="a path")] = ""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    generator: Annotated[int, _whole(1, MAX_GENERATORS)] = 1
    generators: Annotated[int, _whole(1, MAX_GENERATORS)] = 1
    meeting_dir: Annotated[Path | None, Field(description="a path")] = None

    @model_validator(mode="wrap")
    @classmethod
    def _in_plain_words(cls, data: Any, validate: Callable[[Any], Self]) -> Self:
        try:
            return validate(data)
        except ValidationError as error:
            raise ConfigError(_message(error.errors()[0])) from None

    def __post_init__(self) -> None:
        parse_shape(self.shape, parse_rate(self.rate), self.sessions * self.events_per_session)
        if self.generator > self.generators:
            raise ConfigError(f"generator: {self.generator} is more than generators, {self.generators}")
        if self.generators > self.sessions:
            raise ConfigError(f"generators: {self.generators} are more than the {self.sessions} sessions of the load")
        if (self.generators > 1) != (self.meeting_dir is not None):
            raise ConfigError("meeting_dir: several generators need it to agree on the start, and one needs none")
        if WORKLOADS[self.workload].replays != (self.replayed is not None):
            raise ConfigError("replayed: the workload records needs it, and the others do not take it")
        if self.skew and self.replayed is not None:
            raise ConfigError("skew: the records of a file are spread by their own keys")
        if self.events_per_session != EVENTS_PER_SESSION and self.replayed is not None:
            raise ConfigError("events_per_session: the records of a file are all sent")
        for name in self.client:
            if name in _RESERVED:
                raise ConfigError(f"client: {name!r} cannot be set: {_RESERVED[name]}")
        if _OTHER_NAME in self.kafka:  # in the file it has no effect
            raise ConfigError(f"kafka: {_OTHER_NAME!r} cannot be set: {_RESERVED[_OTHER_NAME]}")
        try:
            self.access  # noqa: B018  reads and checks the settings
        except AccessRefused as refused:
            raise ConfigError(str(refused)) from None

    @cached_property
    def access(self) -> KafkaAccess:
        """How clients reach the cluster."""
        return KafkaAccess(self.bootstrap_servers, self.kafka_conf, self.kafka)

    @property
    def share(self) -> Share:
        """The sessions that this process sends."""
        return Share(self.generator, self.generators)

    @property
    def events(self) -> int:
        """Number of planned events of the whole load."""
        most = self.sessions * self.events_per_session
        found = None if self.replayed is None else self.replayed.events
        return most if found is None else min(most, found)

    @property
    def own_events(self) -> int:
        """Number of planned events of this process."""
        whole, more = divmod(self.events, self.events_per_session)
        own_more = more if self.share.sessions(whole + 1) > self.share.sessions(whole) else 0
        return self.share.sessions(whole) * self.events_per_session + own_more

    def parsed_shape(self) -> Shape:
        """The shape as an object; raises ConfigError as `parse_shape` does."""
        return parse_shape(self.shape, parse_rate(self.rate), self.events)

    @classmethod
    def from_mapping(cls, data: object) -> Self:
        """Reads a JSON object. Raises ConfigError, also for a missing or an unknown field."""
        if not isinstance(data, Mapping):
            raise ConfigError("the config must be a JSON object")
        return cls(**data)


def read_config(path: Path) -> LoadConfig:
    """Reads a JSON file. Raises ConfigError; the message starts with the file's name."""
    try:
        return LoadConfig.from_mapping(json.loads(path.read_text()))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not JSON: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _message(error: Mapping[str, Any]) -> str:
    """Names the wrong field, its value and what is expected.

    Values of `client` are left out: they may be secret.
    """
    known = cast(Any, LoadConfig).__pydantic_fields__
    place, *setting = error["loc"]
    name = list(known)[place] if isinstance(place, int) else place
    if name == "replayed" and setting:
        return f"replayed: {setting[0]}: {error['input']!r} is wrong: {error['msg']}"
    if error["type"] == "missing":
        return f"{name}: is missing; the config needs {', '.join(each for each in known if known[each].is_required())}"
    if name not in known:
        return f"{name}: is not a field of the config; known are {', '.join(sorted(known))}"
    if setting:
        return f"{name}: the value of {setting[0]!r} must be text, a number or true/false"
    if name == "client":
        return "client: must be an object of librdkafka settings"
    if name == "kafka":
        return "kafka: must be an object of settings with the names of Java clients"
    return f"{name}: {error['input']!r} is not {known[name].description}"
