"""The rights that each program of oncebench needs in a Kafka with authorisation.

Promise: a user with exactly these rights can run the program. Without a right whose `without` is empty, the program is
refused, or ends, with a message that names the right (tests/integration/kafka_access/test_rights.py tries each).

A broker derives Describe from Read, Write, Alter and Delete. A description of a topic is therefore never listed where
another right on it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncebench.delivery.contract import AT_LEAST_ONCE, EXACTLY_ONCE
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
from oncebench.sinks.kafka.hanging_transactions import OFFSETS_TOPIC
from oncebench.sinks.kafka.names import transactional_ids

# Topics, groups and transactional ids of a run (oncebench.run.cell) and of `oncebench load` without --topic begin so.
RUNS = "ob-"
_CLUSTER = Resource(CLUSTER, CLUSTER_NAME)
_OFFSETS = Resource(TOPIC, OFFSETS_TOPIC)
_UNCHECKED = "a start cannot check {}, and only warns"
_HANGING = "a transaction that Kafka has failed to end is not found; committed readers may wait there for ever"
_END_HANGING = "a transaction that Kafka has failed to end stops the job, until this right is there for one start"


@dataclass(frozen=True)
class Job:
    """A job with the Kafka sink.

    Attributes:
        guarantee: of the job. Its variants need the same rights.
        input, output, quarantine: topics; without a quarantine topic, empty.
        sink_id: of the job.
    """

    guarantee: str
    input: str
    output: str
    sink_id: str
    quarantine: str = ""

    def rights(self) -> list[Right]:
        """Returns what the job's user needs."""
        output, groups = Resource(TOPIC, self.output), Resource(GROUP, f"{self.sink_id}.", PREFIXED)
        found = [Right("Read", Resource(TOPIC, self.input), "reads the events")]
        if self.quarantine:
            bad = Resource(TOPIC, self.quarantine)
            found += [Right("Write", bad, "writes rejected records"),
                      Right("DescribeConfigs", bad, "reads the topic's limits",
                            _UNCHECKED.format("whether Kafka compacts the topic, and its size limit"))]  # fmt: skip
        found.append(Right("Write", output, "writes the rows"))
        if self.guarantee == AT_LEAST_ONCE:
            found.append(Right("Read", groups, "shows the lag of the job in monitoring tools",
                               "monitoring tools show no lag of the job"))  # fmt: skip
        else:
            found += [Right("Read", output, "stores its markers as offsets of this topic"),
                      Right("Read", groups, "stores its markers")]  # fmt: skip
        if self.guarantee == EXACTLY_ONCE:
            found.append(Right("Write", _ids(self.sink_id), "writes in transactions, and fences older drivers"))
        found.append(
            Right("DescribeConfigs", output, "reads the topic's limits", _UNCHECKED.format("the size limit of a row"))
        )
        if self.guarantee == EXACTLY_ONCE:
            found += [
                Right("DescribeConfigs", _CLUSTER, "reads the brokers' limits",
                      _UNCHECKED.format("time-outs of transactions, and how long Kafka keeps the markers")),
                *_hanging(),
            ]  # fmt: skip
        return found


@dataclass(frozen=True)
class Load:
    """`oncebench load`. Without a topic it makes one."""

    topic: str = ""

    def rights(self) -> list[Right]:
        """Returns what the load's user needs."""
        if self.topic:
            return [Right("Write", Resource(TOPIC, self.topic), "sends the events")]
        made = Resource(TOPIC, f"{RUNS}load-", PREFIXED)
        return [Right("Create", made, "makes its topic"), Right("Write", made, "sends the events")]


@dataclass(frozen=True)
class Observer:
    """A committed reader of a job's output."""

    output: str
    sink_id: str = ""

    def rights(self) -> list[Right]:
        """Returns what the reader's user needs."""
        found = [Right("Read", Resource(TOPIC, self.output), "reads the rows")]
        if self.sink_id:
            found.append(Right("Describe", _ids(self.sink_id), "lists transactions that are left open"))
        return found


@dataclass(frozen=True)
class OpenTransactions:
    """`oncebench transactions`: list, and with `ends` also commit and abort."""

    output: str
    sink_id: str
    ends: bool

    def rights(self) -> list[Right]:
        """Returns what the command's user needs."""
        groups = Resource(GROUP, f"{self.sink_id}.", PREFIXED)
        if not self.ends:
            return [
                Right("Describe", _ids(self.sink_id), "lists the transactions"),
                Right("Describe", groups, "reads the job's markers"),
                Right("Read", Resource(TOPIC, self.output), "looks for transactions that Kafka has failed to end"),
                Right("Read", _OFFSETS, "looks for transactions that Kafka has failed to end", _HANGING),
            ]
        return [
            Right("Write", _ids(self.sink_id), "ends the transactions"),
            Right("Read", groups, "publishes a new generation, so that the job stops"),
            Right("Read", Resource(TOPIC, self.output), "stores the generation as an offset of this topic"),
            *_hanging(),
        ]


def _ids(sink_id: str) -> Resource:
    return Resource(TRANSACTIONAL_ID, transactional_ids(sink_id), PREFIXED)


def _hanging() -> list[Right]:
    return [
        Right("Read", _OFFSETS, "looks for transactions that Kafka has failed to end", _HANGING),
        Right("Alter", _CLUSTER, "ends transactions that Kafka has failed to end", _END_HANGING),
    ]


