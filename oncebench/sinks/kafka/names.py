"""Names of a sink_id's transactional ids and consumer groups in Kafka.

Promise: a transactional id belongs to one worker process and contains the generation of its driver. Two sink_ids share
no name, and neither lists the transactional ids of the other (`oncebench.sinks.sink_ids`).
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

from oncebench.delivery.errors import RefusedStart


@dataclass(frozen=True)
class Names:
    """The names that one driver of a sink_id uses in the cluster.

    `driver` is random for each start.
    """

    sink_id: str
    generation: int
    topic: str
    driver: str = ""

    @property
    def prefix(self) -> str:
        """The prefix of every transactional id of this sink_id."""
        return transactional_ids(self.sink_id)

    @property
    def generation_group(self) -> str:
        """The group whose offset is the newest driver's generation."""
        return f"{self.sink_id}.generation"

    @property
    def fenced_group(self) -> str:
        """The group whose offset is the newest generation up to which every id is fenced."""
        return f"{self.sink_id}.fenced"

    @property
    def claim_group(self) -> str:
        """The group whose offset is the newest batch that at-most-once has claimed, plus 1."""
        return f"{self.sink_id}.claimed"

    def marker_group(self, partition: int) -> str:
        """The group whose offset is the newest committed batch of a task's partition, plus 1."""
        return marker_group(self.sink_id, partition)

    @property
    def own_prefix(self) -> str:
        """The prefix of this driver's transactional ids; ids of older drivers are fenced."""
        return f"{self.prefix}g{self.generation}."

    def fresh_id(self) -> str:
        """Returns a transactional id for a new producer of this worker process."""
        return f"{self.own_prefix}{os.getpid()}.{uuid.uuid4().hex[:12]}"


def marker_group(sink_id: str, partition: int) -> str:
    """Returns the group that has the marker of a task's partition."""
    return f"{sink_id}.marker.{partition}"


def transactional_ids(sink_id: str) -> str:
    """Returns the prefix of every transactional id of a sink_id."""
    return f"{sink_id}.txn."


def refuse_shared_ids(sink_id: str) -> None:
    """Refuses a sink_id whose transactional ids would also belong to another sink_id.

    Raises:
        RefusedStart: the name of the other one is a part of this one's.
    """
    other = f"{sink_id}.".partition(transactional_ids(""))[0]
    if other != f"{sink_id}.":
        raise RefusedStart(
            f"sink_id is {sink_id!r}, and must not have the part `.txn`: a job with sink_id {other!r} would end this "
            "job's transactions. Rename it; a job that has run also needs a new checkpoint and output."
        )


def generation_of(sink_id: str, transactional_id: str) -> int | None:
    """Returns the generation in a transactional id; None if it belongs to another sink_id."""
    prefix = f"{transactional_ids(sink_id)}g"
    number = transactional_id.removeprefix(prefix).split(".", 1)[0]
    return int(number) if transactional_id.startswith(prefix) and number.isdecimal() else None
