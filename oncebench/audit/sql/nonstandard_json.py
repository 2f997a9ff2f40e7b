"""Values that are not spelled as the suite spells them, read one by one into columns for SQL.

DuckDB's own JSON functions take a trailing comma or NaN for JSON, the first of two fields with one name, and "5" for 5;
so they decide only over values that come out letter for letter when they are written again, and the rest comes here.

Promise: JSON is what the standard library's strict parser takes, whatever the bytes. Only the types are told here; what
is right is decided in SQL. What can go wrong: it is slow, some microseconds a value; a load that is spelled otherwise
than the suite's own takes that long for each event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import pyarrow as pa

_INT64 = range(-(2**63), 2**63)


def read_odd(batches: Iterable[pa.RecordBatch], texts: Sequence[str], numbers: Sequence[str]) -> pa.Table:
    """One row per value of `batches`, which have the columns `pos` and `odd`.

    `json`: it is JSON. `size`: fields it has; `present`: fields it has of those asked for. Then each of these: null if
    it is not there, no text (of `texts`), or no whole number of 64 bits (of `numbers`).
    """
    return pa.concat_tables([_read(batch, texts, numbers) for batch in (_nothing(), *batches)])


def _nothing() -> pa.RecordBatch:
    """Gives an empty table its columns. (Made when it is needed: the first array that Arrow makes imports pandas.)"""
    return pa.record_batch({"pos": pa.array([], pa.int64()), "odd": pa.array([], pa.binary())})


def _read(batch: pa.RecordBatch, texts: Sequence[str], numbers: Sequence[str]) -> pa.Table:
    items = [_parse(value) for value in batch["odd"].to_pylist()]
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
    """What is no JSON; null is."""


_NOT_JSON = _NotJson()


def _parse(value: bytes) -> Any:
    try:
        return json.loads(value.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _NOT_JSON


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _text(item: Any) -> str | None:
    """None also for a text with half a character (a lone surrogate), which is no UTF-8."""
    if not isinstance(item, str):
        return None
    return item if item.encode("utf-8", "replace").decode("utf-8") == item else None


def _number(item: Any) -> int | None:
    return item if type(item) is int and item in _INT64 else None
