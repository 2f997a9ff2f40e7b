"""An order-free digest of rows: equal for equal multisets of rows, however batched.

The JVM adds a hash of each row (`with_hash`: `xxhash64` over all columns and over which of them are null); a task sums
the hashes of its rows modulo 2**64. It works for every Spark schema, nulls and nested columns included.

Promise: two runs of a batch that make the same rows in a partition give the same (rows, digest). A missing, added or
changed row changes the digest, but for a chance of 2**-64. The digest stands with the marker or the decision, so that a
replay that makes other rows is detected (SPARK-28650: the same partition and epoch may hold other rows). It guards
against accidents, not against forgery.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

# The column that holds a row's hash until the writers get the rows.
HASH = "__row_hash"
# Names the hash in what is stored: digests of another kind are not compared. Earlier versions stored plain hex.
_KIND = "xxhash64:"
_WORD = 2**64
# How a nested column is written to be hashed: nulls, microseconds and one time zone, whatever the session has. Stored
# digests depend on it.
_NESTED = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# Spark types whose values xxhash64 takes as they are. It skips nulls inside nested values and refuses maps and
# variants, so all others are hashed by their JSON text.
_FLAT = frozenset(
    {
        "string", "binary", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "date",
        "timestamp", "timestamp_ntz", "void",
    }
)  # fmt: skip


def with_hash(rows: DataFrame, columns: list[str]) -> DataFrame:
    """Adds HASH, a 64-bit hash of the named columns, to each row."""
    hashed: list[Column] = []
    for name in columns:
        column = f.col(f"`{name}`")
        flat = rows.schema[name].dataType.typeName() in _FLAT
        hashed.append(column if flat else f.to_json(f.struct(column), _NESTED))
    # xxhash64 skips nulls, so (null, 1) and (1, null) would hash alike. The isNull flags make them differ.
    nulls = [f.col(f"`{name}`").isNull() for name in columns]
    return rows.withColumn(HASH, f.xxhash64(*hashed, *nulls))


def digest(hashes: pa.Array) -> int:
    """Digest of rows by their hashes (int64, no nulls); combine digests with `add`."""
    if len(hashes) == 0:
        return 0
    with np.errstate(over="ignore"):
        words = hashes.to_numpy(zero_copy_only=False).view(np.uint64)
        return int(np.add.reduce(words))


def add(left: int, right: int) -> int:
    """The digest of two multisets together."""
    return (left + right) % _WORD


def to_text(digest: int) -> str:
    """A digest as a marker or a decision stores it."""
    return f"{_KIND}{digest:016x}"


def from_text(text: object) -> int | None:
    """The digest that `to_text` stored; None for one of another kind, as earlier versions stored."""
    if isinstance(text, str) and text.startswith(_KIND):
        return int(text.removeprefix(_KIND), 16)
    return None


def without_hash(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    """Splits a record batch into its rows and their hashes."""
    hashes = rows.column(HASH)
    return rows.drop_columns([HASH]), pc.cast(hashes, pa.int64())
