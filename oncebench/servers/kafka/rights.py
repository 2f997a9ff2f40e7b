"""The rights that each program of oncebench needs in a Kafka with authorisation.

Promise: a user with exactly these rights can run the program. Without a right whose `without` is empty, the program is
refused, or ends, with a message that names the right. tests/integration/kafka_access/test_rights.py tries each.

Brokers derive Describe from Read, Write, Alter and Delete (AclEntry.isDescribeImplied...), so it is only listed alone.
Every guarantee's variants need the same rights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from oncebench.delivery.contract import AT_LEAST_ONCE, EXACTLY_ONCE
from oncebench.delivery.copies.letters import group_of
from oncebench.kafka_access.acls import (
    CLUSTER,
    CLUSTER_NAME,
    GROUP,
    PREFIXED,
    TOPIC,
    TRANSACTIONAL_ID,
    Resource,
    Right,
)
from oncebench.servers.kafka.topics import RUNS
from oncebench.sinks.kafka.hanging_transactions import OFFSETS_TOPIC
from oncebench.sinks.kafka.names import transactional_ids

_CLUSTER = Resource(CLUSTER, CLUSTER_NAME)


class Program(Protocol):
    """Something that uses Kafka as a user of its own."""

    @property
    def title(self) -> str:
        """What it is, for the first line above its commands."""

    def rights(self) -> list[Right]:
        """Returns what its user needs."""


@dataclass(frozen=True)
class Job:
    """A job that reads from Kafka.

    Attributes:
        guarantee: of the job; empty if its output is not in Kafka.
        input, output, quarantine: topics. An empty output is not in Kafka; without a quarantine topic it is empty.
        sink_id: of the job.
    """

    guarantee: str
    input: str
    output: str
    sink_id: str
    quarantine: str = ""

    @property
    def title(self) -> str:
        where = f"under {self.guarantee} into Kafka" if self.output else "into a sink that is not in Kafka"
        return f"a job {where} with sink_id {self.sink_id}"

    def rights(self) -> list[Right]:
        found = [Right("Read", Resource(TOPIC, self.input), "reads the events")]
        if self.quarantine:
            found.append(Right("Write", Resource(TOPIC, self.quarantine), "writes rejected records"))
        if self.output:
            found.append(Right("Write", Resource(TOPIC, self.output), "writes the rows"))
        found += self._marks()
        if self.quarantine:
            found.append(_limits(self.quarantine))
        if self.output:
            found.append(_limits(self.output))
        if self.output and self.guarantee == EXACTLY_ONCE:
            found += [_brokers(), *_hanging("job")]
        return found

    def _marks(self) -> list[Right]:
        if not self.output or self.guarantee == AT_LEAST_ONCE:
            lag = Resource(GROUP, f"{self.sink_id}.monitoring")
            return [Right("Read", lag, "shows its position to monitoring tools", "no tool shows the lag of the job")]
        found = [
            Right("Read", Resource(TOPIC, self.output), "stores markers as offsets of this topic"),
            Right("Read", _groups(self.sink_id), "stores markers, and shows its position to monitoring tools"),
        ]
        if self.guarantee == EXACTLY_ONCE:
            found.append(Right("Write", _ids(self.sink_id), "writes in transactions, and fences older drivers"))
        return found


@dataclass(frozen=True)
class Load:
    """`oncebench load` into a topic; without one it makes a topic."""

    topic: str = ""
    title: ClassVar[str] = "oncebench load"

    def rights(self) -> list[Right]:
        if self.topic:
            return [Right("Write", Resource(TOPIC, self.topic), "sends the events")]
        made = Resource(TOPIC, f"{RUNS}load-", PREFIXED)
        return [Right("Create", made, "makes its topic"), Right("Write", made, "sends the events")]


@dataclass(frozen=True)
class Observer:
    """A committed reader of an output.

    With a sink_id, the reader also lists the transactions that a job has left open.
    """

    output: str
    sink_id: str = ""
    title: ClassVar[str] = "a committed reader of the output"

    def rights(self) -> list[Right]:
        found = [Right("Read", Resource(TOPIC, self.output), "reads the rows")]
        if self.sink_id:
            found.append(Right("Describe", _ids(self.sink_id), "lists transactions that are left open"))
        return found


@dataclass(frozen=True)
class OpenTransactions:
    """`oncebench transactions`; without `ends`, only its list."""

    output: str
    sink_id: str
    ends: bool

    @property
    def title(self) -> str:
        return f"oncebench transactions {'list, commit and abort' if self.ends else 'list'} of sink_id {self.sink_id}"

    def rights(self) -> list[Right]:
        ids, groups, output = _ids(self.sink_id), _groups(self.sink_id), Resource(TOPIC, self.output)
        if not self.ends:
            return [
                Right("Describe", ids, "lists the transactions"),
                Right("Describe", groups, "reads markers of the job"),
                Right("Read", output, "lists transactions that Kafka has failed to end"),
                *_hanging("list")[:1],
            ]
        return [
            Right("Write", ids, "lists and ends the transactions"),
            Right("Read", groups, "publishes a new generation, which stops the job"),
            Right("Read", output, "stores the generation as an offset of this topic"),
            *_hanging("command"),
        ]


@dataclass(frozen=True)
class Requeue:
    """`oncebench requeue`.

    Attributes:
        quarantine: the topic with rejected records.
        target: the topic that they are sent to.
        group: the consumer group; empty: the command's own.
    """

    quarantine: str
    target: str
    group: str = ""

    @property
    def title(self) -> str:
        return f"oncebench requeue from {self.quarantine} to {self.target}"

    def rights(self) -> list[Right]:
        group, target = self.group or group_of(self.quarantine), Resource(TOPIC, self.target)
        without = "the command does not know the limit of the topic, which may refuse large records and batches"
        return [
            Right("Read", Resource(TOPIC, self.quarantine), "reads the copies and marks"),
            Right("Write", Resource(TOPIC, self.quarantine), "stores marks that do not expire"),
            Right("Read", Resource(GROUP, group), "stores what was sent"),
            Right("Write", Resource(TRANSACTIONAL_ID, group), "writes in transactions"),
            Right("Write", target, "sends the records"),
            Right("DescribeConfigs", target, "reads the limits of the topic", without),
        ]


@dataclass(frozen=True)
class Runs:
    """The commands that make topics of their own in the user's Kafka.

    They are `oncebench run`, `compare` and the others in `title`.
    """

    title: ClassVar[str] = "oncebench run, compare, faults, sustain, batches, plan and profile"

    def rights(self) -> list[Right]:
        topics = Resource(TOPIC, RUNS, PREFIXED)
        return [
            Right("Create", topics, "makes the topics of a run"),
            Right("Read", topics, "reads events and rows, and stores markers as offsets of a topic"),
            Right("Write", topics, "sends events, and writes rows and rejected records"),
            Right("DescribeConfigs", topics, "reports how durable a topic's records are"),
            Right("Read", Resource(GROUP, RUNS, PREFIXED), "stores markers"),
            Right("Write", Resource(TRANSACTIONAL_ID, RUNS, PREFIXED), "writes in transactions"),
            _brokers(),
            *_hanging("run"),
        ]


def _groups(sink_id: str) -> Resource:
    return Resource(GROUP, f"{sink_id}.", PREFIXED)


def _ids(sink_id: str) -> Resource:
    return Resource(TRANSACTIONAL_ID, transactional_ids(sink_id), PREFIXED)


def _limits(topic: str) -> Right:
    without = "a start does not check the limits of the topic, and warns"
    return Right("DescribeConfigs", Resource(TOPIC, topic), "reads the limits of the topic", without)


def _brokers() -> Right:
    without = "a start does not check time-outs, nor whether Kafka has deleted the markers, and warns"
    return Right("DescribeConfigs", _CLUSTER, "reads the limits of the brokers", without)


def _hanging(program: str) -> list[Right]:
    """Returns the rights to find and to end hanging transactions.

    `oncebench.sinks.kafka.hanging_transactions` uses them.
    """
    return [
        Right(
            "Read",
            Resource(TOPIC, OFFSETS_TOPIC),
            "lists transactions that Kafka has failed to end",
            f"the {program} does not find transactions that Kafka has failed to end there, and warns",
        ),
        Right(
            "Alter",
            _CLUSTER,
            "ends transactions that Kafka has failed to end",
            f"the {program} stops at a transaction that Kafka has failed to end",
        ),
    ]
