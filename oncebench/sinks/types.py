"""Refuses columns of Spark's types that a format cannot hold.

Types within arrays, maps and structs count, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from oncebench.delivery import quarantine
from oncebench.delivery.errors import RefusedStart

INTERVALS = ("daytimeinterval", "yearmonthinterval", "interval")
PLACES = ("geometry", "geography")
# A struct without fields. Its `typeName` is that of every struct.
EMPTY = "struct<>"


def refuse_types(schema: StructType, types: Collection[str], what: str) -> None:
    """Refuses columns that are or contain one of these types.

    Args:
        schema: the columns of the rows.
        types: names as `DataType.typeName` returns them, or EMPTY.
        what: the table or file that cannot hold them, for the message.

    Raises:
        RefusedStart: the message names the column and the type.
    """
    for field in schema.fields:
        for kind in within(field.dataType) if field.name != quarantine.COLUMN else ():
            if kind.typeName() in types or kind.simpleString() in types:
                raise RefusedStart(
                    f"column {field.name!r} is {field.dataType.simpleString()}, and {what} cannot hold "
                    f"{kind.simpleString()} as it is. Cast it to string in the query (a variant or struct: with "
                    "to_json), or drop it."
                )


def within(kind: DataType) -> Iterator[DataType]:
    """Yields a type and all types within it."""
    yield kind
    inner: list[DataType] = []
    if isinstance(kind, ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    elif isinstance(kind, StructType):
        inner = [field.dataType for field in kind]
    for each in inner:
        yield from within(each)
