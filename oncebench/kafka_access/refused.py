"""Settings that a user may not give, each with the reason, and settings that hold a secret.

Promise: no message of this module contains a value of a setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ACKNOWLEDGED = "an acknowledgement must mean that every in-sync replica has the record"
_IN_ORDER = "without it a retry can write a record twice or out of order"
_COMMITTED = "a reader without it returns rows of aborted transactions"
_OWN_IDS = "the sink names its transactions itself, and a second user of a name fences it"
_MURMUR = "a key must be in the partition where every other client looks for it"
_OFFSETS = "offsets are stored with the rows or in the checkpoint"
_INTERCEPTS = "code in between may drop or change records"

# Settings on which a guarantee rests: the values that change nothing, and why no other value is possible.
FIXED: Mapping[str, tuple[frozenset[str], str]] = {
    "acks": (frozenset({"all", "-1"}), _ACKNOWLEDGED),
    "request.required.acks": (frozenset({"all", "-1"}), _ACKNOWLEDGED),
    "enable.idempotence": (frozenset({"true"}), _IN_ORDER),
    "retries": (frozenset({"2147483647"}), "a record that is not sent again is lost"),
    "message.send.max.retries": (frozenset({"2147483647"}), "a record that is not sent again is lost"),
    "max.in.flight.requests.per.connection": (frozenset({"1", "2", "3", "4", "5"}), _IN_ORDER),
    "max.in.flight": (frozenset({"1", "2", "3", "4", "5"}), _IN_ORDER),
    "delivery.report.only.error": (frozenset({"false"}), "a row counts as written when its report has come"),
    "isolation.level": (frozenset({"read_committed"}), _COMMITTED),
    "transactional.id": (frozenset(), _OWN_IDS),
    "transaction.timeout.ms": (frozenset(), "it has a setting of its own, transaction_timeout_ms"),
    "partitioner": (frozenset({"murmur2_random"}), _MURMUR),
    "partitioner.class": (frozenset(), _MURMUR),
    "group.id": (frozenset(), "the sink keeps its markers in groups of its own"),
    "enable.auto.commit": (frozenset({"false"}), _OFFSETS),
    "auto.commit.enable": (frozenset({"false"}), _OFFSETS),
    "auto.offset.reset": (frozenset(), "deleted input must be reported and not skipped"),
    "interceptor.classes": (frozenset(), _INTERCEPTS),
    "plugin.library.paths": (frozenset(), _INTERCEPTS),
    "metadata.broker.list": (frozenset(), "it is bootstrap.servers by another name"),
    "test.mock.num.brokers": (frozenset(), "it replaces the cluster with one in the client's memory"),
}


class AccessRefused(ValueError):
    """The settings for a Kafka cannot be used; the text says which one, why, and what to do."""


def is_secret(name: str) -> bool:
    """Whether the value of a setting must not be seen."""
    lower = name.lower()
    return any(word in lower for word in ("password", "secret", "jaas")) or lower in ("ssl.keystore.key", "ssl.key.pem")


def refuse_fixed(name: str, value: str, where: str, explicit: bool) -> None:
    """Refuses a setting on which a guarantee rests.

    Args:
        where: the file or option that has the setting.
        explicit: whether it was given for this program. A file may serve other programs, and may repeat our own value.

    Raises:
        AccessRefused: the setting is one of FIXED, and the value is not ours.
    """
    if name not in FIXED:
        return
    harmless, why = FIXED[name]
    if explicit or value.strip().lower() not in harmless:
        raise AccessRefused(f"{where}: {name} cannot be set here: {why}. Remove it")


class Redacted(dict[str, Any]):
    """Settings of a client. A text of it shows no secret."""

    def __repr__(self) -> str:
        return repr({name: "***" if is_secret(name) else value for name, value in self.items()})

    __str__ = __repr__
