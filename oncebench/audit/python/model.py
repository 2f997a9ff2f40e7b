"""The expected output: a plain-Python reference model, fed from the re-read input topic.

Promise: the expected rows depend only on the input records, taken per session key in (partition, offset) order. There
are no batches, no clock, no Spark, and no code shared with the pipeline, so one mistake cannot hide in both. The
validity rules apply in the order of `REASONS`.

What can go wrong: the input read was cut short. Then finished sessions look unfinished; callers check
`Stream.complete`.

For speed, orjson parses values up to `SMALL_BYTES` first. The standard library's parser is the rule: it decides about
every value that orjson refuses, and about every longer value.
"""

from __future__ import annotations

import json
import zlib
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

SEQS = 100  # events of a session: seq 0 starts it, 99 ends it
ROWS = 20  # output rows of a session
EVENTS_PER_ROW = SEQS // ROWS
MAX_VALUE_BYTES = 65_536
MAX_NUMBER = 999_999
MAX_SCHEDULED = 2**53
SMALL_BYTES = 512  # up to this size the two parsers agree: no integer is long enough and no nesting deep enough
STEP = 65_536  # events turned into Python objects at a time: some 20 MB

# fmt: off
REASONS = (
    "null-key", "null-value", "too-large", "not-json", "wrong-fields", "unknown-type",  # by the event alone
    "after-end", "repeated-seq",  # by the state of its session
)
# fmt: on
_CODE = {reason: code for code, reason in enumerate(REASONS)}
_TYPE_AT = ("start_event", *["entry_event"] * (SEQS - 2), "end_event")  # by seq
_CHECKSUM_TEXT = tuple(
    "".join(f"{seq}=%d;" for seq in range(first, first + EVENTS_PER_ROW)).encode()
    for first in range(0, SEQS, EVENTS_PER_ROW)
)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Events:
    """Events with correct fields, by (partition, offset), also those that their session refuses."""

    partition: Ints
    offset: Ints
    key: Ints  # index into `Expected.keys`
    seq: Ints
    scheduled_us: Ints


@dataclass(frozen=True)
class Invalid:
    """Events that must be in quarantine, by (partition, offset); `reason` indexes `REASONS`."""

    partition: Ints
    offset: Ints
    reason: Ints

    def counts(self) -> dict[str, int]:
        """Returns the number of invalid events by reason, without reasons that do not occur."""
        counts = np.bincount(self.reason, minlength=len(REASONS))
        return {reason: int(count) for reason, count in zip(REASONS, counts, strict=True) if count}


@dataclass(frozen=True)
class Expected:
    """The expected rows: arrays [finished sessions, 20], in the order in which sessions finish.

    Attributes:
        last_partition, last_offset: the position of the event that finished the session.
        unfinished: the number of events so far, by session key.
        earlier: only for keys in several partitions, (partition, offset) of the session's last events in the others.
    """

    session_keys: list[str]
    key: Ints  # [sessions], index into `keys`
    total: Ints
    checksum: Ints
    ended_at: Ints  # epoch µs
    last_partition: Ints
    last_offset: Ints
    events: Events
    invalid: Invalid
    keys: list[str]  # every key with at least one event with correct fields, by first appearance
    unfinished: dict[str, int] = field(default_factory=dict)
    earlier: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)


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


class _Open:
    """The state of one unfinished session."""

    __slots__ = ("arrived", "before", "code", "ended_at", "row", "values")

    def __init__(self, code: int) -> None:
        self.code = code
        self.values: list[int | None] = [None] * SEQS
        self.arrived = 0
        self.ended_at: int  # set by its end event
        self.row: int  # of its newest event
        self.before: tuple[tuple[int, int], ...] = ()


