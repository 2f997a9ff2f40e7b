"""An order-free digest of rows: equal multisets of rows have equal digests, in any batches.

The JVM adds a hash of each row (`with_hash`: `xxhash64` over all columns and their isNull flags). A task sums the
hashes of its rows modulo 2**64. The digest works for every Spark schema, with nulls and nested columns.

Promise: two runs of a batch that make the same rows in a partition give the same (rows, digest). A missing, added or
changed row changes the digest, except with a probability of 2**-64. The digest is stored with the marker or the
decision, so that a replay with different rows is detected (SPARK-28650: the same partition and epoch may hold different
rows). The digest protects against accidents, not against forgery.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

# The column that holds a row's hash until the writers get the rows.
HASH = "__row_hash"
# The prefix of a stored digest names its hash: digests of another kind are not compared. Older stored digests are plain
# hexadecimal.
_KIND = "xxhash64:"
_WORD = 2**64
# The text form of a nested column before it is hashed: with nulls and microseconds, in UTC under every session time
# zone. Stored digests depend on this form.
_NESTED = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# Spark types whose values xxhash64 hashes completely. The function skips nulls inside nested values and refuses maps
# and variants, so values of all other types are hashed by their JSON text.
_FLAT = frozenset(
    {
        "string", "binary", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "date",
        "timestamp", "timestamp_ntz", "void",
    }
)  # fmt: skip


def quoted(name: str) -> str:
    """A column's name as Spark's functions take it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def with_hash(rows: DataFrame, columns: list[str]) -> DataFrame:
    """Adds HASH, a 64-bit hash of the named columns, to each row."""
    hashed: list[Column] = []
    for name in columns:
        column = f.col(quoted(name))
        flat = rows.schema[name].dataType.typeName() in _FLAT
        hashed.append(column if flat else f.to_json(f.struct(column), _NESTED))
    # xxhash64 skips nulls, so (null, 1) and (1, null) would hash alike. The isNull flags make them differ.
    nulls = [f.col(quoted(name)).isNull() for name in columns]
    return rows.withColumn(HASH, f.xxhash64(*hashed, *nulls))


def digest(hashes: pa.Array) -> int:
    """Returns the digest of rows from their hashes (int64, no nulls); `add` combines digests."""
    if len(hashes) == 0:
        return 0
    with np.errstate(over="ignore"):
        words = hashes.to_numpy(zero_copy_only=False).view(np.uint64)
        return int(np.add.reduce(words))


def add(left: int, right: int) -> int:
    """Returns the digest of the union of two multisets."""
    return (left + right) % _WORD


def to_text(digest: int) -> str:
    """Returns a digest in the form that markers and decisions store."""
    return f"{_KIND}{digest:016x}"


def from_text(text: object) -> int | None:
    """Returns the digest in a text of `to_text`; None for a text of another kind.

    Older markers and decisions contain digests of another kind.
    """
    if isinstance(text, str) and text.startswith(_KIND):
        return int(text.removeprefix(_KIND), 16)
    return None


def without_hash(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    """Splits a record batch into its rows and their hashes."""
    hashes = rows.column(HASH)
    return rows.drop_columns([HASH]), pc.cast(hashes, pa.int64())
