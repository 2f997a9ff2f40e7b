"""Packs events before the shuffle: one row for all events of a session in a record batch.

Spark passes each row to Python on its own. With one event per row, the stateful operator spends most of its time on
receiving rows. `pack` runs in the tasks that read Kafka. It checks each event, and joins the accepted events of a
session into one row. Each rejected record remains a row of its own.

Promise: the operator gets every record with its position and its bytes, so packing changes no result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.events import check
from pipeline.plain_events import EVENT, plain_events

PACKED_SCHEMA = "key binary, partition int, reason string, events binary, texts binary"
# partition, offset, seq, value, scheduled_at, texts, start, end: `texts[start:end]` is the record's value.
# A plain tuple, because a named tuple takes three times as long to make.
Arrived = tuple[int, int, int, int, int, bytes, int, int]
_ARROW = pa.schema(
    {
        "key": pa.binary(),
        "partition": pa.int32(),
        "reason": pa.string(),
        "events": pa.binary(),
        "texts": pa.binary(),
    }
)


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packs record batches of key, partition, offset and value.

    The result has the columns of PACKED_SCHEMA. For a rejected record, `texts` is the record's value or null.
    """
    for batch in batches:
        if batch.num_rows:
            yield from _packed(batch)


def _packed(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    events, accepted = plain_events(batch)
    rejected = []
    for at in np.flatnonzero(~accepted).tolist():  # in another spelling, or not an event
        key, value = batch["key"][at].as_py(), batch["value"][at].as_py()
        found = check(key, value)
        if isinstance(found, str):
            rejected.append((at, found))
        else:
            events[at] = (events[at]["offset"], found.scheduled_at, found.value, found.seq, len(value))
            accepted[at] = True
    if rejected:
        yield _rejected(batch, events, rejected)
    if accepted.any():
        yield _joined(batch.filter(pa.array(accepted)), events[accepted])


def _rejected(batch: pa.RecordBatch, events: np.ndarray[Any, Any], found: list[tuple[int, str]]) -> pa.RecordBatch:
    """Returns a row for each rejected record, from their numbers in the batch and their reasons."""
    rows, reasons = zip(*found, strict=True)
    those = batch.take(pa.array(rows))
    alone = [event.tobytes() for event in events[list(rows)]]
    return pa.record_batch([those["key"], those["partition"], reasons, alone, those["value"]], schema=_ARROW)


def _joined(batch: pa.RecordBatch, events: np.ndarray[Any, Any]) -> pa.RecordBatch:
    """Returns a row for each session and partition: its events and texts, in the batch's order."""
    sessions = batch["key"].dictionary_encode()
    session, partition = sessions.indices.to_numpy(), batch["partition"].to_numpy()
    order = np.lexsort((partition, session))  # stable
    session, partition = session[order], partition[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(session) != 0) | (np.diff(partition) != 0)])
    bounds = np.r_[starts, len(order)]
    texts = batch["value"].take(pa.array(order))
    return pa.record_batch(
        [
            sessions.dictionary.take(pa.array(session[starts])),
            pa.array(partition[starts]),
            pa.nulls(len(starts), pa.string()),
            _slices(events[order].tobytes(), bounds * EVENT.itemsize),
            _slices(texts.buffers()[2], np.frombuffer(texts.buffers()[1], np.int32)[bounds + texts.offset]),
        ],
        schema=_ARROW,
    )


def _slices(data: bytes | pa.Buffer, bounds: np.ndarray[Any, Any]) -> pa.Array:
    """Returns a binary array of the slices of `data` between consecutive bounds."""
    offsets = pa.py_buffer(bounds.astype(np.int32).tobytes())
    data = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, offsets, data])


def unpack(rows: Iterable[Any]) -> list[Arrived]:
    """Returns the accepted events of packed rows, in the order of partition and offset."""
    found: list[Arrived] = []
    for row in rows:
        events = np.frombuffer(row["events"], EVENT)
        columns = [events[name].tolist() for name in ("offset", "seq", "value", "scheduled_at")]
        ends = np.cumsum(events["length"]).tolist()
        texts = repeat(bytes(row["texts"]))
        found += zip(repeat(row["partition"]), *columns, texts, [0, *ends[:-1]], ends)
    found.sort()  # no two events have the same partition and offset, so no other field is compared
    return found


def offset_of(row: Any) -> int:
    """Returns the offset of a rejected record."""
    return int(np.frombuffer(row["events"], EVENT)["offset"][0])
