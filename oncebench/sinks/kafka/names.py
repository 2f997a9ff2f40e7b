"""Kafka: how a sink_id's transactional ids and groups are called.

Promise: an id is of one worker process, and tells the generation of its driver; two sink_ids share no name, unless one
is the other's with `.txn` or the like behind it.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass


@dataclass(frozen=True)
class Names:
    """How this sink_id's things are called in the cluster."""

    sink_id: str
    generation: int
    topic: str

    @property
    def prefix(self) -> str:
        """Every transactional id of this sink_id starts with it."""
        return transactional_ids(self.sink_id)

    @property
    def generation_group(self) -> str:
        """The group whose offset is the newest driver's generation."""
        return f"{self.sink_id}.generation"

    @property
    def fenced_group(self) -> str:
        """The group whose offset is the newest generation of which, and of all before it, every id was fenced."""
        return f"{self.sink_id}.fenced"

    def marker_group(self, partition: int) -> str:
        """The group whose offset is the newest committed batch + 1 of a task's partition."""
        return f"{self.sink_id}.marker.{partition}"

    @property
    def own_prefix(self) -> str:
        """Every transactional id of this driver's workers starts with it: those of older drivers are fenced."""
        return f"{self.prefix}g{self.generation}."

    def fresh_id(self) -> str:
        """A transactional id for a new producer of this worker process."""
        return f"{self.own_prefix}{os.getpid()}.{uuid.uuid4().hex[:12]}"


def transactional_ids(sink_id: str) -> str:
    """What every transactional id of a sink_id starts with."""
    return f"{sink_id}.txn."


def generation_of(sink_id: str, transactional_id: str) -> int | None:
    """The generation of the driver whose worker has this transactional id; None if it is not of the sink_id."""
    prefix = f"{transactional_ids(sink_id)}g"
    number = transactional_id.removeprefix(prefix).split(".", 1)[0]
    return int(number) if transactional_id.startswith(prefix) and number.isdecimal() else None
