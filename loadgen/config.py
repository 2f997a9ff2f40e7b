"""What a load is to be: the one file that `python -m loadgen` reads, checked before anything is started."""

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from loadgen.errors import ConfigError
from loadgen.pacing import Rate, Shape, parse_rate, parse_shape
from loadgen.session import EVENTS_PER_SESSION, MAX_RECORD_BYTES

MAX_SESSIONS = 10**8
"""A session key has eight digits."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # what Kafka allows (org.apache.kafka.common.internals.Topic)

_RESERVED = {
    "bootstrap.servers": "it has a field of its own, bootstrap_servers",
    "metadata.broker.list": "it has a field of its own, bootstrap_servers",
    "enable.idempotence": "without it the topic could hold what the ledger does not know",
    "acks": "an acknowledgement must mean that the event is in the topic",
    "request.required.acks": "an acknowledgement must mean that the event is in the topic",
    "transactional.id": "the load is not transactional",
    "partitioner": "a key must land where Java clients look for it (murmur2)",
    "delivery.report.only.error": "the ledger needs every report",
    "allow.auto.create.topics": "a mistyped topic must fail, not come into being",
}


@dataclass(frozen=True)
class LoadConfig:
    """A load.

    `rate`: events per second, or "max" (flat out). `sessions`: how many. `shape`: see
    `loadgen.pacing`. `events_per_session`: of each session only so many, from its first on; fewer than 100 make
    sessions that never end. `record_bytes`: shorter values are padded to so many bytes. `ledger_dir`: must not
    hold a ledger yet. `status_path`: JSON lines; only the process writes them. `client`: further librdkafka
    settings (security, linger.ms); they may hold secrets and are written nowhere.

    Raises ConfigError on the first field that is wrong.
    """

    bootstrap_servers: str
    topic: str
    rate: Rate
    sessions: int
    ledger_dir: Path
    shape: str = "constant"
    seed: int = 0
    events_per_session: int = EVENTS_PER_SESSION
    record_bytes: int = 0
    status_path: Path | None = None
    client: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.bootstrap_servers, str) or not self.bootstrap_servers.strip():
            raise ConfigError(f"bootstrap_servers: {self.bootstrap_servers!r} is not host:port[,host:port...]")
        if not isinstance(self.topic, str) or not _TOPIC.fullmatch(self.topic) or self.topic in (".", ".."):
            raise ConfigError(f"topic: {self.topic!r} is no topic name; use letters, digits, '.', '_', '-'")
        _whole_number("sessions", self.sessions, 1, MAX_SESSIONS)
        _whole_number("events_per_session", self.events_per_session, 1, EVENTS_PER_SESSION)
        _whole_number("record_bytes", self.record_bytes, 0, MAX_RECORD_BYTES)
        _whole_number("seed", self.seed, 0, 2**64 - 1)
        for name in ("ledger_dir", "status_path"):
            value = getattr(self, name)
            if not (isinstance(value, Path) or (value is None and name == "status_path")):
                raise ConfigError(f"{name}: {value!r} is not a path")
        if not isinstance(self.shape, str):
            raise ConfigError(f"shape: {self.shape!r} is not text")
        self.parsed_shape()
        if not isinstance(self.client, Mapping):
            raise ConfigError("client: must be an object of librdkafka settings")
        for name, value in self.client.items():
            if name in _RESERVED:
                raise ConfigError(f"client: {name!r} cannot be set: {_RESERVED[name]}")
            if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
                raise ConfigError(f"client: the value of {name!r} must be text, a number or true/false")

    @property
    def events(self) -> int:
        """Planned events."""
        return self.sessions * self.events_per_session

    def parsed_shape(self) -> Shape:
        """The shape as an object; raises ConfigError as `parse_shape` does."""
        return parse_shape(self.shape, parse_rate(self.rate), self.events)

    @classmethod
    def from_mapping(cls, data: object) -> "LoadConfig":
        """The config that a JSON object holds. Raises ConfigError, also for a missing or an unknown field."""
        if not isinstance(data, Mapping):
            raise ConfigError("the config must be a JSON object")
        known = {f.name for f in fields(cls)}
        needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        if missing := [name for name in needed if name not in data]:
            raise ConfigError(f"{missing[0]}: is missing; the config needs {', '.join(needed)}")
        if unknown := sorted(set(data) - known):
            raise ConfigError(f"{unknown[0]}: is no field of the config; known are {', '.join(sorted(known))}")
        given: dict[str, Any] = dict(data)
        for name in ("ledger_dir", "status_path"):
            if isinstance(given.get(name), str):
                given[name] = Path(given[name])
        return cls(**given)


def read_config(path: Path) -> LoadConfig:
    """The config in a JSON file. Raises ConfigError, with the file's name in front."""
    try:
        return LoadConfig.from_mapping(json.loads(path.read_text()))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not JSON: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _whole_number(name: str, value: object, lowest: int, highest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise ConfigError(f"{name}: {value!r} is not a whole number from {lowest} to {highest}")
