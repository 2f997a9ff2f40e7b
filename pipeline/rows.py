"""The columns of a row. For your own columns, change this file and `query.py`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from oncebench.delivery import quarantine
from oncebench.delivery.batch import check_columns
from oncebench.delivery.contract import RECORDS
from oncebench.delivery.digest import quoted
from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.records import row_as_json
from pipeline.config import RECORDS as RECORDS_WORKLOAD
from pipeline.config import SESSIONS

# In the column order of files and tables.
SCHEMA = StructType(
    [
        StructField("session_key", StringType()),
        StructField("j", IntegerType()),
        StructField("events", IntegerType()),
        StructField("total", LongType()),
        StructField("checksum", LongType()),
        StructField("ended_at", LongType()),
    ]
)
ROW = tuple(SCHEMA.names)
# The column that is the key of a record.
KEY = "session_key"
# The columns that identify a row, for sinks that overwrite rows (PostgreSQL's upsert).
ID = ("session_key", "j")

# The columns of the workload `records`: the record itself is in one more column.
WITH_RECORD = StructType([*SCHEMA.fields, StructField("record", StringType())])

RECORD_SCHEMA = StructType([StructField("key", StringType()), StructField("value", StringType())])


def schema_of(workload: str) -> StructType:
    """Returns the columns of a workload's rows."""
    return WITH_RECORD if workload == RECORDS_WORKLOAD else SCHEMA


def schema_for(takes: str, workload: str = SESSIONS) -> StructType:
    """Returns the columns that a sink gets: the row's own, or key and value."""
    return RECORD_SCHEMA if takes == RECORDS else schema_of(workload)


def rows_for(takes: str, rows: DataFrame) -> DataFrame:
    """Returns the rows in a sink's form: unchanged, or as records with JSON values."""
    if takes != RECORDS:
        return rows
    kept = [name for name in rows.columns if name == quarantine.COLUMN]
    row = [name for name in rows.columns if name != quarantine.COLUMN]
    return rows.select(f.col(quoted(KEY)).cast("string").alias("key"), row_as_json(row).alias("value"), *kept)


def check_query(rows: DataFrame, workload: str = SESSIONS) -> None:
    """Checks that a query has exactly the columns of its workload.

    The query may also have a quarantine column.

    Raises:
        RefusedStart: a column is missing, of another type, or unknown. See also `check_columns`.
    """
    check_columns(rows.schema)
    found: Mapping[str, DataType] = {field.name: field.dataType for field in rows.schema}
    wanted = schema_of(workload)
    for field in wanted:
        kind = found[field.name].simpleString() if field.name in found else "missing"
        if kind != field.dataType.simpleString():
            raise RefusedStart(
                f"column {field.name!r} of the query in pipeline/query.py is {kind}; pipeline/rows.py has "
                f"{field.dataType.simpleString()}. Cast or add it in the query, or change SCHEMA in rows.py."
            )
    for name in found:
        if name not in wanted.names and name != quarantine.COLUMN:
            raise RefusedStart(
                f"the query in pipeline/query.py has a column {name!r} that SCHEMA in pipeline/rows.py does not have. "
                "Drop it in the query, or add it to SCHEMA."
            )
