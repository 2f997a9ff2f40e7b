"""Pravega's committed reader: returns a stream's events, as any reader group gets them.

Promise: an event is returned once. Its position is its segment's number and its byte offset there, which never change.
A transaction's events are in segments of its own until the commit, which merges each of them into a segment of the
stream. Therefore every event in the stream's segments is committed, and nothing hides it.

What can go wrong: the stream was scaled (`ReadError`: this reader supports a fixed set of segments only); the server is
away (`ReadError`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import orjson

from oncebench.delivery.errors import ReadError
from oncebench.sinks.reader import Rows, Snapshots, now_us
from oncebench_pravega.controller import Controller, ControllerError, Stream
from oncebench_pravega.segment_store import READ_BYTES, Chunk, SegmentError, SegmentStore, unframed

Found = TypeVar("Found")


class _Segment:
    """One segment, and the position up to which it was read."""

    def __init__(self, controller: Controller, number: int, name: str, token: str) -> None:
        self.number = number
        self._name, self._token = name, token
        self._store = SegmentStore(*controller.home(name))
        self._rest = Chunk(0, b"")  # the first part of an event whose rest is not read yet

    def fresh(self) -> list[tuple[int, bytes]]:
        """Returns (offset, event) of complete new events; empty only if there are none."""
        there = self._store.length(self._name, self._token)
        events: list[tuple[int, bytes]] = []
        while not events and (begin := self._rest.offset + len(self._rest.data)) < there:
            chunk = self._store.read(self._name, self._token, begin, min(READ_BYTES, there - begin))
            data = self._rest.data + chunk.data
            events, reached = unframed(Chunk(self._rest.offset, data))
            self._rest = Chunk(reached, data[reached - self._rest.offset :])
        return events

    def close(self) -> None:
        self._store.close()


def read(where: str, stream: Stream, key: str) -> Snapshots:
    """Returns a committed reader of a stream, by the controller at `where`; `key`: a row's key.

    Raises:
        ReadError: there is no such stream, or the server is away.
    """
    controller = Controller(where)
    segments = _asked(stream, where, lambda: _segments(controller, stream))

    def fresh() -> Rows:
        for segment in segments:
            events = _asked(stream, where, segment.fresh)
            if events:
                return _rows(segment.number, events, key)
        return Rows()

    def close() -> None:
        for segment in segments:
            segment.close()
        controller.close()

    return Snapshots(fresh, close=close)


def _segments(controller: Controller, stream: Stream) -> list[_Segment]:
    found = controller.segments(stream)
    if not found.names:
        raise ReadError(f"there is no stream {stream} at {controller.address}")
    if any(not name.endswith(".#epoch.0") for name in found.names):
        raise ReadError(
            f"{stream} was scaled (its segments are {', '.join(found.names)}), and this reader would miss events of "
            "earlier segments. Write to a stream with a fixed number of segments."
        )
    return [_Segment(controller, number, name, found.token) for number, name in enumerate(found.names)]


def _asked(stream: Stream, where: str, ask: Callable[[], Found]) -> Found:
    try:
        return ask()
    except (ControllerError, SegmentError, OSError) as error:
        raise ReadError(f"stream {stream} at {where} cannot be read: {error}. Is Pravega running there?") from error


def _rows(number: int, events: list[tuple[int, bytes]], key: str) -> Rows:
    seen_us = now_us()  # Pravega keeps no time of an event
    return Rows(
        partition=[number] * len(events),
        offset=[offset for offset, _ in events],
        append_ms=[seen_us // 1000] * len(events),
        key=[_key(event, key) for _, event in events],
        value=[event for _, event in events],
        headers=[()] * len(events),
        seen_us=seen_us,
    )


def _key(event: bytes, key: str) -> bytes | None:
    """Returns an event's field `key`; None if the event is not a row (corrupt for the audit)."""
    try:
        return str(orjson.loads(event)[key]).encode()
    except (ValueError, KeyError, TypeError):
        return None
