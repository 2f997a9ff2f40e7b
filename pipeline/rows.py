"""What a row consists of. With `query.py`, which makes them, the file to change for rows of your own.

Promise: batches, digests, sinks, their tables and files take the columns from here and from nowhere else. A column is a
string, an int or a long, and never null, so that two rows are the same or not, in every format alike: a replay is
compared with its first run. Money is a long of cents, a moment a long of microseconds. What can go wrong: columns that
cannot be these are refused when this file is imported, a query that gives others before it is started, and a null ends
the batch that has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from oncebench.delivery.errors import NullInRow, RefusedStart

STRING, INT, LONG = "string", "int", "long"  # Spark's names
# In the order of files and tables. The first is a string: Kafka's key.
TYPES: Mapping[str, str] = {
    "session_key": STRING, "j": INT, "events": INT, "total": LONG, "checksum": LONG, "ended_at": LONG,
}  # fmt: skip
# What tells a row from all others, for sinks that write a row over itself.
ID = ("session_key", "j")

ROW = tuple(TYPES)
KEY = ROW[0]
STRINGS = tuple(name for name, kind in TYPES.items() if kind == STRING)
# Beside them, for a record that gives no row: why, and where it stands. A query that sets nothing aside needs none.
ASIDE: Mapping[str, str] = {
    "reason": STRING, "source_partition": INT, "source_offset": LONG, "key": "binary", "value": "binary",
}  # fmt: skip
# Columns that tables have beside a row's.
_TABLES_OWN = ("id", "tx")


def wrong_with(types: Mapping[str, str], identity: Sequence[str]) -> str | None:
    """What keeps these from being the columns of a row and its identity; None if nothing does."""
    taken = {*ASIDE, *_TABLES_OWN}
    for name, kind in types.items():
        if kind not in (STRING, INT, LONG):
            return f"column {name!r} is a {kind}, and must be string, int or long"
        if not (name.isidentifier() and name.isascii()):
            return f"column {name!r} must be a word of letters, digits and _"
        if name.lower() in taken or sum(other.lower() == name.lower() for other in types) > 1:
            return f"the name of column {name!r} is taken: by another, or one of {', '.join(sorted(taken))}"
    if not types or next(iter(types.values())) != STRING:
        return "the first column must be a string: it is Kafka's key"
    if not identity or not set(identity) < set(types):
        return f"ID {tuple(identity)} must name some of the columns and not all"
    return None


if _wrong := wrong_with(TYPES, ID):
    raise RefusedStart(f"pipeline/rows.py: {_wrong}")


def check_nulls(rows: pa.RecordBatch, where: str) -> None:
    """Raises NullInRow if a column holds one: a null is no value to compare, and to Kafka it would delete a key."""
    for name in ROW:
        if rows.column(name).null_count:
            raise NullInRow(
                f"{where}: column {name!r} of a row is null. Nothing of this task was committed. Let the query in "
                "pipeline/query.py leave such records out, or set them aside with a reason."
            )


def schema(columns: Mapping[str, str]) -> str:
    """Columns as Spark spells them."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def json_texts(rows: pa.RecordBatch, end: str = "") -> pa.Array:
    """Each row as a compact JSON object with `end` behind it, made column by column: no Python object per row."""
    pieces: list[Any] = []
    for name, kind in TYPES.items():
        pieces += [f'{"," if pieces else "{"}"{name}":', _texts(rows.column(name), kind)]
    return pc.binary_join_element_wise(*pieces, "}" + end, "")


def _texts(column: pa.Array, kind: str) -> pa.Array:
    if kind != STRING:
        return column.cast(pa.string())
    distinct = column.dictionary_encode()  # a session's rows have one key
    quoted = pa.array([orjson.dumps(text).decode() for text in distinct.dictionary.to_pylist()], pa.string())
    return quoted.take(distinct.indices)
