"""Compares the columns of the rows with those of a table, and converts both to Arrow.

Promise: a table is accepted only if each row can be stored without a change of its values.

What can go wrong: a type has no form in Iceberg (`RefusedStart` names the column).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, schema_to_pyarrow
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DoubleType, FloatType
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from oncebench.delivery import quarantine
from oncebench.delivery.errors import RefusedStart

# Private: pyiceberg has no public function that converts an Arrow schema without field ids. `create_table` uses it.
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids  # isort: skip

# What the sink's tests write and read back. A writer must compute each transform exactly as the table's readers do.
PARTITIONS = (IdentityTransform, BucketTransform, DayTransform)
# Version 1 has no sequence numbers, which show that a table was rolled back; pyiceberg 0.12 does not write version 3.
FORMAT_VERSION = 2
# Spark's Arrow form of these is a struct of their parts, which readers would get instead of the value.
_AS_STRUCTS = ("variant", "geography", "geometry")
# The table's property for the format of data files.
FORM = "write.format.default"


def iceberg_schema(schema: StructType) -> Schema:
    """Returns the columns of the rows as a schema of Iceberg, with new field ids.

    Raises:
        RefusedStart: Iceberg has no type for a column, or two columns have the same path.
    """
    fields = [_arrow_field(field) for field in schema.fields if field.name != quarantine.COLUMN]
    try:
        return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(pa.schema(fields), format_version=FORMAT_VERSION))
    except ValueError as error:  # for example `a.b`, and the field b of a struct a
        raise RefusedStart(
            f"an Iceberg table cannot have these columns ({error}). Rename one of them in the query."
        ) from error


def _arrow_field(field: StructField) -> pa.Field:
    try:
        if any(map(_has_no_form, _with_inner(field.dataType))):
            raise TypeError(field.dataType.simpleString())
        kind = to_arrow_type(field.dataType, timezone="UTC")
        made = pa.field(field.name, kind, field.nullable)
        _pyarrow_to_schema_without_ids(pa.schema([made]), format_version=FORMAT_VERSION)
    except (PySparkException, UnsupportedPyArrowTypeException, TypeError, ValueError) as error:
        raise RefusedStart(
            f"column {field.name!r} is {field.dataType.simpleString()}, which Iceberg's format version "
            f"{FORMAT_VERSION} has no type for. Cast it to string in the query, or drop it."
        ) from error
    return made


def _with_inner(kind: DataType) -> Iterator[DataType]:
    """Yields a type and all types within it."""
    yield kind
    inner = [getattr(kind, name) for name in ("elementType", "keyType", "valueType") if hasattr(kind, name)]
    if isinstance(kind, StructType):
        inner = [field.dataType for field in kind.fields]
    for each in inner:
        yield from _with_inner(each)


def _has_no_form(kind: DataType) -> bool:
    """Returns whether Iceberg lacks a type that Spark converts to Arrow.

    Some of these types become structs, and Parquet has no empty struct.
    """
    return kind.typeName() in _AS_STRUCTS or (isinstance(kind, StructType) and not kind.fields)


def arrow_schema(schema: Schema) -> pa.Schema:
    """Returns a schema of Iceberg in Arrow's types, without field ids."""
    return schema_to_pyarrow(schema, include_field_ids=False)


def difference(table: TableMetadata, wanted: Schema) -> str | None:
    """Describes how a table's columns differ from the wanted ones; None if the rows fit."""
    found = {field.name: field for field in arrow_schema(table.schema())}
    rows = arrow_schema(wanted)
    for field in rows:
        there = found.get(field.name)
        if there is None:
            return f"column {field.name!r} is missing and must be {_text(field.type)}"
        if there.type != field.type:
            return f"column {field.name!r} is {_text(there.type)} and must be {_text(field.type)}"
        if field.nullable and not there.nullable:
            return f"column {field.name!r} is required, and the query's column may be null"
    for name in found:
        if name not in rows.names:
            return f"column {name!r} is not a column of the rows"
    return None


def _text(kind: pa.DataType) -> str:
    return repr(str(kind).replace("large_", ""))


def unsuitable(table: TableMetadata) -> str | None:
    """Describes why this sink cannot write to a table; None if it can."""
    if table.format_version != FORMAT_VERSION:
        return f"its format version is {table.format_version}, and must be {FORMAT_VERSION}"
    form = table.properties.get(FORM, "parquet")
    if form.lower() != "parquet":
        return f"its property {FORM} is {form!r}, and must be 'parquet'"
    for field in table.spec().fields:
        if not isinstance(field.transform, PARTITIONS):
            return (
                f"it is partitioned by {field.transform}({field.name}), and this sink supports identity, bucket and "
                "day only"
            )
        # pyiceberg finds a partition's rows with `==`: 0.0 and -0.0 are two partitions with the rows of both, and NaN
        # equals nothing.
        if isinstance(table.schema().find_type(field.source_id), (FloatType, DoubleType)):
            return f"it is partitioned by the floating-point column {field.name!r}, whose rows could be duplicated"
    return None
