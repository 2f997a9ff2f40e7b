"""Reads the broker's log of the output topic: each stretch's writer, each transaction's end.

Promise: the reader returns every record batch below the ends, also aborted batches and batches of open transactions.
Each batch comes with the producer id in its header and the generation of the driver whose worker owned that producer.
A consumer sees none of this. The generation is part of the transactional id; ListTransactions returns that id with
its producer id.

What can go wrong: a writer without a transactional id has no generation. Neither has a transactional id that its
coordinator has forgotten (`transactional.id.expiration.ms`, 7 days). If a broker does not answer, the reader retries
for `idle_s`; then it raises `ReadError`, which names the place where the read stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kafka.errors import KafkaError, TransactionalIdNotFoundError
from kafka.protocol.consumer import FetchRequest
from kafka.record.memory_records import MemoryRecords
from kafka.structs import TopicPartition

from oncebench.delivery.errors import ReadError, RefusedStart
from oncebench.kafka_access.forms import to_kafka_python
from oncebench.sinks.kafka import wire
from oncebench.sinks.kafka.coordinator import REQUEST_TIMEOUT_MS
from oncebench.sinks.kafka.leaders import Leaders, OpenIn
from oncebench.sinks.kafka.names import generation_of
from oncebench.sinks.reader import ABORT, COMMIT, End, OpenTransaction, Stretches

# The last version with topics by name. From version 4 on the broker returns batches as they are in the log (KIP-98).
FETCH_VERSION, FETCH_MIN_VERSION = 12, 4
FETCH_BYTES = 4 * 1024 * 1024  # per answer: a long run takes some tens of answers
FETCH_WAIT_MS = 100  # short, because all requested data exist already
RETRY_PAUSE_S = 0.1  # between two requests to a broker that has not answered
READ_UNCOMMITTED = 0
NO_SESSION = {"session_id": 0, "session_epoch": -1}  # every fetch is independent (KIP-227)


class KafkaLog:
    """Reads one topic's log; see `LogReader`.

    Args:
        client: librdkafka settings of the cluster.
        topic: the output topic.
        sink_id: the sink whose transactional ids contain a generation.
    """

    def __init__(self, client: Mapping[str, Any], topic: str, sink_id: str) -> None:
        self.topic, self._sink_id = topic, sink_id
        self._where = f"the log of topic {topic} on {client['bootstrap.servers']}"
        settings = {**to_kafka_python(client), "request_timeout_ms": REQUEST_TIMEOUT_MS}
        try:
            self._admin = wire.connect(settings)
        except KafkaError as error:
            raise ReadError(
                f"{self._where} cannot be read: {error}. Check the address and that the broker runs."
            ) from error
        except RefusedStart as error:
            raise ReadError(f"{self._where} cannot be read: {error}") from error
        self._leaders = Leaders(self._admin)

    def read(self, ends: Mapping[int, End], take: Callable[[Stretches], Any], *, idle_s: float) -> None:
        """See `LogReader.read`."""
        generations = self._generations(idle_s)
        for partition, end in ends.items():
            offset = end.low
            while offset < end.hw:
                stretches, offset = self._next(partition, offset, end.hw, generations, idle_s)
                take(stretches)

    def open_transactions(self, partitions: Sequence[int], *, idle_s: float) -> list[OpenTransaction]:
        """See `LogReader.open_transactions`.

        The partitions are read before and after the coordinators. A transaction that ends in between is left out;
        otherwise it would look like a transaction that its coordinator has forgotten.
        """
        where = f"the transactions open in partitions {list(partitions)}"

        def listed() -> set[OpenIn]:
            return set(self._leaders.open_since(self.topic, partitions))

        before = self._asked(listed, where, idle_s)
        found = {place: self._asked(partial(self._coordinated, place), where, idle_s) for place in sorted(before)}
        after = self._asked(listed, where, idle_s)
        return [transaction for place, transaction in found.items() if place in after]

    def _coordinated(self, place: OpenIn) -> OpenTransaction:
        now_ms = time.time_ns() // 1_000_000
        unknown = OpenTransaction(place.partition, place.offset, place.producer_id, None, None, False, -1, 0, now_ms)
        listed = self._admin.list_transactions(producer_id_filters=[place.producer_id])
        names = [seen.transactional_id for listing in listed.values() for seen in listing]
        if not names:
            return unknown
        try:
            described = self._admin.describe_transactions(names[:1])[names[0]]
        except TransactionalIdNotFoundError:
            return unknown
        return replace(
            unknown,
            transactional_id=names[0],
            state=str(described.state.value),
            here=TopicPartition(place.topic, place.partition) in described.topic_partitions,
            started_ms=described.transaction_start_time_ms,
            timeout_ms=described.transaction_timeout_ms,
        )

    def close(self) -> None:
        """Closes the connections."""
        self._admin.close()

    def _generations(self, idle_s: float) -> dict[int, int]:
        """Returns the generation of each producer id of this sink_id."""
        answer = self._asked(self._admin.list_transactions, "its transactions", idle_s)
        listed = {
            seen.producer_id: generation_of(self._sink_id, seen.transactional_id)
            for listing in answer.values()
            for seen in listing
        }
        return {producer: generation for producer, generation in listed.items() if generation is not None}

    def _next(
        self, partition: int, offset: int, end: int, generations: Mapping[int, int], idle_s: float
    ) -> tuple[Stretches, int]:
        """Returns the stretches from `offset` on, and the offset at which the next stretch begins."""
        found = Stretches()
        data = self._asked(lambda: self._fetched(partition, offset), f"partition {partition} from {offset}", idle_s)
        for batch in _batches(data):
            if batch.base_offset >= end:
                return found, end
            if batch.last_offset < offset:
                continue
            found.partition.append(partition)
            found.offset.append(batch.base_offset)
            found.last_offset.append(batch.last_offset)
            found.records.append(batch.records_count)
            found.producer.append(batch.producer_id)
            found.generation.append(generations.get(batch.producer_id))
            found.transactional.append(batch.is_transactional)
            found.marker.append(_marker(batch))
            offset = batch.next_offset
        return found, offset

    def _fetched(self, partition: int, offset: int) -> bytes:
        """Returns the log's bytes from the batch with `offset` on. Raises KafkaError if empty."""
        answer = wire.ask_leader(self._admin, self._fetch_request(partition, offset), self.topic, partition)
        found = answer.responses[0].partitions[0]
        if found.error_code or not found.records:
            raise KafkaError(f"error code {found.error_code}, {len(found.records or b'')} bytes")
        return bytes(found.records)

    def _fetch_request(self, partition: int, offset: int) -> FetchRequest:
        asked = FetchRequest.FetchTopic.FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=FETCH_BYTES,
        )
        return FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=READ_UNCOMMITTED,
            topics=[FetchRequest.FetchTopic(topic=self.topic, partitions=[asked])],
            forgotten_topics_data=[],
            rack_id="",
            min_version=FETCH_MIN_VERSION,
            max_version=FETCH_VERSION,
            **NO_SESSION,
        )

    def _asked(self, ask: Callable[[], Any], what: str, idle_s: float) -> Any:
        deadline = time.monotonic() + idle_s
        while True:
            try:
                return ask()
            except KafkaError as error:
                if time.monotonic() > deadline:
                    raise ReadError(
                        f"{self._where}: {what} could not be read within {idle_s:g} s ({error}). Check that the broker "
                        "runs."
                    ) from error
            time.sleep(RETRY_PAUSE_S)


def _batches(data: bytes) -> Iterator[Any]:
    """Yields the complete record batches of `data`; the last batch is usually cut off."""
    yield from MemoryRecords(data)


def _marker(batch: Any) -> str | None:
    """Returns how a transaction of the producer ends here; None for a batch with records."""
    if not batch.is_control_batch:
        return None
    return COMMIT if next(iter(batch)).commit else ABORT
