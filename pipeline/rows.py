"""The columns of a row. Together with `query.py`, which makes the rows, this is the file to change for your own."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from oncebench.delivery import quarantine
from oncebench.delivery.contract import RECORDS
from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.records import row_as_json

# In the order of files and tables.
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
# What identifies a row, for sinks that overwrite rows (PostgreSQL's upsert).
ID = ("session_key", "j")

RECORD_SCHEMA = StructType([StructField("key", StringType()), StructField("value", StringType())])


def schema_for(takes: str) -> StructType:
    """The columns that a sink is given: the row's own, or key and value."""
    return RECORD_SCHEMA if takes == RECORDS else SCHEMA


def rows_for(takes: str, rows: DataFrame) -> DataFrame:
    """The query's rows as a sink takes them: as they are, or as records with the row as JSON."""
    if takes != RECORDS:
        return rows
    kept = [name for name in rows.columns if name == quarantine.COLUMN]
    return rows.select(f.col(KEY).cast("string").alias("key"), row_as_json(ROW).alias("value"), *kept)


def check_query(rows: DataFrame) -> None:
    """Checks that a query gives the columns of SCHEMA, and at most a quarantine column beside them.

    Raises:
        RefusedStart: a column is missing, of another type, or unknown.
    """
    found: Mapping[str, DataType] = {field.name: field.dataType for field in rows.schema}
    for field in SCHEMA:
        kind = found[field.name].simpleString() if field.name in found else "not there"
        if kind != field.dataType.simpleString():
            raise RefusedStart(
                f"column {field.name!r} of the query in pipeline/query.py is {kind}; pipeline/rows.py says "
                f"{field.dataType.simpleString()}. Cast it in the query, or change SCHEMA in rows.py."
            )
    for name in found:
        if name not in ROW and name != quarantine.COLUMN:
            raise RefusedStart(
                f"the query in pipeline/query.py has a column {name!r} that SCHEMA in pipeline/rows.py does not have. "
                "Drop it in the query, or add it to SCHEMA."
            )
    if quarantine.COLUMN in found and found[quarantine.COLUMN].simpleString() != quarantine.TYPE:
        raise RefusedStart(
            f"column {quarantine.COLUMN!r} of the query in pipeline/query.py is "
            f"{found[quarantine.COLUMN].simpleString()}; it must be {quarantine.TYPE}, null where a row is accepted."
        )
