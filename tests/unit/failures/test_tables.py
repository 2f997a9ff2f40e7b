"""Each table of error codes has known codes, and sentences that fit into a message.

Unknown codes stay transient.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Mapping
from typing import Any

import kafka.errors
import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException

from oncebench.delivery.errors import DeliveryFailed, PermanentFailure
from oncebench.delivery.failures import delta, postgres, spark, sqlite, system
from oncebench.delivery.failures import kafka as of_kafka
from oncebench.delivery.failures.cause import UNKNOWN, Cause, failure

TABLES: Mapping[str, Mapping[Any, Cause]] = {
    "broker": of_kafka.BROKER, "librdkafka": of_kafka.CLIENT, "SQLSTATE": postgres.CODES,
    "SQLSTATE classes": postgres.CLASSES, "Spark conditions": spark.CONDITIONS, "Spark texts": spark.TEXTS,
    "Delta conditions": delta.CONDITIONS, "errno": system.ERRNOS, "SQLite": sqlite.CODES,
}  # fmt: skip
ENTRIES = [(table, code, cause) for table, causes in TABLES.items() for code, cause in causes.items()]


@pytest.mark.parametrize(("table", "code", "cause"), ENTRIES, ids=lambda value: str(value)[:40])
def test_every_entry_has_a_reason_and_a_permanent_one_says_what_to_do(table: str, code: Any, cause: Cause) -> None:
    assert cause.reason, (table, code)
    assert not cause.reason.endswith(".")
    assert cause.remedy or not cause.permanent
    assert not cause.remedy.endswith(".")
    said = failure(cause, "batch 1, partition 0: words")
    assert isinstance(said, PermanentFailure) == cause.permanent != said.restart_helps
    assert str(said).startswith("batch 1, partition 0: words")
    assert ".." not in str(said)
    assert str(said).endswith(".")


@pytest.mark.parametrize("code", sorted(of_kafka.BROKER))
def test_a_brokers_code_means_the_same_in_both_clients(code: int) -> None:
    wire = kafka.errors.for_code(code)("words")
    assert of_kafka.of_error(wire) is of_kafka.of_error(KafkaException(KafkaError(code))) is of_kafka.BROKER[code]


def test_unknown_codes_are_transient_in_every_table() -> None:
    found = [of_kafka.of_error(kafka.errors.KafkaConnectionError("gone")), of_kafka.of_code(9999),
             of_kafka.of_error(ValueError("x")), postgres.of_sqlstate("ZZ000"), system.of_errno(None),
             system.of_errno(9999), spark.of_text("ValueError: x"), spark.of_text("[NO_SUCH_CONDITION] x")]  # fmt: skip
    assert found == [UNKNOWN] * len(found)
    assert not UNKNOWN.permanent
    assert type(failure(UNKNOWN, "words")) is DeliveryFailed


@pytest.mark.parametrize(
    ("error", "permanent"),
    [(psycopg.errors.StringDataRightTruncation, True), (psycopg.errors.NotNullViolation, True),
     (psycopg.errors.UndefinedTable, True), (psycopg.errors.InsufficientPrivilege, True),
     (psycopg.errors.FeatureNotSupported, True), (psycopg.errors.RaiseException, True),
     (psycopg.errors.QueryCanceled, False), (psycopg.errors.DiskFull, False), (psycopg.errors.AdminShutdown, False),
     (psycopg.errors.DeadlockDetected, False), (psycopg.errors.SerializationFailure, False),
     (psycopg.errors.TooManyConnections, False), (psycopg.OperationalError, False)],
)  # fmt: skip
def test_postgresqls_errors(error: type[psycopg.Error], permanent: bool) -> None:
    assert postgres.of_sqlstate(error.sqlstate).permanent is permanent


@pytest.mark.parametrize(
    ("text", "permanent"),
    [("org.apache.kafka.common.errors.RecordTooLargeException: The message is 1200000 bytes", True),
     ("Job aborted: Lost task 2.0: org.apache.kafka.common.errors.RecordTooLargeException: The request", True),
     ("org.apache.kafka.common.errors.NotEnoughReplicasException: x", False),
     ("[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided schema", True),
     ("org.apache.spark.SparkArithmeticException: [ARITHMETIC_OVERFLOW] long overflow", True),
     ("[CAST_INVALID_INPUT.WITHOUT_SUGGESTION] x", True),
     ("delta.schema.DeltaInvariantViolationException: [DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] C", True),
     ("[DELTA_CONCURRENT_WRITE] ConcurrentWriteException: x", False),
     ("java.lang.OutOfMemoryError: Java heap space", False),
     ("java.io.FileNotFoundException: /c/offsets/.1.2f.tmp (Permission denied)", True),
     ("Failed to find data source: kafka. Please deploy the application as per", True),
     ("java.lang.ClassNotFoundException: org.nope.Manager", True),
     ("java.lang.NoClassDefFoundError: org/nope/Manager", True),
     ("java.lang.NoClassDefFoundError: Could not initialize class org.rocksdb.RocksDB", False),
     ("java.lang.UnsatisfiedLinkError: /r/l.so: /r/l.so: failed to map segment from shared object", True),
     ("[STATE_STORE_UNEXPECTED_EMPTY_FILE_IN_ROCKSDB_ZIP] Detected an empty file", False),
     ("[STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED] Row checksum verification failed", False),
     ("org.apache.hadoop.fs.ChecksumException: Checksum error: file:/c/commits/0 at 0 exp: 1 got: 2", False),
     ("java.io.FileNotFoundException: /c/offsets/.1.2f.tmp (No space left on device)", False),
     ("java.io.IOException: No space left on device", False)],
)  # fmt: skip
def test_sparks_errors(text: str, permanent: bool) -> None:
    assert spark.of_text(text) is not UNKNOWN
    assert spark.of_text(text).permanent is permanent


def test_a_java_time_out_is_the_clients_and_a_refused_topic_is_named() -> None:
    errors = "org.apache.kafka.common.errors"
    timed_out = spark.of_text(f"{errors}.TimeoutException: Timed out waiting for a node assignment")
    assert timed_out is of_kafka.CLIENT[KafkaError._TIMED_OUT]
    refused = spark.of_text(f"{errors}.TopicAuthorizationException: Not authorized to access topics: [orders.v1]")
    assert refused.remedy.endswith("--operation Read --topic orders.v1"), "an input needs no right to write"


def test_a_remedy_names_what_its_command_is_about() -> None:
    assert of_kafka.named(of_kafka.BROKER[53], sink_id="s-1").remedy.count("--transactional-id s-1.txn. ") == 1
    assert of_kafka.named(UNKNOWN, "orders") is UNKNOWN, "or a message would say that no table has the code"


def test_a_full_disk_passes_and_a_missing_right_does_not() -> None:
    assert not system.of_errno(errno.ENOSPC).permanent
    assert system.of_errno(errno.EACCES).permanent


def test_sqlites_errors() -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (v INTEGER PRIMARY KEY CHECK (v > 0))")
        for statement, is_permanent in (("INSERT INTO t VALUES (0)", True), ("INSERT INTO gone VALUES (1)", True)):
            with pytest.raises(sqlite3.Error) as failed:
                connection.execute(statement)
            assert sqlite.of_error(failed.value).permanent is is_permanent
    assert sqlite.of_error(sqlite3.OperationalError("without a code")) is UNKNOWN


def test_a_wrong_type_in_a_strict_table_of_sqlite_is_permanent() -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE strict_one (number INTEGER) STRICT")
        with pytest.raises(sqlite3.IntegrityError) as failed:
            connection.execute("INSERT INTO strict_one VALUES ('text')")
    assert sqlite.of_error(failed.value) is sqlite.CODES["SQLITE_MISMATCH"]


def test_a_state_that_cannot_be_written_is_not_called_unreadable() -> None:
    for condition in ("CANNOT_LOAD_STATE_STORE.FAILED_TO_GET_CHANGELOG_WRITER", "CANNOT_WRITE_STATE_STORE.X"):
        assert "could not be written" in spark.of_text(f"[{condition}] An error occurred").reason
    assert "could not be loaded" in spark.of_text("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error").reason


def test_a_lost_coordinator_leads_to_the_brokers() -> None:
    waiting = of_kafka.of_code(KafkaError._WAIT_COORD)
    assert (waiting.permanent, waiting.remedy) == (False, "Start the missing brokers")
