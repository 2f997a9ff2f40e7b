"""Stores markers and the driver's generation as offsets of consumer groups without members.

Promise: a number that cannot be read or written raises an error and is never taken for a missing number. The broker
reports such errors per partition, inside an answer that looks like success. What can go wrong: a consumer joins the
group, and then offsets cannot be written from outside; or the cluster does not answer in time.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from oncebench.delivery import digest
from oncebench.delivery.contract import OVERWRITTEN, Mark
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.failures.kafka import MEMBERS, named, of_error
from oncebench.kafka_repair.addresses import RECOVERY
from oncebench.kafka_repair.admin import admin_client
from oncebench.kafka_repair.committed import PAUSE_S, RETRIABLE, committed_offsets
from oncebench.sinks.kafka.names import Names

_log = logging.getLogger(__name__)
# As long as a commit retries (oncebench.sinks.kafka.sink): reading a marker is never the strictest step of a batch.
LIMIT_S = 60.0
# Markers are read in parallel, each by its own client: a start with some partitions takes as long as with one.
READ_THREADS = 8


@dataclass(frozen=True)
class Noted:
    """An offset with its metadata."""

    number: int
    metadata: str

    @property
    def driver(self) -> str:
        """The name of the driver that wrote it; empty if an older version did."""
        try:
            return str(json.loads(self.metadata)["driver"])
        except (ValueError, LookupError, TypeError):
            return ""


class Offsets:
    """Offsets of partition 0 of one topic.

    Args:
        client: librdkafka settings of the cluster.
        topic: an existing topic.
    """

    def __init__(self, client: Mapping[str, Any], topic: str) -> None:
        self._client = dict(client)
        self._topic = topic

    def write(self, group: str, number: int, metadata: str = "", stable: bool = True) -> None:
        """Sets the group's number and reads it back, see `read`.

        Raises:
            KafkaException: the broker refused (the group has members, the topic is gone), returned another number or
                driver afterwards, or did not answer within LIMIT_S.
        """
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(self._topic, 0, number, metadata)])
        alter = self._admin.alter_consumer_group_offsets
        # The client gets the limit: a time-out of the future itself would raise an error that is not Kafka's.
        _answered(lambda: alter([wanted], request_timeout=LIMIT_S)[group].result().topic_partitions)
        found = self.read(group, stable)
        if found != Noted(number, metadata):
            raise KafkaException(KafkaError(KafkaError.INVALID_COMMIT_OFFSET_SIZE, f"the group holds {found}"))

    @cached_property
    def _admin(self) -> AdminClient:
        """The client that writes every number. A reader of numbers makes none."""
        return admin_client({**self._client, **RECOVERY})

    def read(self, group: str, stable: bool = True) -> Noted | None:
        """See `read`."""
        return read(self._client, group, self._topic, stable)


def newest_marks(offsets: Offsets, groups: Iterable[str], stable: bool) -> dict[int, Mark]:
    """Returns each partition's newest marker.

    Args:
        offsets: of the sink's topic.
        groups: the marker groups in the partitions' order.
        stable: as in `read`.

    A group with an offset that this sink has not written gives OVERWRITTEN.

    Raises:
        KafkaException: see `read`.
    """
    names = list(groups)
    with ThreadPoolExecutor(READ_THREADS) as pool:  # each client first has to find its group's coordinator
        found = list(pool.map(lambda group: offsets.read(group, stable), names))
    marks = enumerate(zip(names, found, strict=True))
    return {partition: _mark(group, noted) for partition, (group, noted) in marks if noted is not None}


def restore_marks(offsets: Offsets, names: Names, batches: Mapping[int, int]) -> dict[int, Mark]:
    """Makes markers without rows and digest, partition -> batch; returns them."""
    for partition, batch in sorted(batches.items()):
        offsets.write(names.marker_group(partition), batch + 1, "{}", stable=False)
    return {partition: Mark(batch, 0, None) for partition, batch in batches.items()}


def publish_generation(offsets: Offsets, names: Names, generation: int) -> bool:
    """Publishes the driver's generation; returns whether the cluster had one.

    Raises:
        RefusedStart: the cluster has a newer one, or the group cannot be written.
        KafkaException: the cluster does not answer.
    """
    group, published = names.generation_group, offsets.read(names.generation_group)
    if published is not None and published.number > generation:  # equal: after a refused start and a restore
        more = published.number - generation
        raise RefusedStart(
            f"the journal of sink_id {names.sink_id!r} counts {generation} starts, and the cluster {published.number} "
            f"(offset of group {group}): the journal is new, another's, or an older copy. Restore the newest journal "
            "with its checkpoint, or take a new checkpoint, sink_id and output. Nothing was read or written: if only "
            f"starts are missing and no batch, start again up to {more} times."
        )
    try:
        offsets.write(group, generation, json.dumps({"driver": names.driver}))
    except KafkaException as error:
        cause = named(of_error(error), names.topic, names.sink_id)
        if not cause.permanent and error.args[0].code() not in MEMBERS:
            raise
        raise RefusedStart(
            f"could not publish generation {generation} as an offset of group {group}: {error.args[0]} "
            f"({cause.reason}). Nothing was read or written. {cause.remedy}, then start again."
        ) from error
    return published is not None


def is_committed(marks: Mapping[int, Mark], partition: int, batch: int) -> bool:
    """Whether a partition's marker shows that this batch is committed."""
    return partition in marks and marks[partition].batch >= batch


