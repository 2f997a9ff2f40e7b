"""The columns that rows may have, and how a column's name is quoted for Spark."""

from __future__ import annotations

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
        RefusedStart: a name is reserved.
    """
    for name in schema.names:
        if name.lower() == HASH:
            raise RefusedStart(
                f"column {name!r} of the query has the name that each row's hash takes on its way to the sink, in "
                "upper or lower case. Its values would be lost. Give the column another name."
            )
