"""Parses JSON in another spelling than the suite's, value by value, into columns for SQL.

DuckDB's own JSON functions accept a trailing comma and NaN, the first of two fields with one name, and "5" for 5. So
they decide only about values that are the same text when they are written again. This module parses the others.

Promise: JSON is what the standard library's strict parser accepts, for any bytes. This module checks types only; SQL
checks the values.

What can go wrong: it takes some microseconds per value. A load in another spelling takes that long for each event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import pyarrow as pa

_INT64 = range(-(2**63), 2**63)


def parse_nonstandard(batches: Iterable[pa.RecordBatch], texts: Sequence[str], numbers: Sequence[str]) -> pa.Table:
    """Returns one row per value of `batches` (columns `pos` and `nonstandard`).

    The columns: `json` (the value is JSON), `size` (how many fields it has), `present` (how many of the given fields it
    has), and one per field. A field is null if it is missing, or is no text (`texts`), or no integer of 64 bits
    (`numbers`).
    """
    return pa.concat_tables([_read(batch, texts, numbers) for batch in (_no_values(), *batches)])


def _no_values() -> pa.RecordBatch:
    """Returns a batch without rows, from which an empty table gets its columns.

    The batch is not a constant, because Arrow's first array imports pandas.
    """
    return pa.record_batch({"pos": pa.array([], pa.int64()), "nonstandard": pa.array([], pa.binary())})


def _read(batch: pa.RecordBatch, texts: Sequence[str], numbers: Sequence[str]) -> pa.Table:
    items = [_parse(value) for value in batch["nonstandard"].to_pylist()]
    fields = [item if isinstance(item, dict) else {} for item in items]
    names = {*texts, *numbers}
    return pa.table(
        {
            "pos": batch["pos"],
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
