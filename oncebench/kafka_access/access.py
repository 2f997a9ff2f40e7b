"""How clients reach one Kafka: the value that is passed on wherever a client is made.

Promise: neither a text of the value nor its JSON form has a secret that came from a file. The JSON form names the file,
and a child process reads the file itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from oncebench.kafka_access.forms import to_spark
from oncebench.kafka_access.properties import read_properties
from oncebench.kafka_access.refused import AccessRefused, Redacted, is_secret, refuse_fixed
from oncebench.kafka_access.security import LOCATIONS, is_security, to_librdkafka

GIVEN = "the Kafka settings"
SERVERS = "bootstrap.servers"
# Further settings that are taken from a file: about the connection only, with one meaning in all clients. Each has the
# numbers that librdkafka 2.16 accepts (CONFIGURATION.md); None: it is a text. Java accepts more, such as -1 for never.
_CONNECTION: Mapping[str, range | None] = {
    "client.id": None,
    "client.rack": None,
    "client.dns.lookup": None,
    "connections.max.idle.ms": range(2**31),
    "metadata.max.age.ms": range(1, 86_400_000 + 1),
    "reconnect.backoff.ms": range(3_600_000 + 1),
    "reconnect.backoff.max.ms": range(3_600_000 + 1),
    "retry.backoff.ms": range(1, 300_000 + 1),
    "retry.backoff.max.ms": range(1, 300_000 + 1),
    "socket.connection.setup.timeout.ms": range(1000, 2**31),
}
# librdkafka refuses a first pause above the longest one, for which some of our clients have a short default. Java then
# takes the longest one for the first (ExponentialBackoff). The numbers are Java's defaults.
_FIRST, _FIRST_MS = "reconnect.backoff.ms", 50
_LONGEST, _LONGEST_MS = "reconnect.backoff.max.ms", 1000
_ONLY_JAVAS = ("client.dns.lookup", "default")
_NUMBER = re.compile(r"[+-]?\d+")


class _Resolved(NamedTuple):
    """What the fields of a `KafkaAccess` lead to."""

    client: Redacted
    unused: tuple[str, ...]


@dataclass(frozen=True)
class KafkaAccess:
    """The addresses of a Kafka, and the settings of every client.

    Attributes:
        bootstrap_servers: `host:port` of brokers, separated by commas; empty: the file has them.
        conf: a file of Java properties, as Kafka's own tools take it; empty: none.
        settings: further settings, with the names of Java clients; they override those of the file. A relative path
            begins at the working folder.

    Raises:
        AccessRefused: a setting is wrong, not supported, or would undo a guarantee.
    """

    bootstrap_servers: str
    conf: str = ""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        # Absolute, because a child process may have another working folder.
        if self.conf:
            object.__setattr__(self, "conf", str(Path(self.conf).absolute()))
        object.__setattr__(self, "settings", {name: _absolute(name, value) for name, value in self.settings.items()})
        object.__setattr__(self, "bootstrap_servers", self._resolved.client[SERVERS])

    @property
    def client(self) -> Redacted:
        """The settings of librdkafka's clients.

        `oncebench.kafka_access.forms` makes the other forms of these settings.
        """
        return self._resolved.client

    @property
    def spark_options(self) -> dict[str, str]:
        """The options of Spark's Kafka source and sink, with their secrets."""
        return to_spark(self.client)

    @property
    def unused(self) -> tuple[str, ...]:
        """The settings in the file that have no effect here."""
        return self._resolved.unused

    # Not a field, so that no conversion of the fields has a secret.
    @cached_property
    def _resolved(self) -> _Resolved:
        read = read_properties(Path(self.conf)) if self.conf else {}
        file = {name: value.strip() for name, value in read.items()}  # as Kafka does (ConfigDef.parseType)
        in_file = file.pop(SERVERS, "")
        servers = self.bootstrap_servers or in_file
        if self.conf and not servers:
            raise AccessRefused(f"{self.conf} has no {SERVERS}. Give the addresses of the brokers")
        if SERVERS in self.settings:
            raise AccessRefused(f"{GIVEN}: {SERVERS} has a field of its own. Give it as bootstrap_servers")
        for explicit, found, where in ((False, file, self.conf), (True, self.settings, GIVEN)):
            for name, value in found.items():
                refuse_fixed(name, value, where, explicit)
        security = {name: value for name, value in {**file, **self.settings}.items() if is_security(name)}
        folder, where = (Path(self.conf).parent, self.conf) if self.conf else (Path(), GIVEN)
        others = {name: value for name, value in file.items() if _is_connection(name, value)}
        others |= {name: value for name, value in self.settings.items() if not is_security(name)}
        client = {SERVERS: servers, **others, **_back_off(others), **to_librdkafka(security, folder, where)}
        return _Resolved(Redacted(client), tuple(sorted(name for name in file if _is_unused(name, file[name]))))

    def at(self, bootstrap_servers: str) -> KafkaAccess:
        """Returns the same settings for other addresses."""
        return replace(self, bootstrap_servers=bootstrap_servers)

    def as_json(self) -> dict[str, Any]:
        """Returns the form for a configuration file.

        Its fields are `bootstrap_servers`, `kafka_conf` and `kafka`.

        Raises:
            ValueError: `settings` have a secret, which no file of ours may have.
        """
        secrets = sorted(filter(is_secret, self.settings))
        if secrets:
            raise ValueError(f"{', '.join(secrets)}: a secret must be in a file of its own")
        conf = {"kafka_conf": self.conf} if self.conf else {}
        settings = {"kafka": dict(self.settings)} if self.settings else {}
        return {"bootstrap_servers": self.bootstrap_servers, **conf, **settings}

    @staticmethod
    def of_json(fields: Mapping[str, Any]) -> KafkaAccess:
        """Returns the value that `as_json` has written."""
        return KafkaAccess(fields["bootstrap_servers"], fields.get("kafka_conf", ""), fields.get("kafka", {}))


def _absolute(name: str, value: str) -> str:
    return str(Path(value).absolute()) if name in LOCATIONS and value else value


def _is_unused(name: str, value: str) -> bool:
    provider = name == "config.providers" or name.startswith("config.providers.")
    return not (provider or _is_connection(name, value) or is_security(name))


def _is_connection(name: str, value: str) -> bool:
    """Returns whether a setting in a file is about the connection, and all clients accept it.

    A client of ours refuses some values that Java accepts.
    """
    if name not in _CONNECTION or (name, value) == _ONLY_JAVAS:
        return False
    accepted = _CONNECTION[name]
    return accepted is None or not _NUMBER.fullmatch(value) or int(value) in accepted  # Java too refuses another text


def _back_off(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns both pauses before a client connects again, if the settings have one of them."""
    given = {name: str(settings[name]) for name in (_FIRST, _LONGEST) if name in settings}
    if not given or not all(value.isdecimal() for value in given.values()):
        return {}
    first = int(given.get(_FIRST, _FIRST_MS))
    longest = int(given.get(_LONGEST, max(first, _LONGEST_MS)))
    return {_FIRST: str(min(first, longest)), _LONGEST: str(longest)}
