"""Rows as records: `key`, `value` and optional `headers`, as for Spark's Kafka sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from oncebench.delivery import quarantine
from oncebench.delivery.digest import quoted

KEY, VALUE, HEADERS = "key", "value", "headers"
_BYTES = ("string", "binary")
_HEADERS_TYPE = "array<struct<key:string,value:binary>>"

# The JSON form of a row: with nulls, and with times to the microsecond (Spark's default: milliseconds). Times are in
# UTC, because Spark writes other offsets without their seconds, and many offsets before 1900 have seconds.
_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

# A record's headers as Kafka's client takes them.
Headers = list[tuple[str, bytes | None]] | None


def records_schema_error(schema: StructType) -> str | None:
    """Returns why rows of this schema are not records, and what to do; None if they are records."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields if field.name != quarantine.COLUMN}
    for name in (KEY, VALUE):
        if name not in types:
            return f"there is no column {name!r}. Select {KEY!r} and {VALUE!r}, for example to_json(struct(...))."
        if types[name] not in _BYTES:
            return f"column {name!r} is {types[name]}; cast it to string or binary."
    if types.get(HEADERS, _HEADERS_TYPE) != _HEADERS_TYPE:
        return f"column {HEADERS!r} is {types[HEADERS]}; it must be {_HEADERS_TYPE}."
    more = sorted(set(types) - {KEY, VALUE, HEADERS})
    if more:
        return f"column {more[0]!r} has no place in a record; put it into {VALUE!r}, or drop it."
    return None


def row_as_json(columns: Sequence[str]) -> Column:
    """Returns the columns of a row as one JSON object; it contains every value and every null."""
    return f.to_json(f.struct(*map(quoted, columns)), _JSON)


def encode_records(rows: DataFrame) -> DataFrame:
    """Returns records with key and value as bytes; headers and quarantine column stay unchanged."""
    kept = [name for name in (HEADERS, quarantine.COLUMN) if name in rows.columns]
    return rows.select(f.col(KEY).cast("binary").alias(KEY), f.col(VALUE).cast("binary").alias(VALUE), *kept)


def records_of(rows: pa.RecordBatch) -> Iterator[tuple[bytes | None, bytes | None, Headers]]:
    """Returns (key, value, headers) of each row."""
    keys, values = rows.column(KEY).to_pylist(), rows.column(VALUE).to_pylist()
    if HEADERS not in rows.schema.names:
        return zip(keys, values, [None] * len(keys), strict=True)
    return zip(keys, values, map(_headers, rows.column(HEADERS).to_pylist()), strict=True)


def _headers(found: list[dict[str, Any]] | None) -> Headers:
    return None if found is None else [(each["key"], each["value"]) for each in found]
