"""The columns that rows may have, and how a column's name is quoted for Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from oncebench.delivery import quarantine
from oncebench.delivery.errors import RefusedStart

# The column that holds a row's hash until the writers get the rows.
HASH = "__row_hash"


def data_columns(schema: StructType) -> list[str]:
    """Returns the columns of a row, without those that the delivery code adds or removes."""
    return [name for name in schema.names if name not in (quarantine.COLUMN, HASH)]


def check_columns(schema: StructType) -> None:
    """Checks the columns of a query's rows.

    Raises:
        RefusedStart: there is no column, two have the same name, a name is reserved, or the quarantine column has
            another type.
    """
    if not data_columns(schema):
        raise RefusedStart("the query has no columns, so its rows hold nothing to write. Select at least one column.")
    seen: dict[str, str] = {}
    for name in schema.names:
        if name.lower() == HASH:
            raise RefusedStart(
                f"column {name!r} of the query has the name that each row's hash takes on its way to the sink, in "
                "upper or lower case. Its values would be lost. Give the column another name."
            )
        if name.lower() in seen:
            raise RefusedStart(
                f"columns {seen[name.lower()]!r} and {name!r} of the query have the same name but for upper and lower "
                "case, which Spark and most sinks do not distinguish. Rename one of them, or drop it."
            )
        seen[name.lower()] = name
    kind = schema[quarantine.COLUMN].dataType.simpleString() if quarantine.COLUMN in seen.values() else quarantine.TYPE
    if kind != quarantine.TYPE:
        raise RefusedStart(
            f"column {quarantine.COLUMN!r} of the query is {kind}; it must be {quarantine.TYPE}, null where a row is "
            "accepted. Cast the column, or give it another name if it holds no rejected records."
        )


def quoted(name: str) -> str:
    """A column's name as Spark's functions take it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def map_in_arrow(
    rows: DataFrame, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """`DataFrame.mapInArrow` for columns of any name; Spark's own fails at a dot or a backtick."""
    names = rows.columns
    if not any(mark in name for name in names for mark in ".`"):
        return rows.mapInArrow(task, schema)
    numbered = rows.toDF(*map(str, range(len(names))))
    return numbered.mapInArrow(lambda batches: task(batch.rename_columns(names) for batch in batches), schema)
