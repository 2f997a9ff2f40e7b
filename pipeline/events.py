"""Checks events: accepts a valid event, or returns the reason to reject it.

Promise: `check` never raises, whatever the bytes are, and returns exactly one reason for an event that the pipeline
cannot use. It checks the record alone; `sessions.py` makes the checks that depend on the session's other events
(`after-end`, `repeated-seq`).
"""

from __future__ import annotations

import json
from typing import NamedTuple

import orjson

EVENTS_PER_SESSION = 100
LAST_SEQ = EVENTS_PER_SESSION - 1
# Real events are about 110 bytes and the largest of the published record sizes is 10 KB; 64 KiB leaves room and
# keeps one hostile record from filling a Python worker's Arrow batch.
MAX_VALUE_BYTES = 65_536
MAX_VALUE = 999_999
# Beyond 2**53 a JSON number no longer survives readers that use doubles (RFC 8259, section 6).
MAX_SCHEDULED_AT = 2**53

# Reasons in the order of the checks; the first that applies is counted.
NULL_KEY = "null-key"
NULL_VALUE = "null-value"
TOO_LARGE = "too-large"
NOT_JSON = "not-json"
WRONG_FIELDS = "wrong-fields"
UNKNOWN_TYPE = "unknown-type"
AFTER_END = "after-end"
REPEATED_SEQ = "repeated-seq"
NEVER_ENDED = "never-ended"

TYPES = frozenset({"start_event", "entry_event", "end_event"})


class Event(NamedTuple):
    """One valid event of a session."""

    seq: int
    value: int
    scheduled_at: int


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON (RFC 8259)")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _is_int(x: object, low: int, high: int) -> bool:
    return type(x) is int and low <= x <= high


def check(key: bytes | None, value: bytes | None) -> Event | str:
    """Returns the event in a Kafka record, or the reason to reject the record.

    A reason is one of the constants above.
    """
    if key is None:
        return NULL_KEY
    if value is None:
        return NULL_VALUE
    if len(value) > MAX_VALUE_BYTES:
        return TOO_LARGE
    try:
        fields = orjson.loads(value)
    except ValueError:
        try:  # the standard library takes a little more, such as an unpaired surrogate in an unknown field
            fields = _DECODER.decode(value.decode("utf-8"))
        except (ValueError, RecursionError):
            return NOT_JSON
    try:
        expected_key = key.decode("utf-8")
    except UnicodeDecodeError:
        return WRONG_FIELDS
    try:
        session_key, seq, kind = fields["session_key"], fields["seq"], fields["type"]
        number, scheduled_at = fields["value"], fields["scheduled_at"]
    except (TypeError, KeyError, IndexError):
        return WRONG_FIELDS
    if not (
        type(session_key) is str
        and session_key == expected_key
        and _is_int(seq, 0, LAST_SEQ)
        and _is_int(number, 0, MAX_VALUE)
        and _is_int(scheduled_at, 0, MAX_SCHEDULED_AT)
    ):
        return WRONG_FIELDS
    if not (isinstance(kind, str) and kind in TYPES):
        return UNKNOWN_TYPE
    fits = "start_event" if seq == 0 else "end_event" if seq == LAST_SEQ else "entry_event"
    return Event(seq, number, scheduled_at) if kind == fits else WRONG_FIELDS
