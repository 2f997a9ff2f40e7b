"""Parses JSON in another spelling than the suite's, value by value, into columns for SQL.

DuckDB's own JSON functions accept a trailing comma and NaN, the first of two fields with one name, and "5" for 5. So
they decide only about values that are the same text when they are written again. This module parses the others.

Promise: JSON is what the standard library's strict parser accepts, for any bytes. This module checks types only; SQL
checks the values. Values are read from the run's file in portions of `PORTION_BYTES`, so memory does not grow with
their length.

What can go wrong: it takes some microseconds per value. A load in another spelling takes that long for each event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PORTION_BYTES = 8_000_000  # of values parsed at a time, or one value
PORTION_ROWS = 16_384
_INT64 = range(-(2**63), 2**63)


def portions(file: pa.Table, rows: pa.ChunkedArray) -> Iterator[pa.RecordBatch]:
    """Yields `pos`, `record_key` and `raw` (the value) of these rows of a stream.

    Args:
        rows: the numbers of the rows, ascending.
    """
    numbers, before = rows.to_numpy(), 0
    records = file.select(["pos", "key", "value"]).rename_columns(["pos", "record_key", "raw"])
    for batch in records.to_batches(max_chunksize=PORTION_ROWS):
        first, last = np.searchsorted(numbers, [before, before + batch.num_rows])
        inside = numbers[first:last] - before
        before += batch.num_rows
        if not len(inside):
            continue
        lengths = pc.add(*(pc.fill_null(pc.binary_length(batch[name]), 0) for name in ("record_key", "raw")))
        portion = np.cumsum(lengths.to_numpy()[inside], dtype=np.int64) // PORTION_BYTES
        for number in np.unique(portion):
            yield batch.take(pa.array(inside[portion == number]))


def parse_nonstandard(batch: pa.RecordBatch, texts: Sequence[str], numbers: Sequence[str]) -> pa.Table:
    """Returns the columns of `batch`, and what its values (`raw`) have.

    The added columns: `json` (the value is JSON), `size` (how many fields it has), `present` (how many of the given
    fields it has), and one per field. A field is null if it is missing, or is no text (`texts`), or no integer of 64
    bits (`numbers`).
    """
    items = [_parse(value) for value in batch["raw"].to_pylist()]
    fields = [item if isinstance(item, dict) else {} for item in items]
    names = {*texts, *numbers}
    return pa.table(
        {
            **{name: batch[name] for name in batch.schema.names},
            "json": pa.array([item is not _NOT_JSON for item in items], pa.bool_()),
            "size": pa.array([len(each) for each in fields], pa.int64()),
            "present": pa.array([len(names & each.keys()) for each in fields], pa.int64()),
            **{name: pa.array([_text(each.get(name)) for each in fields], pa.string()) for name in texts},
            **{name: pa.array([_number(each.get(name)) for each in fields], pa.int64()) for name in numbers},
        }
    )


class _NotJson:
    """Marks a value that is not JSON; null is JSON."""


_NOT_JSON = _NotJson()


def _parse(value: bytes) -> Any:
    try:
        return json.loads(value.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _NOT_JSON


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _text(item: Any) -> str | None:
    """Returns None also for text with a lone surrogate, which UTF-8 cannot encode."""
    if not isinstance(item, str):
        return None
    return item if item.encode("utf-8", "replace").decode("utf-8") == item else None


def _number(item: Any) -> int | None:
    return item if type(item) is int and item in _INT64 else None
