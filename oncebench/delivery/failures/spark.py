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

_STATE = (
    "Go back to the code and settings that made the state, or give the new ones a new checkpoint, sink_id and output"
)
_DAMAGED = (
    "Restore the checkpoint with its journal from before the damage or, without such a copy, take a new checkpoint, "
    "sink_id and output"
)
_QUERY = "Correct pipeline/query.py"
MEMORY = "Raise spark.driver.memory (or spark.executor.memory on a cluster) in `spark`"

# By error condition, without the part after the dot.
CONDITIONS: Mapping[str, Cause] = {
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE": permanent("the query's state has other columns than before", _STATE),
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE": permanent("the query's state has other columns than before", _STATE),
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION": permanent("the query's state has other columns than before", _STATE),
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE": permanent("the query's state has another type than before", _STATE),
    "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE": permanent("the query's state differs from before", _STATE),
    "STATE_STORE_INVALID_CONFIG_AFTER_RESTART": permanent("a setting of the state cannot be changed", _STATE),
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA": permanent(
        "the query has other stateful operators than its checkpoint", _STATE
    ),
    "STATE_STORE_INVALID_PROVIDER": permanent(
        "the state store's class does not exist", "Correct spark.sql.streaming.stateStore.providerClass in `spark`"
    ),
    "STATE_STORE_KEY_ROW_FORMAT_VALIDATION_FAILURE": permanent("the state does not fit the query", _STATE),
    "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE": permanent("the state does not fit the query", _STATE),
    "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED": permanent("a file of the state is damaged", _DAMAGED),
    "STATE_STORE_UNEXPECTED_EMPTY_FILE_IN_ROCKSDB_ZIP": permanent("a file of the state is damaged", _DAMAGED),
    "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED": permanent("a file of the checkpoint is damaged", _DAMAGED),
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE": permanent("a file of the checkpoint is missing", _DAMAGED),
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY": permanent("the state's folder is missing", _DAMAGED),
    "CANNOT_LOAD_CHECKPOINT_FILE_MANAGER": permanent(
        "the class that writes checkpoint files is missing",
        "Correct spark.sql.streaming.checkpointFileManagerClass in `spark`",
    ),
    "STREAMING_QUERY_EVOLUTION_ERROR": permanent("the query differs from the one of the checkpoint", _STATE),
    "STREAMING_OUTPUT_MODE": permanent("the query cannot be written in this output mode", _QUERY),
    "UNRESOLVED_COLUMN": permanent("the query names a column that does not exist", _QUERY),
    "UNRESOLVED_ROUTINE": permanent("the query names a function that does not exist", _QUERY),
    "PARSE_SYNTAX_ERROR": permanent("the query has a wrong expression", _QUERY),
    "DATATYPE_MISMATCH": permanent("the query combines types that do not fit", _QUERY),
    "CAST_INVALID_INPUT": permanent("a value of the input cannot be cast", "Use try_cast in pipeline/query.py"),
    "CAST_OVERFLOW": permanent("a value of the input is too large for its type", "Use try_cast in pipeline/query.py"),
    "DIVIDE_BY_ZERO": permanent("an expression divides by zero", "Use try_divide in pipeline/query.py"),
    "ARITHMETIC_OVERFLOW": permanent(
        "a number is too large for its type", "Use try_add, try_multiply or the like in the query, which give null"
    ),
    "NUMERIC_VALUE_OUT_OF_RANGE": permanent("a number is too large for its type", "Reject such records in the query"),
    "CANNOT_PARSE_TIMESTAMP": permanent("a text of the input is no time", "Use try_to_timestamp in the query"),
    "INVALID_ARRAY_INDEX": permanent("an array of the input is too short", "Use get or try_element_at in the query"),
    "MALFORMED_RECORD_IN_PARSING": permanent("a text cannot be parsed", "Use the mode PERMISSIVE in the query"),
    "CONCURRENT_STREAM_LOG_UPDATE": transient("another query writes this checkpoint", "Let only one driver run"),
    "CANNOT_LOAD_STATE_STORE": transient("a file of the state could not be read"),
    "CANNOT_WRITE_STATE_STORE": transient("a file of the state could not be written", "Look at the checkpoint's disk"),
    "AGGREGATE_OUT_OF_MEMORY": transient("a task ran out of memory", MEMORY),
    "SPILL_OUT_OF_MEMORY": transient("a task ran out of memory", MEMORY),
    "POINTER_ARRAY_OUT_OF_MEMORY": transient("a task ran out of memory", MEMORY),
    "UNABLE_TO_ACQUIRE_MEMORY": transient("a task ran out of memory", MEMORY),
    "STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE": transient("a Python worker started too slowly"),
}
# By the class of a Java exception or a message's beginning.
TEXTS: Mapping[str, Cause] = {
    "java.lang.OutOfMemoryError": transient("the JVM ran out of memory", MEMORY),
    "Python worker exited unexpectedly": transient("a Python worker was killed, perhaps for its memory", MEMORY),
    "java.io.IOException: No space left on device": transient("a disk is full", "Make room on the disk"),
    "java.nio.file.AccessDeniedException": permanent(
        "this user lacks a right on a file", "Grant the right with chmod or chown"
    ),
    "org.apache.spark.SparkClassNotFoundException": permanent("a jar is missing", "Add it to `jars` or `driver_jars`"),
    "java.lang.ClassNotFoundException": permanent("a jar is missing", "Add it to `jars` or `driver_jars`"),
    "java.lang.NoClassDefFoundError": permanent("a jar is missing or of another version", "Correct `jars`"),
    "java.lang.NoSuchMethodError": permanent("a jar is of another version than Spark", "Correct `jars`"),
}
_CONDITION = re.compile(r"\[([A-Z][A-Z_]+)(?:\.[A-Z_.]+)?\]")


def of_text(text: str) -> Cause:
    """Returns the entry for the first line of Spark's innermost error."""
    found = of_condition(text)
    if found is not UNKNOWN:
        return found
    for beginning, cause in TEXTS.items():
        if beginning in text:
            return cause
    return of_java(text)


def of_condition(text: str) -> Cause:
    """Returns the entry of the first known error condition in a line."""
    for condition in _CONDITION.findall(text):
        found = CONDITIONS.get(condition) or delta.CONDITIONS.get(condition)
        if found:
            return found
    return UNKNOWN


def out_of_memory(cause: Cause) -> bool:
    """Whether more memory, or smaller batches, would help."""
    return cause is not UNKNOWN and cause.remedy == MEMORY