def expected_output(table: pa.Table) -> Expected:
    """Replays the input topic (columns partition, offset, key, value; rows in any order)."""
    partition, offset, order = in_position_order(table)
    keys = one_array(table["key"])
    values = one_array(table["value"])

    codes: dict[str, int] = {}  # session key -> number by first appearance
    open_sessions: dict[str, _Open] = {}
    rows, row_keys, seqs, scheduled = (
        array("q"),
        array("q"),
        array("q"),
        array("q"),
    )  # rows: places in `order`
    invalid = array("q"), array("q")  # row in `order`, reason
    finished = array("q"), array("q"), array("q")  # key, row in `order`, ended_at
    total, checksum = array("q"), array("q")
    earlier: dict[int, tuple[tuple[int, int], ...]] = {}

    row = -1
    for first, last in _slices(partition):
        chosen = order[first:last]
        if first and partition[first] != partition[first - 1]:
            for carried in open_sessions.values():
                if partition[carried.row] == partition[first - 1]:
                    carried.before += ((int(partition[carried.row]), int(offset[carried.row])),)
        for key, value in zip(_objects(keys, chosen), _objects(values, chosen), strict=True):
            row += 1
            event = read_event(key, value)
            if isinstance(event, str):
                invalid[0].append(row)
                invalid[1].append(_CODE[event])
                continue
            session_key, seq, number, scheduled_at = event
            session: _Open | None = open_sessions.get(session_key)
            if session is None and session_key not in codes:
                codes[session_key] = len(codes)
                session = open_sessions[session_key] = _Open(codes[session_key])
            rows.append(row)
            row_keys.append(codes[session_key] if session is None else session.code)
            seqs.append(seq)
            scheduled.append(scheduled_at)
            if session is None:
                invalid[0].append(row)
                invalid[1].append(_CODE["after-end"])
                continue
            if session.values[seq] is not None:
                invalid[0].append(row)
                invalid[1].append(_CODE["repeated-seq"])
                continue
            session.values[seq] = number
            session.arrived += 1
            session.row = row
            if seq == SEQS - 1:
                session.ended_at = scheduled_at
            if session.arrived == SEQS:
                del open_sessions[session_key]
                if session.before:
                    earlier[len(finished[0])] = session.before
                finished[0].append(session.code)
                finished[1].append(row)
                finished[2].append(session.ended_at)
                for j, text in enumerate(_CHECKSUM_TEXT):
                    five = tuple(session.values[j * EVENTS_PER_ROW : (j + 1) * EVENTS_PER_ROW])
                    total.append(sum(five))  # type: ignore[arg-type]  # all 100 are there
                    checksum.append(zlib.crc32(text % five))

    all_keys = list(codes)
    at = _ints(finished[1])
    event_rows = _ints(rows)
    invalid_rows = _ints(invalid[0])
    return Expected(
        session_keys=[all_keys[code] for code in finished[0]],
        key=_ints(finished[0]),
        total=_ints(total).reshape(-1, ROWS),
        checksum=_ints(checksum).reshape(-1, ROWS),
        ended_at=np.broadcast_to(_ints(finished[2])[:, None], (len(at), ROWS)),
        last_partition=partition[at],
        last_offset=offset[at],
        events=Events(partition[event_rows], offset[event_rows], _ints(row_keys), _ints(seqs), _ints(scheduled)),
        invalid=Invalid(partition[invalid_rows], offset[invalid_rows], _ints(invalid[1])),
        keys=all_keys,
        unfinished={key: session.arrived for key, session in open_sessions.items()},
        earlier=earlier,
    )


def in_position_order(table: pa.Table) -> tuple[Ints, Ints, Ints]:
    """Returns ascending partitions and offsets, each position once, and their rows in `table`."""
    partition = table["partition"].to_numpy().astype(np.int64)
    offset = table["offset"].to_numpy()
    order = np.lexsort((offset, partition))
    partition, offset = partition[order], offset[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (partition[1:] != partition[:-1]) | (offset[1:] != offset[:-1])
    return partition[new], offset[new], order[new]


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Combines a binary column; large_binary, because binary offsets end at 2 GiB."""
    return pc.cast(column, pa.large_binary()).combine_chunks()


def _slices(partition: Ints) -> list[tuple[int, int]]:
    """Returns (first, last) of pieces of at most STEP rows, each in one partition."""
    ends = [0, *(np.flatnonzero(np.diff(partition)) + 1).tolist(), len(partition)]
    return [(first, min(first + STEP, end)) for start, end in pairwise(ends) for first in range(start, end, STEP)]


def _objects(column: pa.Array, rows: Ints) -> list[bytes | None]:
    objects: list[bytes | None] = column.take(pa.array(rows)).to_numpy(zero_copy_only=False).tolist()
    return objects


def _ints(values: array[int]) -> Ints:
    return np.array(values, dtype=np.int64)
