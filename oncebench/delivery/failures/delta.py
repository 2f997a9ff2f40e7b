"""Delta Lake's errors by error condition, as delta-spark raises them.

Example of a condition: `[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES]`.

Source: error/delta-error-classes.json of delta-spark 4.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncebench.delivery.failures.cause import UNKNOWN, UNLESS_THERE, Cause, permanent, transient

_ROW = "Reject such rows in the query, or change the table's constraint"
_COLUMNS = "Give the table the columns of the query back, or take a new table, checkpoint and sink_id"
_VERSION = "Use a newer delta-spark, or drop the feature from the table"
_LOG = "Restore the newest state of the table with its _delta_log"
_NO_TYPE = "Delta cannot store a type of the query"
_CAST = "Cast the column to string in the query, or drop it"
_OTHER = "another writer committed first"

CONDITIONS: Mapping[str, Cause] = {
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": permanent("a row breaks a constraint of the table", _ROW),
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": permanent("a row has a null where the table takes none", _ROW),
    "DELTA_MISSING_NOT_NULL_COLUMN_VALUE": permanent("the rows lack a column that takes no null", _COLUMNS),
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT": permanent("a text is longer than its column allows", _ROW),
    "DELTA_METADATA_MISMATCH": permanent("the table's columns are not those of the query", _COLUMNS),
    "DELTA_FAILED_TO_MERGE_FIELDS": permanent("a column has another type than in the query", _COLUMNS),
    "DELTA_INVALID_PROTOCOL_VERSION": permanent("the table needs a newer Delta", _VERSION),
    "DELTA_UNSUPPORTED_FEATURES_FOR_READ": permanent("the table needs a newer Delta", _VERSION),
    "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE": permanent("the table needs a newer Delta", _VERSION),
    "DELTA_LOG_FILE_NOT_FOUND": permanent("a file of the table's log is gone", _LOG),
    "DELTA_VERSIONS_NOT_CONTIGUOUS": permanent("a file of the table's log is gone", _LOG),
    "DELTA_UNSUPPORTED_DATA_TYPES": permanent(_NO_TYPE, _CAST),
    "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE": permanent(_NO_TYPE, _CAST),
    "DELTA_CANNOT_WRITE_EMPTY_SCHEMA": permanent(_NO_TYPE, _CAST),
    "DELTA_GEOSPATIAL_NOT_SUPPORTED": permanent(_NO_TYPE, _CAST),
    "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES": permanent(
        "a name of a column or field has a character that Delta refuses", "Rename it in the query"
    ),
    "DELTA_CONCURRENT_WRITE": transient(_OTHER),
    "DELTA_CONCURRENT_APPEND": transient(_OTHER),
    "DELTA_CONCURRENT_TRANSACTION": transient(
        "another driver has committed with this sink_id meanwhile", "Let only one driver run", UNLESS_THERE
    ),
    "DELTA_METADATA_CHANGED": transient("the table was altered meanwhile; the next start compares its columns"),
    "DELTA_PROTOCOL_CHANGED": transient("the table was altered meanwhile; the next start compares its columns"),
    "DELTA_MAX_COMMIT_RETRIES_EXCEEDED": transient("other writers always committed first"),
}

# Delta itself would make a new table without a word.
GONE = permanent(
    "it was there before",
    "Restore the table, or take a new checkpoint and sink_id with the new table",
)


def of_text(text: str) -> Cause:
    """Returns the entry for the first line of an error."""
    return next((cause for condition, cause in CONDITIONS.items() if f"[{condition}" in text), UNKNOWN)


def is_named(text: str) -> bool:
    """Whether a text names one of Delta's error conditions."""
    return of_text(text) is not UNKNOWN
