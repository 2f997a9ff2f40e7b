"""Kafka refuses rows for a right or for their time: the message says what helps, and the batch passes after that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from oncebench.delivery.errors import PermanentFailure
from oncebench.delivery.quarantine import FIELDS, Quarantine
from oncebench.servers.kafka.broker import KafkaBroker, start_kafka
from oncebench.sinks.kafka import writers
from oncebench.sinks.kafka.rows import append
from oncebench.sinks.kafka.sink import KafkaSink
from tests.integration.sinks.test_kafka_sink import Output, write

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
    time.sleep(0.5)  # the broker learns of it from the controller


def opened(broker: KafkaBroker, topic: str) -> None:
    """Does what the message says: grants Write on the topic, and no more."""
    admin = broker.admin()
    denied = AclBindingFilter(
        *EVERY_TOPIC, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.WRITE, DENY
    )
    admin.delete_acls([denied])[denied].result(LIMIT_S)
    for made in admin.create_acls([entry((ResourceType.TOPIC, topic), AclOperation.WRITE, ALLOW)]).values():
        made.result(LIMIT_S)
    time.sleep(0.5)


@pytest.fixture(autouse=True)
def new_worker() -> None:
    forget()


def forget() -> None:
    """As when the worker processes of the next start are new."""
    writers._transactional.clear()
    append._appenders.clear()


def writer(sink: KafkaSink, variant: str) -> Any:
    kinds = {"acknowledged": sink.acknowledged_writer, "two-phase": sink.prepare_writer}
    return kinds.get(variant, sink.idempotent_writer)()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_user_that_may_not_write_ends_the_job_and_passes_once_the_right_is_granted(
    guarded: KafkaBroker, variant: str
) -> None:
    output = Output(guarded)
    sink = output.driver(variant, 1)
    closed(guarded)
    try:
        with pytest.raises(PermanentFailure, match=rf"this user may .*--operation Write --topic {output.topic}, then"):
            write(writer(sink, variant), 0, "first")
    finally:
        opened(guarded, output.topic)
    forget()
    write(writer(output.driver(variant, 2), variant), 0, "first")


def test_a_user_that_may_not_write_the_quarantine_topic_is_named_as_such(guarded: KafkaBroker) -> None:
    topic = guarded.fresh_topic("bad", 1)
    kinds = (pa.string(), pa.int32(), pa.int64(), pa.binary(), pa.binary())
    columns = [pa.array([value], kind) for value, kind in zip(("r", None, None, b"k", b"v"), kinds, strict=True)]

    def rejected() -> dict[str, int]:
        quarantine = Quarantine(topic, "in", {"bootstrap.servers": guarded.bootstrap_servers, "log_level": 0})
        quarantine.copy(pa.StructArray.from_arrays(columns, names=list(FIELDS)))
        return quarantine.flush()

    closed(guarded)
    try:
        with pytest.raises(PermanentFailure, match=rf"quarantine topic {topic}: .*--operation Write --topic {topic},"):
            rejected()
    finally:
        opened(guarded, topic)
    assert rejected() == {"r": 1}, "the same worker, with a new client"


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_whose_time_the_topic_refuses_end_the_job_and_pass_once_the_limits_are_raised(
    kafka: KafkaBroker, variant: str
) -> None:
    output = Output(kafka)
    limits(kafka, output.topic, 0, 0)
    with pytest.raises(PermanentFailure, match=r"clocks .* or raise message\.timestamp\.before\.max\.ms and"):
        write(writer(output.driver(variant, 1), variant), 0, "first")
    limits(kafka, output.topic, 2**62, 3_600_000)
    forget()
    write(writer(output.driver(variant, 2), variant), 0, "first")


def limits(broker: KafkaBroker, topic: str, before_ms: int, after_ms: int) -> None:
    values = {"message.timestamp.before.max.ms": before_ms, "message.timestamp.after.max.ms": after_ms}
    entries = [
        ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET) for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = broker.admin()
    admin.incremental_alter_configs([resource])[resource].result(LIMIT_S)
    time.sleep(0.5)
