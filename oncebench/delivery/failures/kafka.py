"""Kafka's errors: the broker's codes, and the codes of librdkafka (confluent-kafka) itself.

A broker's code is the same number in every client: librdkafka's positive codes, kafka-python's `errno`, and the class
of Java's exception. librdkafka's negative codes are its own. kafka-python's own errors have no number; all of them are
failed connections or missing answers, so they are transient.

Source: org.apache.kafka.common.protocol.Errors (4.3.1), rdkafka.h (2.14).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from kafka.errors import KafkaError as WireError

from oncebench.delivery.failures.cause import UNKNOWN, Cause, permanent, transient
from oncebench.kafka_repair import fatal

_ADD = "kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME"
_GROUPS = (
    "Grant it Read on it, or on the sink's groups: "
    f"{_ADD} --operation Read --group SINK_ID. --resource-pattern-type prefixed"
)
_IDS = (
    f"Grant it Write on them: {_ADD} --operation Write --transactional-id SINK_ID.txn. --resource-pattern-type prefixed"
)
# A sink with markers also needs Read on its own output: Kafka asks for it when an offset of the topic is stored.
_TOPIC_RIGHT = (
    f"Grant it Read (input), or Read and Write (output): {_ADD} --operation Read --operation Write --topic TOPIC"
)
_CONFIGS = "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name TOPIC --add-config"
_MEMBERS = "Stop its consumers: kafka-consumer-groups.sh --bootstrap-server HOST:PORT --describe --members --all-groups"
_REPLICAS = "Start the missing brokers"
_SETTING = "Correct it in `kafka` or `kafka_conf` (in a job of your own: KafkaAccess)"
_RENAMED = "Name another topic and, if it is the output, a new checkpoint and sink_id"
_LOGIN = "Correct the login in the Kafka settings (sasl.jaas.config)"
_SECURED = "Correct security.protocol and the certificates in the Kafka settings, or name another listener"
_CHECKED = "the broker does not know the topic or partition; the next start checks the topic"
_FENCED = "the broker has fenced the producer: its transaction took too long, or another driver or an operator ended it"
_MOVES = "a leader or coordinator is moving to another broker"
_FORGOTTEN = "the broker has forgotten the producer; the next one gets a new id"
_JOINED = "a consumer has joined a group in which the sink keeps its markers"

# By the broker's number.
BROKER: Mapping[int, Cause] = {
    2: transient("the broker received damaged bytes"),
    3: transient(_CHECKED),
    5: transient("the partition has no leader: one is being elected, or its brokers are away", _REPLICAS),
    6: transient(_MOVES),
    7: transient("the replicas did not answer in time"),
    8: transient("a broker is away"),
    9: transient(_MOVES),
    10: permanent(
        "the record is longer than its topic allows",
        f"Raise the topic's limit ({_CONFIGS} max.message.bytes=BYTES), or reject such records in the query",
    ),
    12: permanent(
        "the sink's marker is longer than the broker allows",
        "Raise offset.metadata.max.bytes in server.properties to its default, 4096, and restart the brokers",
    ),
    13: transient("a connection broke"),
    14: transient("a coordinator loads its log after a move or restart"),
    15: transient(
        "there is no coordinator: __consumer_offsets or __transaction_state is being made, or cannot be",
        "Start the missing brokers, or lower offsets.topic.replication.factor and "
        "transaction.state.log.replication.factor to their number",
    ),
    16: transient(_MOVES),
    17: permanent("the topic's name is not allowed, or the topic is internal", _RENAMED),
    18: permanent(
        "a batch of records is longer than a log segment",
        f"Raise the topic's segment.bytes, for example to 100 MB ({_CONFIGS} segment.bytes=104857600)",
    ),
    19: transient("not enough in-sync replicas", _REPLICAS),
    20: transient("not enough in-sync replicas", _REPLICAS),
    21: permanent("the topic does not take this number of acknowledgements", "Use a broker of version 3.9 to 4.3"),
    22: transient(_JOINED, _MEMBERS),
    25: transient(_JOINED, _MEMBERS),
    27: transient(_JOINED, _MEMBERS),
    29: permanent("this user may not use the topic", _TOPIC_RIGHT),
    30: permanent("this user may not use the consumer group", _GROUPS),
    31: permanent(
        "this user may write no topic, so the broker gives the producer no id",
        f"Grant it Write on the topic: {_ADD} --operation Write --topic TOPIC",
    ),
    32: permanent(
        "the record's time, which a worker's clock gives, is outside of what the topic allows",
        "Correct the clocks of the workers' machines, or raise message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms of the topic",
    ),
    33: permanent("the broker does not have this SASL mechanism", "Correct sasl.mechanism in the Kafka settings"),
    34: permanent("the listener expects a login", _SECURED),
    35: permanent("the broker is too old or too new for this request", "Use a broker of version 3.9 to 4.3"),
    40: permanent("a setting of the topic or broker is not valid", "Correct the setting that the broker names"),
    42: permanent(
        "the broker refuses the request's form",
        "Read the reason in the broker's log; if the broker's version is not 3.9 to 4.3, use such a broker",
    ),
    43: permanent("the topic has an old message format", _RENAMED),
    44: permanent("a policy of the broker refuses the request", "Ask the cluster's operator about the policy"),
    45: transient("the broker lacks an earlier record of this producer; the next producer begins anew"),
    46: transient("the broker has this record already; the next producer begins anew"),
    47: transient(_FENCED),
    48: transient("the transaction had ended before"),
    49: transient("the broker has forgotten the id, perhaps because it was idle for transactional.id.expiration.ms"),
    50: permanent(
        "the transaction time-out is longer than transaction.max.timeout.ms of the brokers",
        "Lower transaction_timeout_ms, or raise the limit in server.properties and restart the brokers",
    ),
    51: transient("the coordinator still ends the id's last transaction"),
    52: transient(_MOVES),
    53: permanent("this user may not use the sink's transactional ids", _IDS),
    56: transient("a disk of the broker failed", "Look at the broker's log and its disks"),
    58: permanent("the broker refuses the login", _LOGIN),
    59: transient(_FORGOTTEN),
    72: transient("a listener of the broker is not there yet"),
    74: transient(_MOVES),
    75: transient(_MOVES),
    76: permanent("the broker cannot compress in this way", "Remove compression.type from the Kafka settings"),
    87: permanent(
        "the broker refuses the record's form or time; a compacted topic takes no record without a key",
        "If the topic is compacted, give each row a key, or name another topic; otherwise correct the workers' clocks",
    ),
    88: transient("a transaction with this marker has not ended yet"),
    89: transient("a quota of the broker slows this client down", "Raise the quota"),
    90: transient(_FENCED),
    100: transient(_CHECKED),
    120: transient("the broker asks for an abort of the transaction"),
}

# By librdkafka's own number.
CLIENT: Mapping[int, Cause] = {
    KafkaError._INVALID_ARG: permanent("Kafka's client refuses a setting", _SETTING),
    KafkaError._NOT_IMPLEMENTED: permanent("Kafka's client does not have this feature", _SETTING),
    KafkaError._UNSUPPORTED_FEATURE: permanent("the broker is too old", "Use a broker of version 3.9 to 4.3"),
    KafkaError._AUTHENTICATION: permanent("the broker refuses the login", _LOGIN),
    KafkaError._SSL: permanent("the TLS connection was refused", _SECURED),
    KafkaError._INVALID_TYPE: permanent("Kafka's client refuses a setting", _SETTING),
    KafkaError._UNKNOWN_TOPIC: transient(_CHECKED),
    KafkaError._UNKNOWN_PARTITION: transient(_CHECKED),
    KafkaError._UNKNOWN_GROUP: transient("a coordinator is moving to another broker"),
    KafkaError._MSG_TIMED_OUT: transient("the broker did not acknowledge a record in time"),
    KafkaError._TIMED_OUT: transient("the broker did not answer in time"),
    KafkaError._TIMED_OUT_QUEUE: transient("the client was too busy to send a request in time"),
    KafkaError._TRANSPORT: transient("a connection broke"),
    KafkaError._ALL_BROKERS_DOWN: transient(
        "no broker can be reached", "Check the addresses and the network, and start the brokers"
    ),
    KafkaError._RESOLVE: transient("a broker's host name cannot be resolved", "Check the address and the name server"),
    KafkaError._QUEUE_FULL: transient("the client's queue is full"),
    KafkaError._CRIT_SYS_RESOURCE: transient(
        "the machine is out of memory, threads or files", "Check free memory and this user's limits (ulimit -a)"
    ),
    KafkaError._FS: transient(
        "Kafka's client could not read or write a file",
        "Look at the certificate and key files in the Kafka settings, and at the disk",
    ),
    KafkaError._WAIT_COORD: transient("no coordinator answers: its broker is away, or it is moving", _REPLICAS),
    KafkaError._ISR_INSUFF: transient("not enough in-sync replicas", _REPLICAS),
    KafkaError._PURGE_QUEUE: transient("the transaction was aborted before the record was sent"),
    KafkaError._PURGE_INFLIGHT: transient("the transaction was aborted before the record was acknowledged"),
    KafkaError._STATE: transient("the producer failed before, and the next one begins anew"),
    KafkaError._FATAL: transient("the producer failed for good, and the next one begins anew"),
    KafkaError._FENCED: transient(_FENCED),
    KafkaError._GAPLESS_GUARANTEE: transient("a record was lost on its way, and the next producer begins anew"),
    KafkaError._INCONSISTENT: transient("client and broker disagree about the producer; the next one begins anew"),
    KafkaError._DESTROY: transient("the client was closed"),
}

# The broker's number of Java's exceptions, which Spark's source and sink raise.
_JAVA: Mapping[str, int] = {
    "RecordTooLargeException": 10,
    "RecordBatchTooLargeException": 18,
    "InvalidTopicException": 17,
    "UnknownTopicOrPartitionException": 3,
    "NotEnoughReplicasException": 19,
    "NotEnoughReplicasAfterAppendException": 20,
    "TopicAuthorizationException": 29,
    "GroupAuthorizationException": 30,
    "ClusterAuthorizationException": 31,
    "InvalidTimestampException": 32,
    "SaslAuthenticationException": 58,
    "InvalidRecordException": 87,
    "UnsupportedVersionException": 35,
    "UnsupportedForMessageFormatException": 43,
    "PolicyViolationException": 44,
    "TimeoutException": KafkaError._TIMED_OUT,
    "NetworkException": 13,
    "KafkaStorageException": 56,
}
# Java does not say whether the topic is an input or an output.
_JAVA_RIGHT = permanent(
    "this user may not use the topic",
    f"Grant it Read, and on an output topic also --operation Write: {_ADD} --operation Read --topic TOPIC",
)
# A consumer is a member of a group whose offset is stored from outside: nothing passes until it leaves.
MEMBERS = frozenset({22, 25, 27})
# A failed producer drops its records with these codes.
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
# A batch with one record takes some 70 bytes more than the record's key and value; headers take more.
_OVERHEAD_BYTES = 10_000
_PLACEHOLDER = re.compile(r"\b(?:TOPIC|SINK_ID|BYTES)\b")
_JAVA_TOPIC = re.compile(r"Not authorized to access topics: \[([\w.-]+)\]")
_CLASS = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)")


def fatal_error(raised: BaseException | None, client: Any = None) -> KafkaError | None:
    """Returns the error of confluent-kafka that another one hides; None if there is none.

    A client that has failed for good raises its error from whatever call comes next. If that call succeeds, Python
    raises a SystemError, and the client's error is its cause; sometimes it has no cause. The client itself is asked
    first, if it is given.
    """
    found = fatal.reason_of(client) or raised
    while found is not None and not isinstance(found, KafkaException):
        found = found.__cause__
    return found.args[0] if found is not None and isinstance(found.args[0], KafkaError) else None


def of_code(code: int) -> Cause:
    """Returns the entry for a code of a broker or of librdkafka."""
    return BROKER.get(code) or CLIENT.get(code) or UNKNOWN


def of_error(error: BaseException | KafkaError) -> Cause:
    """Returns the entry for an error of confluent-kafka or kafka-python."""
    if isinstance(error, KafkaException):
        error = error.args[0] if error.args else error
    if isinstance(error, KafkaError):
        return of_code(error.code())
    code = getattr(error, "errno", None) if isinstance(error, WireError) else None
    return of_code(code) if isinstance(code, int) else UNKNOWN


def of_java(text: str) -> Cause:
    """Returns the entry for the first Java exception of Kafka's client that a text names."""
    found = _CLASS.search(text)
    code = None if found is None else _JAVA.get(found[1])
    if code is None:
        return UNKNOWN
    topic = _JAVA_TOPIC.search(text)
    cause = _JAVA_RIGHT if code == _JAVA["TopicAuthorizationException"] else of_code(code)
    return named(cause, "TOPIC" if topic is None else topic[1])


def named(cause: Cause, topic: str = "TOPIC", sink_id: str = "SINK_ID", size: int | None = None) -> Cause:
    """Returns a cause whose remedy has these names in its commands.

    The commands also have the limit that a record of `size` bytes needs.
    """
    if not cause.remedy:
        return cause
    known = {"TOPIC": topic, "SINK_ID": sink_id, "BYTES": "BYTES" if size is None else str(size + _OVERHEAD_BYTES)}
    return replace(cause, remedy=_PLACEHOLDER.sub(lambda found: known[found[0]], cause.remedy))
