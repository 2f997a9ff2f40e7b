"""Spark's failures: error conditions (`[CANNOT_LOAD_STATE_STORE.KEY..]`), and Java classes.

A lost batch of input (`KAFKA_DATA_LOSS`, `OffsetOutOfRangeException`) is not here: the start checks it.

Source: error/error-conditions.json of Spark 4.2.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from oncebench.delivery.failures import delta
from oncebench.delivery.failures.cause import UNKNOWN, Cause, permanent, transient
from oncebench.delivery.failures.kafka import of_java
from oncebench.delivery.failures.system import DISK_FAILED

_STATE = (
    "Go back to the code and settings that made the state, or give the new ones a new checkpoint, sink_id and output"
)
_DAMAGED = (
    "Restore checkpoint and journal from just before the damage or, without such a copy, take a new checkpoint, "
    "sink_id and output"
)
_MADE_BY_ANOTHER = (
    "Go back to that code and Spark, restore a damaged checkpoint with its journal, or take a new checkpoint, sink_id "
    "and output"
)
_AGAIN = (
    "If this happens again, restore checkpoint and journal from just before the damage, or take a new checkpoint, "
    "sink_id and output"
)
_OTHER_STATE = "another query or Spark made the state, or it is damaged"
_APPEND = "the pipeline writes in append mode, which the query does not allow"
_WATERMARK = "Give the operator that Spark names a watermark in pipeline/query.py, or remove it"
_QUERY = "Correct pipeline/query.py"
_COLUMNS = "the query's state has other columns, or columns of other types, than before"
MEMORY = "Raise spark.driver.memory (or spark.executor.memory on a cluster) in `spark`"
_TRY_CAST = "Use try_cast in the query, which gives null"
_DISKS = "the disks of `checkpoint` and `record`, which has Spark's temporary files"
_STATE_NOT_WRITTEN = transient(
    "a file of the state could not be written", f"Look at the rights and flags of its folder, and at {_DISKS}"
)
_RIGHT = ("this user lacks a right on the file or its folder", "Grant the right with chmod or chown")
_NO_CLASS = "a jar is missing, or a setting or the query names a wrong class or format"
_JAR = (
    "Add the jar to `driver_jars` and `jars`, or correct the name (a state store's class: with new checkpoint and "
    "sink_id)"
)
WORKERS_MEMORY = "If the kernel's log says so, give the machine more memory, or the JVM less (spark.driver.memory)"

# Spark's limit for its start cannot be set: 10 s (PythonWorkerFactory.createSimpleWorker of Spark 4.2.0).
_SLOW_WORKER = transient("a Python worker started too slowly", "Check whether the machine is overloaded")

# An error that no table lists is mostly the query's own. Its text does not show whether the next try passes.
OTHER = transient(
    "no line of this page names it",
    "Correct the cause of the first error in the log; reject what the query cannot take, and return null for it in a "
    "UDF",
)
# py4j's own texts name no cause.
JVM_ENDED = transient(
    "Spark's JVM has ended",
    "Look for its last errors in the log or, if a SIGKILL has ended it, in dmesg; after an OutOfMemoryError raise "
    "spark.driver.memory in `spark`",
)

# By error condition, without the part after the dot.
CONDITIONS: Mapping[str, Cause] = {
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE": permanent(_COLUMNS, _STATE),
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE": permanent(_COLUMNS, _STATE),
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION": permanent(_COLUMNS, _STATE),
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE": permanent(
        "a variable of the state has another type than before", _STATE
    ),
    "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE": permanent("the query's state differs from before", _STATE),
    "STATE_STORE_INVALID_CONFIG_AFTER_RESTART": permanent("a setting of the state cannot be changed", _STATE),
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA": permanent(
        "the query has other stateful operators than its checkpoint", _STATE
    ),
    "STATE_STORE_INVALID_PROVIDER": permanent(
        "the class is no state store",
        "Correct spark.sql.streaming.stateStore.providerClass in `spark`, and take a new checkpoint and sink_id, "
        "because this one keeps the class",
    ),
    "STATE_STORE_KEY_ROW_FORMAT_VALIDATION_FAILURE": permanent(_OTHER_STATE, _MADE_BY_ANOTHER),
    "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE": permanent(_OTHER_STATE, _MADE_BY_ANOTHER),
    "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED": transient(
        "a row of the state was read damaged, from memory, a local disk or the checkpoint", _AGAIN
    ),
    "STATE_STORE_UNEXPECTED_EMPTY_FILE_IN_ROCKSDB_ZIP": transient(
        "a file of the state is empty on the local disk, and was not written to the checkpoint",
        "Look at the disk of `record`, which has Spark's temporary files",
    ),
    "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED": permanent("a file of the checkpoint is damaged", _DAMAGED),
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE": permanent(
        "the checkpoint's file metadata is missing",
        "Restore this file or, without a copy, take a new checkpoint, sink_id and output",
    ),
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY": permanent(
        "the checkpoint's folder state is missing or empty, or the query had no state before",
        "Restore the folder, go back to the query without state, or take a new checkpoint, sink_id and output",
    ),
    "CANNOT_LOAD_CHECKPOINT_FILE_MANAGER": permanent(
        "the class that writes checkpoint files cannot be used",
        "Correct spark.sql.streaming.checkpointFileManagerClass in `spark`",
    ),
    "STREAMING_QUERY_EVOLUTION_ERROR": permanent(
        "a source or the sink has no name, or one that Spark does not take",
        "Correct the names in pipeline/query.py, or remove spark.sql.streaming.queryEvolution settings from `spark`",
    ),
    "STREAMING_OUTPUT_MODE": permanent(_APPEND, _WATERMARK),
    "UNRESOLVED_COLUMN": permanent("the query names a column that does not exist", _QUERY),
    "UNRESOLVED_ROUTINE": permanent("the query names a function that does not exist", _QUERY),
    "PARSE_SYNTAX_ERROR": permanent("the query has a wrong expression", _QUERY),
    "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE": permanent(
        "the output cannot store a type of the query", "Cast the column to string in the query, or drop it"
    ),
    "DATATYPE_MISMATCH": permanent("the query combines types that do not fit", _QUERY),
    "CAST_INVALID_INPUT": permanent("a value cannot be cast", _TRY_CAST),
    "CAST_OVERFLOW": permanent("a value is too large for its type", _TRY_CAST),
    "DIVIDE_BY_ZERO": permanent("an expression divides by zero", "Use try_divide in the query, which gives null"),
    "REMAINDER_BY_ZERO": permanent("an expression divides by zero", "Use try_mod in the query, which gives null"),
    "ARITHMETIC_OVERFLOW": permanent(
        "a number is too large for its type", "Use try_add, try_multiply or the like in the query, which give null"
    ),
    "NUMERIC_VALUE_OUT_OF_RANGE": permanent("a number is too large for its type", "Reject such records in the query"),
    "CANNOT_PARSE_TIMESTAMP": permanent(
        "a text is no time in this format", "Use the function that Spark names in the query, which gives null"
    ),
    "INVALID_ARRAY_INDEX": permanent("an array has no such index", "Use get in the query, which gives null"),
    "INVALID_ARRAY_INDEX_IN_ELEMENT_AT": permanent(
        "an array has no such index", "Use try_element_at in the query, which gives null"
    ),
    "MALFORMED_RECORD_IN_PARSING": permanent(
        "a text cannot be parsed", "Use the mode PERMISSIVE in the query, which gives null"
    ),
    "CONCURRENT_STREAM_LOG_UPDATE": transient(
        "another query has written the same batch into this checkpoint", "Let only one driver run"
    ),
    "CANNOT_LOAD_STATE_STORE": transient(
        "the state could not be loaded",
        "If a file of it is missing or damaged, restore checkpoint and journal from just before that or take a new "
        "checkpoint, sink_id and output",
    ),
    "CANNOT_LOAD_STATE_STORE.FAILED_TO_GET_CHANGELOG_WRITER": _STATE_NOT_WRITTEN,
    "CANNOT_WRITE_STATE_STORE": _STATE_NOT_WRITTEN,
    "AGGREGATE_OUT_OF_MEMORY": transient("a task ran out of memory", MEMORY),
    "SPILL_OUT_OF_MEMORY": transient("a task could not write rows to its local disk", f"Look at {_DISKS}"),
    "POINTER_ARRAY_OUT_OF_MEMORY": transient("a task ran out of memory", MEMORY),
    "UNABLE_TO_ACQUIRE_MEMORY": transient("a task ran out of memory", MEMORY),
    "STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE": _SLOW_WORKER,
}
# By the class of a Java exception or a part of its text; the first one that is found counts.
TEXTS: Mapping[str, Cause] = {
    "java.lang.OutOfMemoryError: unable to create native thread": transient(
        "the system gave the JVM no more threads", "Raise the limit of this user (ulimit -u) or of the container"
    ),
    "java.lang.OutOfMemoryError": transient("the JVM ran out of memory", MEMORY),
    "Python worker exited unexpectedly": transient("a Python worker was killed, perhaps for memory", WORKERS_MEMORY),
    "Python worker to connect back": _SLOW_WORKER,
    "ExecutorLostFailure": transient(
        "an executor has ended", "Look for its last errors in its own log, on the machine of its worker"
    ),
    "No space left on device": transient("a disk is full", f"Make room on {_DISKS}"),
    "java.nio.file.AccessDeniedException": permanent(*_RIGHT),
    "(Permission denied)": permanent(*_RIGHT),
    "Input/output error": DISK_FAILED,
    "(Read-only file system)": permanent("the file system is mounted read-only", "Mount it for writing"),
    "Checksum error: file:": transient("a file of the checkpoint is damaged", _AGAIN),
    "Failed to find data source: kafka": permanent(
        "Spark's Kafka connector is missing", "Add the jars of spark-sql-kafka-0-10 for this Spark to `driver_jars`"
    ),
    "org.apache.spark.SparkClassNotFoundException": permanent(_NO_CLASS, _JAR),
    "java.lang.ClassNotFoundException": permanent(_NO_CLASS, _JAR),
    "failed to map segment from shared object": permanent(
        "native code cannot be loaded, because its disk is mounted noexec",
        "Put `record`, which has Spark's temporary files, on a disk that is not",
    ),
    "java.lang.NoClassDefFoundError: Could not initialize class": transient(
        "the class failed before", "Look for its first error in the log"
    ),
    "java.lang.NoClassDefFoundError": permanent(
        "a jar is missing or of another version", "Correct `driver_jars` or `jars`"
    ),
    "java.lang.NoSuchMethodError": permanent(
        "a jar is of another version than Spark", "Correct `driver_jars` or `jars`"
    ),
}
_CONDITION = re.compile(r"\[([A-Z][A-Z_]+)(\.[A-Z_.]+)?\]")


def of_text(text: str) -> Cause:
    """Returns the entry for the first line of Spark's innermost error."""
    found = of_condition(text)
    if found is not UNKNOWN:
        return found
    for part, cause in TEXTS.items():
        if part in text:
            return cause
    return of_java(text)


def of_condition(text: str) -> Cause:
    """Returns the entry of the first known error condition in a line."""
    for condition, part in _CONDITION.findall(text):
        found = CONDITIONS.get(condition + part) or CONDITIONS.get(condition) or delta.CONDITIONS.get(condition)
        if found:
            return found
    return UNKNOWN
