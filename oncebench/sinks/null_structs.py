"""Lets pyarrow write null structs whose fields take no null.

Spark sets the fields of a null struct null, also a field that its schema declares as never null. pyarrow refuses such a
field when it writes Parquet, although a reader sees the null struct only.

Promise: the schema does not change, so older files of an output have the same one. A reader gets the same rows.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as t


def without_hidden_nulls(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows whose null structs have empty values in fields that take no null."""
    if not any(map(_may_hide, rows.schema.types)):
        return rows
    columns = [
        _filled(column, field.nullable) if _may_hide(field.type) else column
        for column, field in zip(rows.columns, rows.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _may_hide(kind: pa.DataType) -> bool:
    inner = [kind.field(at) for at in range(kind.num_fields)] if t.is_nested(kind) else []
    return any((t.is_struct(kind) and not each.nullable) or _may_hide(each.type) for each in inner)


def _filled(array: pa.Array, nullable: bool) -> pa.Array:
    """Returns an array without the nulls that its fields do not take.

    Every value that a reader sees stays.
    """
    kind, validity = array.type, array.buffers()[0] if nullable else None
    if t.is_struct(kind):
        fields = list(kind)
        made = [_filled(array.field(at), field.nullable) for at, field in enumerate(fields)]
        return pa.StructArray.from_arrays(made, fields=fields, mask=array.is_null() if nullable else None)
    if t.is_map(kind):
        fields = [kind.key_field, kind.item_field]
        made = [_filled(each, field.nullable) for each, field in zip((array.keys, array.items), fields, strict=True)]
        inner = pa.StructArray.from_arrays(made, fields=fields)
    elif t.is_list(kind):
        inner = _filled(array.values, kind.value_field.nullable)
    else:
        return _of_buffers(array, [validity, *array.buffers()[1:]])
    return _of_buffers(array, [validity, array.buffers()[1]], [inner])


def _of_buffers(array: pa.Array, buffers: list[pa.Buffer | None], children: list[pa.Array] | None = None) -> pa.Array:
    return pa.Array.from_buffers(array.type, len(array), buffers, -1, array.offset, children)
