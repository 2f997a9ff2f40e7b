"""Packs events before the shuffle: one row for all events of a session in a record batch.

Spark passes each row to Python on its own: with rows of one event, the stateful operator spends most of its time on the
way in. `pack` runs in the tasks that read Kafka. It checks each event there, and joins the accepted events of a session
to one row. Rejected records stay rows of their own.

Promise: the operator finds every record again, with its position and its bytes, so packing changes no result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, NamedTuple

import pyarrow as pa

from pipeline.events import Event, check

PACKED_SCHEMA = "key binary, partition int, newest_ms long, reason string, events binary, texts binary"
_ARROW = pa.schema(
    {
        "key": pa.binary(),
        "partition": pa.int32(),
        "newest_ms": pa.int64(),
        "reason": pa.string(),
        "events": pa.binary(),
        "texts": pa.binary(),
    }
)
# Of each event: offset, scheduled_at, value, seq, and the length of its text.
_EVENT = Struct("<qqihi")


class Arrived(NamedTuple):
    """A record with an accepted event.

    Attributes:
        partition, offset: its position in the input topic.
        seq, value, scheduled_at: see `pipeline.events.Event`.
        text: the bytes of the record's value.
    """

    partition: int
    offset: int
    seq: int
    value: int
    scheduled_at: int
    text: bytes


class _Session:
    """The accepted events of one session in a record batch."""

    def __init__(self) -> None:
        self.newest_ms = 0
        self.events = bytearray()
        self.texts: list[bytes] = []

    def add(self, offset: int, event_ms: int, event: Event, text: bytes) -> None:
        self.newest_ms = max(self.newest_ms, event_ms)
        self.events += _EVENT.pack(offset, event.scheduled_at, event.value, event.seq, len(text))
        self.texts.append(text)


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packs record batches of key, partition, offset, value and event_ms.

    The result has the columns of PACKED_SCHEMA. `texts` of a rejected record is its value, null if that is null.
    """
    for batch in batches:
        if batch.num_rows:
            yield pa.RecordBatch.from_pylist(list(_packed(batch)), schema=_ARROW)


def _packed(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    sessions: dict[tuple[bytes, int], _Session] = {}
    columns = (batch.column(name).to_pylist() for name in ("key", "partition", "offset", "value", "event_ms"))
    for key, partition, offset, value, event_ms in zip(*columns, strict=True):
        found = check(key, value)
        if isinstance(found, str):
            alone = _EVENT.pack(offset, 0, 0, 0, 0)
            yield _row(key, partition, event_ms, found, alone, value)
            continue
        session = sessions.get((key, partition))
        if session is None:
            session = sessions[key, partition] = _Session()
        session.add(offset, event_ms, found, value)
    for (key, partition), session in sessions.items():
        yield _row(key, partition, session.newest_ms, None, bytes(session.events), b"".join(session.texts))


def _row(key: bytes | None, partition: int, newest_ms: int, *rest: Any) -> dict[str, Any]:
    return dict(zip(_ARROW.names, (key, partition, newest_ms, *rest), strict=True))


def unpack(rows: Iterable[Any]) -> list[Arrived]:
    """Returns the accepted events of packed rows, in the order of partition and offset."""
    found = []
    for row in rows:
        texts, start = bytes(row["texts"]), 0
        for offset, scheduled_at, value, seq, length in _EVENT.iter_unpack(row["events"]):
            text = texts[start : start + length]
            found.append(Arrived(row["partition"], offset, seq, value, scheduled_at, text))
            start += length
    found.sort(key=lambda each: each[:2])
    return found


def offset_of(row: Any) -> int:
    """Returns the offset of a rejected record."""
    offset: int = _EVENT.unpack(row["events"])[0]
    return offset
