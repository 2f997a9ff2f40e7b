"""Pravega's committed reader: returns a stream's events, as any reader group gets them.

Promise: an event is returned once. Its position is its segment's number and its byte offset there, which never change.
A transaction's events are in segments of its own until the commit, which merges each of them into a segment of the
stream. Therefore every event in the stream's segments is committed, and nothing hides it.

What can go wrong: the stream was scaled (`ReadError`: this reader supports a fixed set of segments only); the server is
away (polls return nothing for AWAY_S, then `ReadError`).
"""

from __future__ import annotations

import time

import orjson

from oncebench.delivery.errors import ReadError
from oncebench.sinks.reader import NotAnsweredError, Rows, Snapshots, now_us
from oncebench_pravega.causes import cause_of
from oncebench_pravega.controller import Controller, Stream
from oncebench_pravega.segment_store import MOVED, READ_BYTES, Chunk, SegmentError, SegmentStore, unframed
from oncebench_pravega.writers import PRAVEGA_ERRORS

# A restart of a server takes some seconds, on a busy machine half a minute.
AWAY_S = 60.0


class _Segment:
    """One segment, and the position up to which it was read."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self._store: SegmentStore | None = None
        self._rest = Chunk(0, b"")  # the first part of an event whose rest is not read yet

    def fresh(self, controller: Controller, token: str) -> list[tuple[int, bytes]]:
        """Returns (offset, event) of complete new events; empty only if there are none."""
        if self._store is None:
            self._store = SegmentStore(*controller.home(self.name))
        there = self._store.length(self.name, token)
        events: list[tuple[int, bytes]] = []
        while not events and (begin := self._rest.offset + len(self._rest.data)) < there:
            chunk = self._store.read(self.name, token, begin, min(READ_BYTES, there - begin))
            data = self._rest.data + chunk.data
            events, reached = unframed(Chunk(self._rest.offset, data))
            self._rest = Chunk(reached, data[reached - self._rest.offset :])
        return events

    def close(self) -> None:
        """Closes the connection; the next `fresh` makes another one."""
        if self._store is not None:
            self._store.close()
            self._store = None


class StreamFollower:
    """Follows a stream, by the controller at `where`, and returns its new events.

    `key`: the field of an event with the row's key.
    """

    def __init__(self, where: str, stream: Stream, key: str) -> None:
        self._where, self._stream, self._key = where, stream, key
        self._controller = Controller(where)
        self._segments: list[_Segment] = []
        self._token = ""
        self._answered_s = time.monotonic()

    def fresh(self) -> Rows:
        """Returns new events of one segment.

        Raises:
            NotAnsweredError: the server is away; the next call connects again.
            ReadError: it is away for AWAY_S, or the stream is missing or was scaled.
        """
        try:
            if not self._segments:
                self._segments, self._token = self._found()
            rows = self._next()
        except PRAVEGA_ERRORS as error:
            self._disconnect()
            refused = cause_of(error).permanent or (isinstance(error, SegmentError) and error.kind != MOVED)
            if not refused and time.monotonic() - self._answered_s < AWAY_S:
                raise NotAnsweredError from error
            raise ReadError(
                f"stream {self._stream} at {self._where} cannot be read: {error}. Is Pravega running there?"
            ) from error
        self._answered_s = time.monotonic()
        return rows

    def close(self) -> None:
        """Closes all connections."""
        self._disconnect()
        self._controller.close()

    def _next(self) -> Rows:
        for segment in list(self._segments):
            # Each call begins with the segment after the last one: a busy segment must not delay the rows of others.
            self._segments = [*self._segments[1:], segment]
            events = segment.fresh(self._controller, self._token)
            if events:
                return _rows(segment.number, events, self._key)
        return Rows()

    def _found(self) -> tuple[list[_Segment], str]:
        found = self._controller.segments(self._stream)
        if not found.names:
            raise ReadError(f"there is no stream {self._stream} at {self._where}")
        if any(not name.endswith(".#epoch.0") for name in found.names):
            raise ReadError(
                f"{self._stream} was scaled (its segments are {', '.join(found.names)}), and this reader would miss "
                "events of earlier segments. Write to a stream with a fixed number of segments."
            )
        return [_Segment(number, name) for number, name in enumerate(found.names)], found.token

    def _disconnect(self) -> None:
        for segment in self._segments:
            segment.close()


def read(where: str, stream: Stream, key: str) -> Snapshots:
    """Returns a committed reader of a stream; see `StreamFollower`."""
    follower = StreamFollower(where, stream, key)
    return Snapshots(follower.fresh, close=follower.close)


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
