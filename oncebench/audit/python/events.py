"""Input events as columns, each valid or with the reason why it is not.

Promise: whether an event is valid depends on its key and value alone. The rules apply in the order of `REASONS`. Values
are read in pieces, so memory holds the columns, the keys of valid events, and never the values of a whole topic. A
piece whose events are all regular is read at once. Any other piece is read event by event, by `read_event`, which is
the rule.

For speed, orjson parses values up to `SMALL_BYTES` first. The standard library's parser is the rule: it decides about
every value that orjson refuses, and about every longer value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from oncebench.audit.python.records import PIECE_ROWS, Numbers, pieces

SEQS = 100  # events of a session: seq 0 starts it, 99 ends it
MAX_VALUE_BYTES = 65_536
MAX_NUMBER = 999_999
MAX_SCHEDULED = 2**53
SMALL_BYTES = 512  # up to this size the two parsers agree: no integer is long enough and no nesting deep enough

# fmt: off
REASONS = (
    "null-key", "null-value", "too-large", "not-json", "wrong-fields", "unknown-type",  # by the event alone
    "after-end", "repeated-seq",  # by the state of its session
)
# fmt: on
CODE = {reason: code for code, reason in enumerate(REASONS)}
VALID = -1  # in place of a reason
_TYPE_AT = ("start_event", *["entry_event"] * (SEQS - 2), "end_event")  # by seq
_FIELDS = ("session_key", "seq", "type", "value", "scheduled_at")
_FIELDS_OF = itemgetter(*_FIELDS)


@dataclass(frozen=True)
class Columns:
    """Events as columns of equal length, in the order of the records.

    Only a valid event has fields.

    Attributes:
        key: indexes `keys`; -1 for an event that is not valid.
        keys: the different keys of valid events.
        reason: indexes `REASONS`, or VALID.
    """

    key: npt.NDArray[np.int32]
    seq: npt.NDArray[np.int8]
    number: npt.NDArray[np.int32]
    scheduled_us: npt.NDArray[np.int64]
    reason: npt.NDArray[np.int8]
    keys: Sequence[str]


def read_events(records: pa.Table, release: Callable[[], None]) -> Columns:
    """Reads records, from the binary columns `key` and `value`; `release` as in `pieces`."""
    size = records.num_rows
    numbers = Numbers()
    key = np.empty(size, np.int32)
    seq, reason = np.zeros(size, np.int8), np.full(size, VALID, np.int8)
    number, scheduled_us = np.zeros(size, np.int32), np.zeros(size, np.int64)
    for piece, batch in pieces(records.select(["key", "value"]), PIECE_ROWS, release):
        values: list[bytes | None] = batch["value"].to_numpy(zero_copy_only=False).tolist()
        keys = batch["key"].dictionary_encode()
        fields = _all_regular(keys, values)
        if fields is None:
            reasons, fields = _one_by_one(batch["key"].to_pylist(), values)
            reason[piece] = reasons
            keys = pc.if_else(pa.array(reason[piece] == VALID), batch["key"], None)
        key[piece] = numbers.of(keys)
        seq[piece], number[piece], scheduled_us[piece] = fields
    return Columns(key, seq, number, scheduled_us, reason, [name.decode("utf-8") for name in numbers.values()])


def _one_by_one(keys: list[bytes | None], values: list[bytes | None]) -> tuple[list[int], npt.NDArray[np.int64]]:
    """Returns the reasons, and the array [3, n] of seq, value and scheduled_at.

    The array has zeros for an event that is not valid.
    """
    events = [read_event(key, value) for key, value in zip(keys, values, strict=True)]
    reasons = [CODE[event] if isinstance(event, str) else VALID for event in events]
    fields = [(0, 0, 0) if isinstance(event, str) else event[1:] for event in events]
    return reasons, np.array(fields, dtype=np.int64).T


def _all_regular(keys: pa.DictionaryArray, values: Sequence[bytes | None]) -> npt.NDArray[np.int64] | None:
    """Returns seq, value and scheduled_at [3, n]; None if any event is not valid, or not short."""
    try:
        if max(map(len, values)) > SMALL_BYTES:  # type: ignore[arg-type]  # None raises, as any other bad value
            return None
        texts = [name.decode("utf-8") for name in keys.dictionary.to_pylist()]
        objects = list(map(orjson.loads, values))  # type: ignore[arg-type]  # none is None here
        names, seqs, types, *numbers = zip(*map(_FIELDS_OF, objects), strict=True)
        right = (
            keys.null_count == 0
            and set(map(type, objects)) == {dict}
            and set(map(type, names)) == {str}
            and all(set(map(type, column)) == {int} for column in (seqs, *numbers))
            and types == tuple(map(_TYPE_AT.__getitem__, seqs))
            and names == tuple(map(texts.__getitem__, keys.indices.to_pylist()))
        )
        fields = np.array((seqs, *numbers), dtype=np.int64)
    except (ValueError, TypeError, LookupError, OverflowError):
        return None
    highest = np.array([[SEQS - 1], [MAX_NUMBER], [MAX_SCHEDULED]])
    return fields if right and bool(((fields >= 0) & (fields <= highest)).all()) else None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse_json(value: bytes) -> Any:
    """Parses strict UTF-8 JSON. Raises ValueError, also for NaN, Infinity, and too deep nesting."""
    if len(value) <= SMALL_BYTES:
        try:
            return orjson.loads(value)
        except ValueError:
            pass  # orjson also refuses some valid JSON, such as lone surrogates: the standard parser decides
    try:
        return json.loads(value.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def read_event(key: bytes | None, value: bytes | None) -> tuple[str, int, int, int] | str:
    """Returns (session_key, seq, value, scheduled_at µs) of a record, or why it is invalid."""
    if key is None:
        return "null-key"
    if value is None:
        return "null-value"
    if len(value) > MAX_VALUE_BYTES:
        return "too-large"
    try:
        event = parse_json(value)
    except ValueError:
        return "not-json"
    try:
        session_key, seq, kind = event["session_key"], event["seq"], event["type"]
        number, scheduled_at = event["value"], event["scheduled_at"]
        if session_key != key.decode("utf-8"):
            return "wrong-fields"
    except (KeyError, TypeError, IndexError, UnicodeDecodeError):
        return "wrong-fields"  # not an object, a missing field, or a key that is not text
    if not (
        type(event) is dict
        and type(session_key) is str
        and type(seq) is int  # isinstance would accept a bool
        and type(number) is int
        and type(scheduled_at) is int
        and 0 <= seq < SEQS
        and 0 <= number <= MAX_NUMBER
        and 0 <= scheduled_at <= MAX_SCHEDULED
    ):
        return "wrong-fields"
    if kind != _TYPE_AT[seq]:
        return "wrong-fields" if kind in _TYPE_AT else "unknown-type"
    return session_key, seq, number, scheduled_at
