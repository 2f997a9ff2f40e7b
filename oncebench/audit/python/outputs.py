"""Visible output records as columns: ids, payloads, and whether each is well-formed.

Promise: exact for any bytes from a sink. A batch is read fast if every value is an object of the six fields with their
types. Any other value sends its batch through a check value by value.

What can go wrong: nothing raises. A value that cannot be read has no id (`id` is -1) and is not `parsed`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from oncebench.audit.python.events import parse_json
from oncebench.audit.python.model import ROWS
from oncebench.audit.python.records import PIECE_ROWS, Bools, Ints, Numbers, by_appearance, pieces

FIELDS = ("session_key", "j", "events", "total", "checksum", "ended_at")
NUMBERS = len(FIELDS) - 1
RECORD = "record"
DIGITS = 15  # hexadecimal
_FIELDS_OF = itemgetter(*FIELDS)
_INT64 = range(-(2**63), 2**63)  # what a column of Arrow or numpy can hold


@dataclass(frozen=True)
class Outputs:
    """Columns of equal length n, in the order of the given records.

    Attributes:
        id: a number per pair (session_key, j), -1 if the value names no row. It is `session * 20 + j` for j in 0..19;
            the numbers of other pairs follow.
        session: indexes `session_keys`.
        payload: [n, 4] events, total, checksum, ended_at; zero unless `parsed`.
        keyed: the record's key is the row's session_key.
    """

    id: Ints
    session: Ints
    j: Ints
    payload: Ints
    parsed: Bools
    keyed: Bools
    session_keys: list[str]

    def head(self, rows: int) -> Outputs:
        """Returns the first `rows` records."""
        return Outputs(
            self.id[:rows],
            self.session[:rows],
            self.j[:rows],
            self.payload[:rows],
            self.parsed[:rows],
            self.keyed[:rows],
            self.session_keys,
        )


def digest_of(record: bytes) -> int:
    """Returns the digest that the row of a user's record has: the first 60 bits of its SHA-256."""
    return int(hashlib.sha256(record).hexdigest()[:DIGITS], 16)


def read_outputs(records: pa.Table, rows: Ints, release: Callable[[], None], *, with_record: bool = False) -> Outputs:
    """Reads these rows of `records`, from the binary columns `key` and `value`.

    The argument `release` is as in `pieces`. The values are read in the order of the records. The result has the order
    of `rows`, in which no row is twice.

    Args:
        with_record: whether a value also has the field `record`. It is well-formed if `total` is the number of the
            record's bytes, and `checksum` its digest.
    """
    wanted = np.zeros(records.num_rows, dtype=bool)
    wanted[rows] = True
    size = len(rows)
    numbers = np.zeros((size, NUMBERS), dtype=np.int64)
    parsed = np.zeros(size, dtype=bool)
    identified = np.zeros(size, dtype=bool)
    keyed = np.zeros(size, dtype=bool)
    code = np.empty(size, dtype=np.int64)
    names = Numbers()
    first = 0
    for where, found in pieces(records.select(["key", "value"]), PIECE_ROWS, release):
        batch = found if wanted[where].all() else found.filter(pa.array(wanted[where]))
        if not batch.num_rows:
            continue
        piece = slice(first, first + batch.num_rows)
        first = piece.stop
        values: list[bytes | None] = batch["value"].to_numpy(zero_copy_only=False).tolist()
        regular = None if with_record else _all_regular(values)
        if regular is None:
            read = [_read_one(value, with_record=True) if with_record else _read_one(value) for value in values]
            stated = pa.array([row.session_key for row in read], pa.string())
            numbers[piece] = [row.numbers for row in read]
            parsed[piece] = [row.parsed for row in read]
            identified[piece] = [row.session_key is not None for row in read]
        else:
            stated = pa.array(regular[0], pa.string())
            numbers[piece] = regular[1]
            parsed[piece] = identified[piece] = True
        code[piece] = names.of(stated)
        keyed[piece] = pc.fill_null(pc.equal(batch["key"], stated.cast(batch["key"].type)), False)
    if size < len(wanted):
        rows = (np.cumsum(wanted) - 1)[rows]
    session_keys, code = names.values(), code[rows]
    appearing = by_appearance(code, len(session_keys))
    number = np.full(len(session_keys) + 1, -1, dtype=np.int64)
    number[appearing] = np.arange(len(appearing))
    session, numbers = number[code], numbers[rows]
    return Outputs(
        id=_ids(session, numbers[:, 0], identified[rows]),
        session=session,
        j=numbers[:, 0],
        payload=numbers[:, 1:],
        parsed=parsed[rows],
        keyed=keyed[rows],
        session_keys=[session_keys[at] for at in appearing.tolist()],
    )


def _all_regular(values: Sequence[bytes | None]) -> tuple[Sequence[str], Ints] | None:
    """Returns session keys and numbers [n, 5]; None if any value is not well-formed."""
    try:
        objects = list(map(orjson.loads, values))  # type: ignore[arg-type]  # None raises, as any other bad value
        names, *columns = zip(*map(_FIELDS_OF, objects), strict=True)
        right = (
            set(map(type, objects)) == {dict}
            and set(map(len, objects)) == {len(FIELDS)}
            and set(map(type, names)) == {str}
            and all(set(map(type, column)) == {int} for column in columns)
        )
        return (names, np.array(columns, dtype=np.int64).T) if right else None
    except (ValueError, TypeError, LookupError, OverflowError):
        return None


@dataclass(frozen=True)
class _Row:
    """One record; without a session_key its value names no row."""

    session_key: str | None = None
    numbers: tuple[int, ...] = (0,) * NUMBERS
    parsed: bool = False


def _read_one(value: bytes | None, with_record: bool = False) -> _Row:
    try:
        row: Any = None if value is None else parse_json(value)
    except ValueError:
        return _Row()
    if type(row) is not dict or not _is_text(row.get("session_key")) or not _is_int64(row.get("j")):
        return _Row()
    numbers: tuple[Any, ...] = tuple(row.get(name) for name in FIELDS[1:])
    whole = row.keys() == {*FIELDS, RECORD} and _has_record(row) if with_record else row.keys() == set(FIELDS)
    if whole and all(map(_is_int64, numbers)):
        return _Row(row["session_key"], numbers, parsed=True)
    return _Row(row["session_key"], (row["j"], 0, 0, 0, 0))


def _has_record(row: dict[str, Any]) -> bool:
    if not _is_text(row[RECORD]):
        return False
    record = row[RECORD].encode()
    return (row["total"], row["checksum"]) == (len(record), digest_of(record))


def _is_text(item: object) -> bool:
    """Whether this is text that UTF-8 can encode; a lone surrogate cannot be encoded."""
    return type(item) is str and item.encode("utf-8", "replace").decode("utf-8") == item


def _is_int64(number: object) -> bool:
    return type(number) is int and number in _INT64


def _ids(session: Ints, j: Ints, identified: Bools) -> Ints:
    inside = identified & (j >= 0) & (j < ROWS)
    ids = np.where(inside, session * ROWS + j, -1)
    outside = identified & ~inside
    if outside.any():
        pairs = np.stack((session[outside], j[outside]), axis=1)
        _, number = np.unique(pairs, axis=0, return_inverse=True)
        ids[outside] = (session.max() + 1) * ROWS + number.reshape(-1)
    return ids
