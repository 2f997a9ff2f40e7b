"""The Kafka sink's driver side: supported guarantees, commit by EndTxn, fencing and markers.

At-most-once uses acks=0. At-least-once uses acks=all and checks every delivery report. Exactly-once has two variants.
Both write a marker inside each transaction: a consumer-group offset (KIP-98 and KIP-447).

* two-phase: a task writes in a transaction, flushes and leaves the transaction open. The driver decides and sends
  EndTxn for each transaction (Flink's KafkaCommitter resumes the producer for the same purpose). If the coordinator's
  answer is unclear, the marker shows whether a partition was committed.
* idempotent: each task commits its own transaction. A replay that finds the marker skips the partition.

Fencing: every start takes a generation, publishes it as a group offset, then fences every transactional id of this
sink_id that no decision names. A worker of an older driver that starts late finds the newer generation and stops.

What can go wrong: markers are group offsets, and brokers forget them after `offsets.retention.minutes` (7 days by
default). A pipeline that stood still for longer with an open batch is refused (`forgets_after_s`).
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from confluent_kafka import KafkaException
from kafka.errors import KafkaError as WireError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from oncebench.delivery.contract import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    NO_BATCH,
    RECORDS,
    Holder,
    Mark,
    Sink,
    SinkKind,
    SinkSettings,
    Support,
)
from oncebench.delivery.errors import CommitRefused, CommitUncertain, PipelineError, RefusedStart
from oncebench.delivery.failures.kafka import of_code
from oncebench.delivery.topics.replicas import Waiting, shortage, warn_of_replicas
from oncebench.delivery.topics.settings import broker_setting, record_limit
from oncebench.kafka_repair.addresses import RECOVERY
from oncebench.kafka_repair.admin import admin_client
from oncebench.sinks.kafka.coordinator import Coordinator, Outcome, Transaction, explain, fence_all
from oncebench.sinks.kafka.drivers.claims import Claims, fenced_before, holder, note_fenced
from oncebench.sinks.kafka.drivers.left import LEFT_OPEN
from oncebench.sinks.kafka.hanging_transactions import OFFSETS_TOPIC, DecisionNotes, end_hanging_transactions, settle
from oncebench.sinks.kafka.markers import Offsets, is_committed, newest_marks, publish_generation, restore_marks, undone
from oncebench.sinks.kafka.names import Names, generation_of, refuse_shared_ids
from oncebench.sinks.kafka.rows.append import Appender
from oncebench.sinks.kafka.rows.limits import RAISE_LIMIT, UNKNOWN, Limits, transaction_limits
from oncebench.sinks.kafka.rows.produce import Target
from oncebench.sinks.kafka.rows.writers import TransactionalWriter, WarmUp
from oncebench.sinks.kafka.topics import options, output_identity, refuse_unfit_topics, routed
from oncebench.sinks.records import encode_records, records_schema_error

# How long a commit retries before a restart must finish it. A broker's restart takes seconds.
COMMIT_LIMIT_S = 60.0
# How long a commit or a start waits for a coordinator that answers and cannot end a transaction yet: brokers that are
# missing from an in-sync replica set come back within minutes (a restart of a large broker takes as long).
BUSY_LIMIT_S = 300.0
# For start-up requests to a broker that has answered before.
ADMIN_LIMIT_S = 20.0
# How often a running pipeline looks for hanging transactions, before a batch begins. Readers wait until then.
HANGING_CHECK_S = 30.0
# The driver sends each task the committed transactions of this many batches. A worker that was idle for longer makes a
# new producer, which takes half a second.
COMMITTED_KEPT = 10
_log = logging.getLogger(__name__)

SUPPORTS = (
    Support(AT_MOST_ONCE, "claim", "claim, then acks=0", default=True),
    Support(AT_LEAST_ONCE, "acknowledged", "acks=all, every delivery report checked", default=True),
    Support(AT_LEAST_ONCE, "native", "Spark's own Kafka sink, as shipped"),
    Support(EXACTLY_ONCE, "two-phase", "tasks prepare, the driver decides and ends the transactions", default=True),
    Support(EXACTLY_ONCE, "idempotent", "a transaction per task with a marker of the batch in it"),
)


class KafkaSink(Sink):
    """Writes records (`key`, `value`, optional `headers`, as Spark's Kafka sink) to one topic.

    Args:
        topic: the output topic.
        sink_id: names this sink in the cluster; two pipelines must not share it.
        partitions: tasks per batch.
        client: librdkafka settings of the cluster, `bootstrap.servers` at least.
        transaction_timeout_ms: how long a transaction may stay open after its first row. The broker's limit is
            transaction.max.timeout.ms.
        quarantine_topic: where rejected records go; empty if there are none. Only `native` writes it here.
        driver: random name of this start; empty: a new one.
    """

    def __init__(
        self,
        topic: str,
        sink_id: str,
        partitions: int,
        client: Mapping[str, Any],
        transaction_timeout_ms: int,
        quarantine_topic: str,
        driver: str = "",
    ) -> None:
        self.partitions = partitions
        self._topic = topic
        self._client = client
        self._timeout_ms = transaction_timeout_ms
        self._quarantine_topic = quarantine_topic
        self._names = Names(sink_id, 0, topic, driver or uuid.uuid4().hex)
        self._transactional = False
        self._admin = admin_client({**self._client, **RECOVERY})
        self._offsets = Offsets(self._client, topic)
        self._coordinator: Coordinator | None = None
        self._claims: Claims | None = None
        self._marks: dict[int, Mark] = {}
        # Decided and committed before this driver started. The batch is part of the entry because a worker keeps its id
        # and epoch: a decision of the next batch, written while this driver starts, names the same transaction.
        self._done: set[tuple[int, Transaction]] = set()
        self._undone: set[int] = set()  # partitions whose decided batch may not be committed yet
        self._ended: dict[str, int] = {}
        self._retired: set[str] = set()
        self._next_check_at = 0.0
        self._limits = UNKNOWN

    def check_schema(self, schema: StructType) -> None:
        """See `Sink.check_schema`: `key`, `value` as string or binary; `headers` in Spark's type."""
        wrong = records_schema_error(schema)
        if wrong is not None:
            raise RefusedStart(f"rows for Kafka topic {self._topic!r}: {wrong}")

    def encode(self, rows: DataFrame) -> DataFrame:
        """See `Sink.encode`: key and value as bytes."""
        return encode_records(rows)

    def identity(self) -> Mapping[str, str]:
        return output_identity(self._admin, self._topic, ADMIN_LIMIT_S)

    def holder(self) -> Holder | None:
        """See `Sink.holder`: the published generation, and the newest marker or claim."""
        found = self.identity()  # without the topic there are no offsets of it
        return holder(self._offsets, self._names, lambda: self._read_marks(stable=False)) if found else None

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, Any]]) -> None:
        """See `Sink.start`: publishes the generation, fences older drivers, reads the markers."""
        self._names = replace(self._names, generation=generation)
        self._transactional = support.guarantee == EXACTLY_ONCE
        self._check_topics(support.guarantee)
        if support.guarantee == AT_MOST_ONCE:
            self._publish_generation(generation)
            self._claims = Claims(self._client, self._names)
            self._marks = self._claims.newest()
        if not self._transactional:
            return
        self._check_timeout()
        refuse_shared_ids(self._names.sink_id)
        self._coordinator = Coordinator.of(self._client)
        self._coordinator.refuse_hidden(self._names.prefix)
        follows = self._publish_generation(generation)
        self._end_hanging(self._fence_now)
        # A worker uses its id again once a batch is committed. If a marker exists, the id's present transaction belongs
        # to a later, undecided batch. A decided batch that is not committed yet never gets its markers here.
        marks = self._read_marks(stable=False)
        named_by = [(prepared["batch"], self._transaction(prepared)) for prepared in decided]
        # One marker shows the commit of a transaction that tasks share: its other markers come.
        self._done = {name for name, each in zip(named_by, decided, strict=True) if not undone(marks, each)}
        open_ = [each for name, each in zip(named_by, decided, strict=True) if name not in self._done]
        self._undone = {int(prepared["partition"]) for prepared in decided if undone(marks, prepared)}
        named = {str(prepared["transactional_id"]) for prepared in open_}
        self._fence(self._ids_to_fence(fenced_before(self._offsets, self._names) if follows else 0) - named)
        note_fenced(self._offsets, self._names, generation - 1)
        self._marks = self._read_marks(stable=not open_)

    def warm_up_writer(self) -> WarmUp:
        return WarmUp(self._client, self._names, self._timeout_ms, self.partitions, self._transactional, self._limits)

    def claim(self, batch: int) -> None:
        assert self._claims is not None, "start() comes first"
        self._claims.put(batch)

    def unacknowledged_writer(self) -> Appender:
        return self._appender(waits=False)

    def acknowledged_writer(self) -> Appender:
        return self._appender(waits=True)

    def _appender(self, waits: bool) -> Appender:
        return Appender(self._client, Target(self._topic, self._client["bootstrap.servers"], self._limits), waits)

    def prepare_writer(self) -> TransactionalWriter:
        return self._writer(commits=False)

    def idempotent_writer(self) -> TransactionalWriter:
        return self._writer(commits=True)

    def _writer(self, commits: bool) -> TransactionalWriter:
        if time.monotonic() > self._next_check_at:
            self._check_hanging_transactions()
        return TransactionalWriter(
            self._client, self._names, self._timeout_ms, commits, dict(self._ended), frozenset(self._retired),
            self._limits,
        )  # fmt: skip

    def _check_hanging_transactions(self) -> None:
        """Ends hanging transactions. A failure is logged, and the next check tries again.

        No task of this driver runs between two batches, and older drivers' tasks are fenced: no id is fenced here.
        """
        try:
            self._end_hanging(None)
        except (WireError, KafkaException, PipelineError) as error:
            _log.warning("could not look for hanging transactions, next try in %g s: %s", HANGING_CHECK_S, error)

    def marks(self) -> Mapping[int, Mark]:
        return self._marks

    def restore_marks(self, batches: Mapping[int, int]) -> None:
        """See `Sink.restore_marks`; makes no marker that is newer than that of an open transaction."""
        safe = {p: batch for p, batch in batches.items() if batch != NO_BATCH or p not in self._undone}
        self._marks |= restore_marks(self._offsets, self._names, safe)

    def forgets_after_s(self) -> float | None:
        minutes = broker_setting(self._admin, "offsets.retention.minutes")
        return None if minutes is None else int(minutes) * 60.0

    def commit(self, batch: int, prepared: Mapping[int, Mapping[str, Any]]) -> set[int]:
        """See `Sink.commit`. Asks all coordinators at once, then fences doubtful ids.

        Raises:
            CommitUncertain: a coordinator did not answer within COMMIT_LIMIT_S, or was busy for BUSY_LIMIT_S.
            CommitRefused: a coordinator refuses, and will refuse again after a restart.
        """
        assert self._coordinator is not None, "start() comes first"
        by_partition = {p: self._transaction(entry) for p, entry in prepared.items()}
        parts = sorted(p for p, transaction in by_partition.items() if (batch, transaction) not in self._done)
        if not parts:
            return set()
        transactions = list(dict.fromkeys(by_partition[p] for p in parts))  # the tasks of a worker share one
        waiting = self._waiting(f"batch {batch} is committed")
        answers = self._coordinator.end(
            transactions, commit=True, limit_s=COMMIT_LIMIT_S, busy_limit_s=BUSY_LIMIT_S, look=waiting.look
        )
        answer_of = dict(zip(transactions, answers, strict=True))
        unclear = {p for p in parts if answer_of[by_partition[p]].outcome is Outcome.ELSEWHERE}
        silent = [p for p in parts if answer_of[by_partition[p]].outcome is Outcome.UNKNOWN]
        if silent:
            codes = {answer.error_code for answer in answers if answer.outcome is Outcome.UNKNOWN}
            kind = CommitRefused if any(of_code(code).permanent for code in codes) else CommitUncertain
            why = explain(codes, max(COMMIT_LIMIT_S, round(waiting.seconds)), self._names.sink_id)
            raise kind(
                f"batch {batch}, partitions {silent}: the transaction coordinator {why}. {waiting.why()}The batch is "
                "decided: start again after that, and the replay finishes it."
            )
        lost: set[int] = set()
        if unclear:
            marks = self._read_marks_of_unclear(batch, unclear)
            committed = {by_partition[p] for p in unclear if is_committed(marks, p, batch)}
            lost = {p for p in unclear if by_partition[p] not in committed}
            _log.warning("batch %d: transactions of partitions %s had ended before; lost: %s", batch, unclear, lost)
        for transaction, answer in answer_of.items():
            if answer.outcome is Outcome.DONE and not answer.doubtful:
                self._ended.pop(transaction.transactional_id, None)
                self._ended[transaction.transactional_id] = batch
        for name in list(self._ended)[: -COMMITTED_KEPT * self.partitions]:
            del self._ended[name]
        doubtful = {
            txn.transactional_id
            for txn, answer in answer_of.items()
            if answer.doubtful or answer.outcome is Outcome.ELSEWHERE
        }
        if doubtful:
            # An EndTxn without an answer may still arrive, and would then end the producer's next transaction (KIP-890
            # mends this flaw for clients that use TV2). Therefore these ids are never used again.
            self._retired |= doubtful
            self._fence_doubtful(batch, doubtful)
        return lost

    def _read_marks_of_unclear(self, batch: int, partitions: set[int]) -> dict[int, Mark]:
        try:
            return self._read_marks()
        except KafkaException as error:
            raise CommitUncertain(
                f"batch {batch}, partitions {sorted(partitions)}: the transactions ended, but their markers could "
                f"not be read: {error.args[0]}. The batch is decided: mend the cause or wait for the broker, and start "
                "again. The replay finishes it."
            ) from error

    def _fence_doubtful(self, batch: int, names: set[str]) -> None:
        try:
            self._fence(names)
        except (WireError, KafkaException, PipelineError) as error:
            raise CommitUncertain(
                f"batch {batch}: a commit got no answer, and the transactional ids in doubt could not be fenced: "
                f"{str(error).rstrip('.')}. The batch is decided: mend the cause or wait for the broker, and start "
                "again. The replay finishes it."
            ) from error

    def _transaction(self, prepared: Mapping[str, Any]) -> Transaction:
        return Transaction(prepared["transactional_id"], prepared["producer_id"], prepared["epoch"])

    def _fence(self, names: set[str]) -> None:
        """Ends hanging transactions, then fences ids: a fence erases the coordinators' decisions."""
        if names:
            assert self._coordinator is not None, "start() comes first"
            waiting = self._waiting("transactions of earlier drivers end")
            settle(self._coordinator, self._names.prefix, names, self._timeout_ms, BUSY_LIMIT_S, waiting)
            self._end_hanging(self._fence_now)
            self._fence_now(names)

    def _fence_now(self, names: Iterable[str]) -> None:
        """Fences ids without any check before; workers of this driver then retire their ids."""
        assert self._coordinator is not None, "start() comes first"
        asked = set(names)
        self._retired.update(name for name in asked if name.startswith(self._names.own_prefix))
        fence_all(self._coordinator, asked, self._timeout_ms, ADMIN_LIMIT_S)

    def _ids_to_fence(self, fenced: int) -> set[str]:
        """Returns the ids that still need fencing: not `Empty`, or newer than generation `fenced`.

        A fence leaves an id `Empty` (TransactionMetadata.prepareIncrementProducerEpoch), and only its next
        InitProducerId changes that. The fenced producer has an older epoch and is refused; if the coordinator has
        forgotten the id (`transactional.id.expiration.ms`), with INVALID_PRODUCER_ID_MAPPING. An id made after that
        fence belongs to a worker that found the newer generation and stopped. Fencing every id again would make each
        start longer, and Kafka would never forget an id.
        """
        assert self._coordinator is not None, "start() comes first"
        return {
            txn.transactional_id
            for txn in self._coordinator.listed(self._names.prefix, complete=True)
            if txn.state != "Empty" or (generation_of(self._names.sink_id, txn.transactional_id) or math.inf) > fenced
        }

    def _end_hanging(self, fence: Callable[[Iterable[str]], None] | None) -> None:
        assert self._coordinator is not None, "start() comes first"
        self._next_check_at = time.monotonic() + HANGING_CHECK_S
        topics = self._topic, OFFSETS_TOPIC
        end_hanging_transactions(self._coordinator, self._names.prefix, topics, DecisionNotes(self._offsets), fence)

    def _check_topics(self, guarantee: str) -> None:
        refuse_unfit_topics(self._admin, self._topic, self._quarantine_topic, guarantee, ADMIN_LIMIT_S)
        warn_of_replicas(self._admin, self._topic)
        self._limits = Limits(record_limit(self._admin, self._topic))

    def _check_timeout(self) -> None:
        self._limits = transaction_limits(self._admin, self._limits.record_bytes, self._timeout_ms)

    def hindrance(self) -> str | None:
        return shortage(self._admin, (self._topic, *filter(None, (self._quarantine_topic,))))

    def _waiting(self, until: str) -> Waiting:
        return Waiting(self._admin, (self._topic, OFFSETS_TOPIC), until)

    def _publish_generation(self, generation: int) -> bool:
        return publish_generation(self._offsets, self._names, generation)

    def _read_marks(self, stable: bool = True) -> dict[int, Mark]:
        """Returns each partition's newest marker; `stable` waits for open transactions first."""
        groups = map(self._names.marker_group, range(self.partitions))
        return newest_marks(self._offsets, groups, stable)

    def write_native(self, rows: DataFrame) -> None:
        records = routed(rows, self._topic, self._quarantine_topic)
        records.write.format("kafka").options(**options(self._client, self._limits.record_bytes)).save()

    def stream_native(self, rows: DataFrame) -> DataStreamWriter:
        stream = routed(rows, self._topic, self._quarantine_topic).writeStream
        return stream.format("kafka").options(**options(self._client, self._limits.record_bytes))

    def close(self) -> None:
        for each in (self._coordinator, self._claims):
            if each is not None:
                each.close()


def open_as(sink: type[KafkaSink], settings: SinkSettings) -> KafkaSink:
    """Makes a sink of this class from a job's settings."""
    return sink(
        topic=settings.output["output"],
        sink_id=settings.sink_id,
        partitions=settings.partitions,
        client=settings.kafka,
        transaction_timeout_ms=settings.transaction_timeout_ms,
        quarantine_topic=settings.quarantine_topic,
        driver=settings.driver,
    )


KINDS = (
    SinkKind("kafka", SUPPORTS, lacks={}, open=partial(open_as, KafkaSink), takes=RECORDS, transactions=LEFT_OPEN,
             timeout_limit=RAISE_LIMIT),
)  # fmt: skip
