"""Kafka refuses rows for a missing right or for their time, and the message has a remedy.

After the remedy, the batch passes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from oncebench.delivery.errors import CommitRefused, PermanentFailure, RefusedStart
from oncebench.delivery.quarantine import Quarantine
from oncebench.servers.kafka.broker import KafkaBroker, start_kafka
from oncebench.sinks.kafka.markers import Offsets
from oncebench.sinks.kafka.rows import append, writers
from oncebench.sinks.kafka.rows.produce import abort_reason
from oncebench.sinks.kafka.sink import KafkaSink
from tests.integration.sinks.kafka_output import Output, Task, rows, write
from tests.kafka_topics import configure, rejected
from tests.waiting import wait_for

pytestmark = pytest.mark.integration
LIMIT_S = 30
VARIANTS = ("acknowledged", "two-phase", "idempotent")
# Everybody may do everything, but for what an entry forbids.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
CLUSTER = (ResourceType.BROKER, "kafka-cluster")
EVERY_TOPIC = (ResourceType.TOPIC, "*")
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
EVERY_ENTRY = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with start_kafka(tmp_path_factory.mktemp("guarded"), settings=AUTHORIZER) as broker:
        yield broker


def entry(of: tuple[ResourceType, str], operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(*of, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)


def closed(broker: KafkaBroker) -> None:
    """Takes from this user the right to write any topic."""
    entries = [
        entry(CLUSTER, AclOperation.ALL, ALLOW), entry(CLUSTER, AclOperation.IDEMPOTENT_WRITE, DENY),
        entry(EVERY_TOPIC, AclOperation.WRITE, DENY), entry(EVERY_TOPIC, AclOperation.READ, ALLOW),
        entry(EVERY_TOPIC, AclOperation.DESCRIBE_CONFIGS, ALLOW),
    ]  # fmt: skip
    admin = broker.admin()
    for made in admin.create_acls(entries).values():
        made.result(LIMIT_S)
    wait_for("the broker to forbid it", lambda: set(entries) <= entries_of(broker))


def opened(broker: KafkaBroker, topic: str) -> None:
    """Does what the message says: grants Read and Write on the topic, and no more."""
    admin = broker.admin()
    denied = AclBindingFilter(
        *EVERY_TOPIC, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.WRITE, DENY
    )
    deleted = set(admin.delete_acls([denied])[denied].result(LIMIT_S))
    granted = {entry((ResourceType.TOPIC, topic), right, ALLOW) for right in (AclOperation.READ, AclOperation.WRITE)}
    for made in admin.create_acls(list(granted)).values():
        made.result(LIMIT_S)
    wait_for("the broker to allow it", lambda: granted <= entries_of(broker) and not deleted & entries_of(broker))


def entries_of(broker: KafkaBroker) -> set[AclBinding]:
    """The entries that the broker itself applies.

    The broker gets them from the controller, some time after the answer.
    """
    admin = broker.admin()  # a client that is collected takes its open requests with it
    return set(admin.describe_acls(EVERY_ENTRY).result(LIMIT_S))


@pytest.fixture(autouse=True)
def new_worker() -> None:
    forget()


def forget() -> None:
    """As when the worker processes of the next start are new."""
    writers._producers.clear()
    append._appenders.clear()


def writer(sink: KafkaSink, variant: str) -> Any:
    kinds = {"acknowledged": sink.acknowledged_writer, "two-phase": sink.prepare_writer}
    return kinds.get(variant, sink.idempotent_writer)()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_user_that_may_not_write_ends_the_job_and_passes_once_the_right_is_granted(
    guarded: KafkaBroker, variant: str
) -> None:
    output = Output(guarded)
    opened(guarded, output.topic)
    sink = output.driver(variant, 1)
    closed(guarded)
    try:
        with pytest.raises(PermanentFailure, match=rf"this user may .*--operation Write --topic {output.topic}, then"):
            write(writer(sink, variant), 0, "first")
    finally:
        opened(guarded, output.topic)
    forget()
    write(writer(output.driver(variant, 2), variant), 0, "first")


@pytest.mark.parametrize("variant", [*VARIANTS, "claim"])
def test_a_start_names_the_right_that_its_output_lacks(guarded: KafkaBroker, variant: str) -> None:
    output = Output(guarded)
    closed(guarded)
    try:
        with pytest.raises(
            RefusedStart, match=rf"the output topic '{output.topic}' is closed to this user\. Grant .*Write"
        ):
            output.driver(variant, 1)
    finally:
        opened(guarded, output.topic)
    output.driver(variant, 1)


@contextmanager
def denied(broker: KafkaBroker, kind: ResourceType, name: str) -> Iterator[None]:
    """Takes every right on a group or transactional id from this user."""
    made = entry((kind, name), AclOperation.ALL, DENY)
    admin = broker.admin()
    admin.create_acls([made])[made].result(LIMIT_S)
    wait_for("the broker to forbid it", lambda: made in entries_of(broker))
    try:
        yield
    finally:
        which = AclBindingFilter(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.ALL, DENY)
        admin.delete_acls([which])[which].result(LIMIT_S)
        wait_for("the broker to allow it", lambda: made not in entries_of(broker))


def test_a_group_that_this_user_may_not_use_is_no_cluster_that_does_not_answer(guarded: KafkaBroker) -> None:
    output = Output(guarded)
    offsets = Offsets({"bootstrap.servers": guarded.bootstrap_servers}, output.topic)
    with denied(guarded, ResourceType.GROUP, output.sink_id):
        with pytest.raises(KafkaException) as refused:
            offsets.read(output.sink_id)
        assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert offsets.read(output.sink_id) is None


@pytest.mark.parametrize("variant", ["two-phase", "idempotent"])
def test_ids_that_this_user_may_not_use_end_the_warm_up_and_pass_once_the_right_is_granted(
    guarded: KafkaBroker, variant: str
) -> None:
    output = Output(guarded)
    opened(guarded, output.topic)
    warm_up = output.driver(variant, 1).warm_up_writer()
    with (
        denied(guarded, ResourceType.TRANSACTIONAL_ID, "*"),
        pytest.raises(PermanentFailure, match=rf"--operation Write --transactional-id {output.sink_id}\.txn\. "),
    ):
        warm_up.write(Task(0), iter(()))
    warm_up.write(Task(0), iter(()))


def test_a_commit_that_this_user_may_not_make_is_refused_at_once_and_finished_later(guarded: KafkaBroker) -> None:
    output = Output(guarded)
    opened(guarded, output.topic)
    sink = output.driver("two-phase", 1)
    prepared = write(sink.prepare_writer(), 0, "first")
    with (
        denied(guarded, ResourceType.TRANSACTIONAL_ID, "*"),
        pytest.raises(CommitRefused, match=rf"--operation Write --transactional-id {output.sink_id}\.txn\. "),
    ):
        sink.commit(0, {0: prepared})
    assert sink.commit(0, {0: prepared}) == set()


def test_a_user_that_may_not_write_the_quarantine_topic_is_named_as_such(guarded: KafkaBroker) -> None:
    topic = guarded.fresh_topic("bad", 1)

    def copied() -> dict[str, int]:
        quarantine = Quarantine(topic, "in", {"bootstrap.servers": guarded.bootstrap_servers, "log_level": 0})
        quarantine.copy(rejected([("r", None, None, b"k", b"v")]))
        return quarantine.flush()

    closed(guarded)
    try:
        with pytest.raises(PermanentFailure, match=rf"quarantine topic {topic}: .*--operation Write --topic {topic},"):
            copied()
    finally:
        opened(guarded, topic)
    assert copied() == {"r": 1}, "the same worker, with a new client"


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_whose_time_the_topic_refuses_end_the_job_and_pass_once_the_limits_are_raised(
    kafka: KafkaBroker, variant: str
) -> None:
    output = Output(kafka)
    limits(kafka, output.topic, 0, 0)
    wait_for("the broker to refuse old rows", lambda: not takes_an_old_row(kafka, output.topic))
    with pytest.raises(PermanentFailure, match=r"clocks .* or raise message\.timestamp\.before\.max\.ms and"):
        write(writer(output.driver(variant, 1), variant), 0, "first")
    limits(kafka, output.topic, 2**62, 3_600_000)
    wait_for("the broker to take old rows", lambda: takes_an_old_row(kafka, output.topic))
    forget()
    write(writer(output.driver(variant, 2), variant), 0, "first")


@pytest.mark.parametrize("variant", ["two-phase", "idempotent"])
def test_a_row_that_is_refused_while_others_are_handed_over_is_named(kafka: KafkaBroker, variant: str) -> None:
    output = Output(kafka)
    sink = output.driver(variant, 1)
    limits(kafka, output.topic, 0, 0)
    wait_for("the broker to refuse old rows", lambda: not takes_an_old_row(kafka, output.topic))

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows("first")
        ((transactional,),) = writers._producers.values()
        wait_for("the transaction to fail", lambda: abort_reason(transactional.producer) is not None)
        yield from rows("second")

    with pytest.raises(PermanentFailure, match=r"the row with key 'first' has .* bytes"):
        writer(sink, variant).write(Task(0), slow())


def limits(broker: KafkaBroker, topic: str, before_ms: int, after_ms: int) -> None:
    values = {"message.timestamp.before.max.ms": before_ms, "message.timestamp.after.max.ms": after_ms}
    configure(broker.admin(), topic, values)


def takes_an_old_row(broker: KafkaBroker, topic: str) -> bool:
    """Whether the topic's log takes a row of one minute ago.

    The broker's description may be ahead of the log.
    """
    answers: list[KafkaError | None] = []

    def answered(error: KafkaError | None, _message: Message) -> None:
        answers.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "linger.ms": 0})
    timestamp = (time.time_ns() // 1_000_000) - 60_000
    producer.produce(topic, b"old", partition=0, timestamp=timestamp, on_delivery=answered)
    assert producer.flush(LIMIT_S) == 0
    (error,) = answers
    assert error is None or error.code() == KafkaError.INVALID_TIMESTAMP, error
    return error is None
