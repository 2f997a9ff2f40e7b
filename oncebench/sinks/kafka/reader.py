"""The Kafka sink's committed reader: a consumer with `isolation.level=read_committed`.

Promise: partitions are assigned, not subscribed, and no offset is ever committed, so a reader leaves no trace and no
group. The end of a read is a position, never a count: aborted records and transaction markers take up offsets, but a
consumer never gets them (KIP-98). The reader waits for a broker that restarts.

What can go wrong: an open transaction keeps the last stable offset (LSO) below the end of the log (HW). Nothing above
the LSO can be read, not even rows that other writers committed. The report then has lso < hw. An unclean leader
election cuts the log below records that were read. The reader continues where the log ends now, and returns other rows
at the positions of lost ones.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec
from kafka.errors import AuthorizationError
from kafka.errors import KafkaError as CoordinatorError

from oncebench.delivery.errors import ReadError
from oncebench.kafka_access.acls import PREFIXED, TOPIC, TRANSACTIONAL_ID, Resource, advice
from oncebench.kafka_repair.addresses import RECOVERY, Repair
from oncebench.kafka_repair.admin import admin_client
from oncebench.kafka_repair.offsets import answered
from oncebench.sinks.kafka.coordinator import Coordinator
from oncebench.sinks.kafka.names import transactional_ids
from oncebench.sinks.reader import End, ReadReport, Rows, now_us

BATCH = 5_000  # records taken from the client's queue at a time: about 10 ms of work
START_S = 30.0  # for a topic that is being created, or a broker that restarts
REQUEST_S = 10.0  # per request; a running broker needs milliseconds, a restarting broker some seconds
SETTLE_PAUSE_S = 0.05  # between two requests; a transaction ends within milliseconds, or by its time-out
READ_POLL_S = 0.2  # how long a read to the end waits for records before it checks its limit

_SETTINGS: dict[str, str | int | bool] = {
    "group.id": "oncebench-reader",  # the client requires one; it is never joined and gets no offset
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # deleted records must be reported, not skipped
    "enable.partition.eof": True,  # reports the end even if the last offsets hold no visible record
    "check.crcs": True,
    "fetch.min.bytes": 1,  # the broker answers at once when a commit makes a record visible
    "fetch.wait.max.ms": 100,  # any byte ends the wait; this only limits the wait of partitions not in the request
    "fetch.queue.backoff.ms": 5,  # default: the client checks a full queue again after 1 s
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 250,  # default: the reader itself would add up to 10 s to a measured recovery
    "topic.metadata.refresh.fast.interval.ms": 100,
}

_HOPELESS = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._AUTHENTICATION,
        KafkaError.INVALID_MSG,
        KafkaError._BAD_MSG,
    }
)
# librdkafka compares epochs of leaders (KIP-320), and returns the new end of a log that was cut in this text only.
_CUT = re.compile(r"log truncation detected .*broker end offset is (\d+)")


class KafkaReader:
    """Follows or reads one topic from its beginning; see `Reader`.

    Args:
        bootstrap_servers: of the cluster.
        topic: the topic.
        committed: False also returns uncommitted and aborted records: for metrics, never for a verdict.
        client: further librdkafka settings, such as security.
        start_s: how long to wait for the topic to exist.
        sink_id: the sink whose open transactions count as leftovers.
        part, parts: read part number `part` (from 1) of the partitions, which are dealt out in turn to `parts` readers.

    Raises:
        ReadError: the topic does not exist after `start_s`, or has fewer partitions than `parts`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        committed: bool = True,
        client: Mapping[str, Any] | None = None,
        start_s: float = START_S,
        sink_id: str | None = None,
        part: int = 1,
        parts: int = 1,
    ) -> None:
        self.topic = topic
        self._sink_id = sink_id
        self._where = f"topic {topic} on {bootstrap_servers}"
        common = {"bootstrap.servers": bootstrap_servers, "log_level": 2, **(client or {}), **RECOVERY}
        self._level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        level = "read_committed" if committed else "read_uncommitted"
        self._client = common
        self._consumer = Consumer({**_SETTINGS, "isolation.level": level, **common})
        self._partitions = self._find_partitions(start_s)[part - 1 :: parts]
        if not self._partitions:
            raise ReadError(f"{self._where} has no partition for reader {part} of {parts}. Start fewer readers.")
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in self._partitions])
        self._reached = dict.fromkeys(self._partitions, 0)
        self._repair = Repair(self._consumer, bootstrap_servers)

    @staticmethod
    def of(client: Mapping[str, Any], topic: str, start_s: float = START_S, **more: Any) -> KafkaReader:
        """Returns a committed reader with librdkafka's settings of the cluster.

        The arguments `more` are those of the class.
        """
        return KafkaReader(str(client["bootstrap.servers"]), topic, client=client, start_s=start_s, **more)

    def poll(self, timeout_s: float) -> Rows:
        """Returns the available rows, see `Reader.poll`. Raises `ReadError` if rows were deleted."""
        # consume(n, timeout) would wait for n records or for the whole time-out, and so delay every row
        first = self._consumer.poll(timeout_s)
        if first is None:
            self._repair.look(dict(self._reached))
            return Rows()
        return self._rows([first, *self._consumer.consume(BATCH, 0)])

    def ends(self) -> dict[int, End]:
        """Returns the first offset, LSO and HW of each partition, from the broker."""
        low = self._offsets(OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
        lso = self._offsets(OffsetSpec.latest(), self._level)
        hw = self._offsets(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        return {number: End(low[number], lso[number], hw[number]) for number in self._partitions}

    def read_to_end(self, take: Callable[[Rows], Any], *, settle_s: float, idle_s: float = 30.0) -> ReadReport:
        """Reads [0, LSO) of every partition.

        The ends are taken when every LSO has reached its HW, or after `settle_s`.
        """
        ends, waited_s = self._settled(settle_s)
        quiet_since = time.monotonic()
        while behind := self._behind(ends):
            before = dict(self._reached)
            rows = self.poll(READ_POLL_S)
            if len(rows):
                take(_below(rows, ends))
            if self._reached != before:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > idle_s:
                note = f"{self._where}: nothing came for {idle_s:.0f} s, " + ", ".join(behind)
                return ReadReport(ends, waited_s, complete=False, note=note)
        gone = [f"partition {number} begins at {end.low}" for number, end in ends.items() if end.low > 0]
        note = f"{self._where}: its first records are gone, {', '.join(gone)}" if gone else ""
        return ReadReport(ends, waited_s, complete=not gone, note=note)

    def leftovers(self) -> list[str]:
        """Returns the open transactions of the sink_id.

        Raises:
            ReadError: the cluster does not list them.
        """
        if self._sink_id is None:
            return []
        prefix = transactional_ids(self._sink_id)
        try:
            with Coordinator.of(self._client) as coordinator:
                coordinator.refuse_hidden(prefix)
                listed = coordinator.listed(prefix)
        except AuthorizationError as error:
            right = advice(("Describe",), Resource(TRANSACTIONAL_ID, prefix, PREFIXED))
            raise ReadError(f"{self._where}: open transactions of the job are hidden ({error}). {right}") from error
        except CoordinatorError as error:
            raise ReadError(
                f"{self._where}: the open transactions of the job cannot be listed ({error}). Check that the brokers "
                "run, and read again."
            ) from error
        return [f"open transaction {txn.transactional_id}" for txn in listed if txn.state == "Ongoing"]

    def close(self) -> None:
        """Closes the connections."""
        self._consumer.close()

    def _settled(self, limit_s: float) -> tuple[dict[int, End], float]:
        start = time.monotonic()
        while True:
            ends = self.ends()
            waited_s = time.monotonic() - start
            if waited_s >= limit_s or all(end.lso >= end.hw for end in ends.values()):
                return ends, waited_s
            time.sleep(SETTLE_PAUSE_S)

    def _behind(self, ends: Mapping[int, End]) -> list[str]:
        """Describes what is still to be read, by the client's positions."""
        return [
            f"partition {number} read up to {max(self._reached[number], end.low)} of {end.lso}"
            for number, end in ends.items()
            if max(self._reached[number], end.low) < end.lso
        ]

    def _rows(self, messages: list[Message]) -> Rows:
        seen_us = now_us()
        records: list[Message] = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
                self._reached[message.partition()] = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                number = message.partition()
                self._reached[number] = max(self._reached[number], message.offset())
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise self._closed(error)
            elif (cut := _CUT.search(error.str())) is not None:
                self._continue_at(message.partition(), int(cut[1]))
            elif error.fatal() or error.code() in _HOPELESS:
                raise ReadError(
                    f"{self._where} cannot be read further: {error.str()} ({error.name()}). If its records were "
                    "deleted (by retention, or with the topic), run again with a new topic."
                )
            # the client handles every other error itself, for example a broker that is away
        return Rows(
            partition=[message.partition() for message in records],
            offset=[message.offset() for message in records],
            append_ms=[message.timestamp()[1] for message in records],
            key=[message.key() for message in records],
            value=[message.value() for message in records],
            headers=[message.headers() or () for message in records],
            seen_us=seen_us,
        )

    def _continue_at(self, number: int, offset: int) -> None:
        """Reads a partition again from an offset.

        The client refuses `seek` where it has ended a partition.
        """
        self._reached[number] = offset
        self._consumer.incremental_unassign([TopicPartition(self.topic, number)])
        self._consumer.incremental_assign([TopicPartition(self.topic, number, offset)])

    def _find_partitions(self, limit_s: float) -> list[int]:
        start = time.monotonic()
        while True:
            try:
                found = self._consumer.list_topics(self.topic, timeout=min(REQUEST_S, limit_s)).topics[self.topic]
                if found.error is None and found.partitions:
                    return sorted(found.partitions)
                if found.error is not None and found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise self._closed(found.error)
                why = str(found.error)
            except KafkaException as error:
                why = error.args[0].str()
            if time.monotonic() - start >= limit_s:
                raise ReadError(
                    f"{self._where} was not found within {limit_s:.0f} s ({why}). Check the address, that the broker "
                    "runs, and that the topic was created."
                )
            time.sleep(SETTLE_PAUSE_S)

    def _closed(self, error: KafkaError) -> ReadError:
        right = advice(("Read",), Resource(TOPIC, self.topic))
        return ReadError(f"{self._where} is closed to this user ({error.name()}). {right}")

    def _offsets(self, spec: OffsetSpec, level: IsolationLevel) -> dict[int, int]:
        """Returns offsets; retries while a broker restarts or has only just made the topic."""
        wanted = {TopicPartition(self.topic, number): spec for number in self._partitions}
        # A client of its own: one that is older may have lost its addresses while a broker was away.
        admin = admin_client(self._client)
        start = time.monotonic()
        while True:
            answers = admin.list_offsets(wanted, isolation_level=level, request_timeout=REQUEST_S)
            try:
                return {number: found.offset for number, found in answered(answers).items()}
            except KafkaException as error:
                if time.monotonic() - start >= REQUEST_S:
                    raise ReadError(
                        f"{self._where}: the broker did not return the topic's offsets ({error.args[0].str()}). Check "
                        "that the broker runs and that this user may read the topic."
                    ) from error
            time.sleep(SETTLE_PAUSE_S)


def _below(rows: Rows, ends: Mapping[int, End]) -> Rows:
    """Returns the rows below the recorded ends; later rows are not part of this read."""
    kept = [at for at, number in enumerate(rows.partition) if rows.offset[at] < ends[number].lso]
    if len(kept) == len(rows):
        return rows
    return Rows(*([column[at] for at in kept] for column in _columns(rows)))


def _columns(rows: Rows) -> tuple[list[Any], ...]:
    return rows.partition, rows.offset, rows.append_ms, rows.key, rows.value, rows.headers
