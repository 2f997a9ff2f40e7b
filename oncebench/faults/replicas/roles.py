"""The roles of a broker that a fault can name: each is the leader of one partition.

The fault finds the leader when it acts.

Promise: a role names a partition, and Kafka's metadata of that moment names its leader. The coordinator of a
transactional id or of a group is the leader of the partition that stores it. Kafka chooses that partition by the hash
of the name (`TransactionStateManager.partitionFor`, `GroupCoordinatorService.partitionFor`).

Failure modes: a role can have no partition, for example while the sink has no open transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kafka.errors import KafkaError

from oncebench.errors import UserError
from oncebench.faults.context import FaultContext
from oncebench.faults.server import KAFKA, in_hand
from oncebench.sinks.kafka.coordinator import Coordinator
from oncebench.sinks.registry import suite_sinks

TRANSACTIONS, GROUPS = "__transaction_state", "__consumer_offsets"
# Each topic of a run has this partition, and it has as much load as any other.
PARTITION = 0


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Role:
    """A broker by what it does.

    Attributes:
        name: the role, as a user types it behind `kill-`, `stop-`, `bounce-` and `isolate-`.
        description: a few words for lists.
        place: the partition whose leader has the role; None: there is none at this moment.
    """

    name: str
    description: str
    place: Callable[[FaultContext], Place | None]


def _output(context: FaultContext) -> Place:
    return Place(str(context.config.output["output"]), PARTITION)


def _input(context: FaultContext) -> Place:
    return Place(context.config.input_topic, PARTITION)


def _transaction_log(context: FaultContext) -> Place | None:
    prefix = suite_sinks()[context.config.sink].transactional_ids
    assert prefix is not None, "why_not_applicable excludes sinks without Kafka transactions"
    server = context.servers[KAFKA]
    try:
        with Coordinator({"bootstrap_servers": server.bootstrap_servers}) as coordinator:
            names = in_hand(coordinator.listed(prefix(context.config.sink_id), complete=True), context.config.sink_id)
    except KafkaError as error:  # of kafka-python
        raise UserError(f"{context.hit['fault']}: Kafka did not list its transactions ({error})") from error
    return Place(TRANSACTIONS, stored_in(names[0], server.partitions(TRANSACTIONS))) if names else None


def _group_log(context: FaultContext) -> Place:
    group = suite_sinks()[context.config.sink].marker_group
    assert group is not None, "why_not_applicable excludes sinks without Kafka transactions"
    name = group(context.config.sink_id, PARTITION)
    return Place(GROUPS, stored_in(name, context.servers[KAFKA].partitions(GROUPS)))


OUTPUT_LEADER = Role("output-leader", "the leader of the output topic's partition 0", _output)
INPUT_LEADER = Role("input-leader", "the leader of the input topic's partition 0", _input)
TRANSACTION_COORDINATOR = Role(
    "transaction-coordinator", "the coordinator of an open transaction of the sink", _transaction_log
)
GROUP_COORDINATOR = Role("group-coordinator", "the coordinator of the group with partition 0's marker", _group_log)


def stored_in(name: str, partitions: int) -> int:
    """The partition of an internal topic that stores this transactional id or group.

    Kafka chooses it by `Utils.abs(name.hashCode)`.
    """
    code = java_hash(name)
    return 0 if code == -(2**31) else abs(code) % partitions


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: a signed 32-bit number, over the text's UTF-16 code units."""
    units = text.encode("utf-16-be")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return code - 2**32 if code >= 2**31 else code