def undone(marks: Mapping[int, Mark], decided: Mapping[str, Any]) -> bool:
    """Whether no marker shows the commit of an entry of `Sink.start`'s `decided`.

    The coordinator confirms a commit before the marker can be read. A finished batch is confirmed: its marker may be
    missing still, and comes.
    """
    return not decided.get("finished") and not is_committed(marks, decided["partition"], decided["batch"])


def _mark(group: str, noted: Noted) -> Mark:
    try:
        more = json.loads(noted.metadata)
        return Mark(noted.number - 1, more.get("rows", 0), digest.from_text(more.get("digest")), noted.driver)
    except (ValueError, AttributeError, TypeError):
        _log.warning(
            "consumer group %s has offset %d, which is no marker of this sink: its metadata is %r. Somebody has reset "
            "or set the group, and the marker is lost. Keep such groups out of any housekeeping.",
            *(group, noted.number, noted.metadata[:80]),
        )
        return Mark(OVERWRITTEN, 0, None)


def read(client: Mapping[str, Any], group: str, topic: str, stable: bool = True) -> Noted | None:
    """Returns a group's number; None if there is none.

    A consumer reads it, because librdkafka's admin client crashes (SIGSEGV, its issue 5040) on the answer
    NOT_COORDINATOR. A broker gives that answer when it has just made the offsets' topic.

    Args:
        client, group, topic: the place of the number.
        stable: waits until no open transaction contains another number (KIP-447); otherwise the last committed one.

    Raises:
        KafkaException: no answer, or an open transaction, for LIMIT_S.
    """
    consumer = member_of(client, group, stable)
    try:
        (found,) = committed_offsets(consumer, [TopicPartition(topic, 0)], LIMIT_S, _refuses)
    finally:
        consumer.close()
    return Noted(found.offset, found.metadata or "") if found.offset >= 0 else None


def member_of(client: Mapping[str, Any], group: str, stable: bool = True) -> Consumer:
    """Returns a consumer that names its group and never joins it."""
    level = "read_committed" if stable else "read_uncommitted"  # librdkafka: RequireStable of OffsetFetch
    return Consumer({**client, **RECOVERY, "group.id": group, "enable.auto.commit": False, "isolation.level": level})


def _refuses(error: KafkaError) -> bool:
    return of_error(error).permanent


def _answered(ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    """Returns an answer's partitions, none with an error; retries while the coordinator starts."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            found = ask()
            for each in found:
                if each.error is not None:
                    raise KafkaException(each.error)
            return found
        except KafkaException as error:
            if error.args[0].code() not in RETRIABLE or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)
