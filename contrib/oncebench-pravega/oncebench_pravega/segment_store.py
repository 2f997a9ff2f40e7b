"""A client of Pravega's segment store: appends to a segment, reads its length and its bytes.

Promise: `Append.write` returns when the store has acknowledged every event, in order. Any other answer raises
`SegmentError` with its kind. No event is sent before `set_up` returns. A connection is for one process and one thread.
Positions are byte offsets. An event in a segment is a type (0), a length and the event's bytes, all big-endian, so any
Pravega reader can read it.

The commands are those of Pravega's wire protocol (`WireCommands` of pravega-shared-protocol) from version 5 on.
Pravega's own Python client is not enough: its transactions cannot be flushed, and its readers do not return the
segment.

What can go wrong: the store is away, silent for ANSWER_S, or cuts the connection (`OSError`); a segment is sealed or
gone, because its transaction has ended (`SegmentError`). After either error the connection must be closed.
"""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# Per answer. A running store needs milliseconds; a store that recovers its containers needs some seconds.
ANSWER_S = 30.0
CONNECT_S = 10.0
# The server takes 8 MB per append and 16 MB per command. Smaller blocks are written while the next one is made.
BLOCK_BYTES = 512 * 1024
# Pravega's own writers take no larger event. The server closes the connection at a command of 16 MB.
EVENT_BYTES = 8 * 1024 * 1024
READ_BYTES = 1024 * 1024
# Load balancers and address translators cut a connection that is silent for some minutes, many without a sign.
KEEP_ALIVE_S = 30
EVENT_HEADER_BYTES = 8

_HELLO, _SETUP, _SETUP_DONE, _BLOCK, _BLOCK_END, _APPENDED = -127, 1, 2, 3, 4, 7
_READ, _READ_DONE, _INFO, _INFO_DONE, _KEEP_ALIVE = 9, 10, 11, 12, 100
_NEWEST, _OLDEST = 10, 5
MOVED = 50
# Answers that end a request -> their meaning, for people.
FAILURES = {
    MOVED: "another segment store has it",
    51: "the segment is sealed",
    53: "there is no such segment",
    55: "the store refused an event number",
    56: "the segment was truncated",
    57: "the store does not support this",
    60: "the store refused the token",
}
_HEADER = struct.Struct(">ii")
_LONG = struct.Struct(">q")


class SegmentError(Exception):
    """The store answered and refused; `kind` is its wire code, in `FAILURES` or not."""

    def __init__(self, kind: int, segment: str) -> None:
        self.kind = kind
        super().__init__(f"{segment}: {FAILURES.get(kind, f'unexpected answer {kind}')}")


@dataclass(frozen=True)
class Chunk:
    """Bytes of a segment from `offset` on, possibly not all of them."""

    offset: int
    data: bytes


def framed(events: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields blocks as (number of events, bytes).

    A block ends with the event that fills BLOCK_BYTES.
    """
    pieces: list[bytes] = []
    size = count = 0
    for event in events:
        pieces += (_HEADER.pack(0, len(event)), event)
        size += EVENT_HEADER_BYTES + len(event)
        count += 1
        if size >= BLOCK_BYTES:
            yield count, b"".join(pieces)
            pieces, size, count = [], 0, 0
    if pieces:
        yield count, b"".join(pieces)


def unframed(chunk: Chunk) -> tuple[list[tuple[int, bytes]], int]:
    """Returns a chunk's complete events with their offsets, and the next event's offset."""
    found = []
    at = 0
    while at + EVENT_HEADER_BYTES <= len(chunk.data):
        _kind, length = _HEADER.unpack_from(chunk.data, at)
        end = at + EVENT_HEADER_BYTES + length
        if end > len(chunk.data):
            break
        found.append((chunk.offset + at, chunk.data[at + EVENT_HEADER_BYTES : end]))
        at = end
    return found, chunk.offset + at


class SegmentStore:
    """A connection to one segment store. Raises `OSError` if the store is away or goes away."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), CONNECT_S)
        self._from = self._socket.makefile("rb")
        self._request = 0
        try:
            self._socket.settimeout(ANSWER_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
                if hasattr(socket, option):  # not on every system
                    self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), KEEP_ALIVE_S)
            self._send(_HELLO, struct.pack(">ii", _NEWEST, _OLDEST))
            self._answer(_HELLO, f"{host}:{port}")
        except BaseException:
            self.close()
            raise

    def set_up(self, segment: str, token: str) -> Append:
        """Returns an append to a segment, which the store has accepted."""
        writer = uuid.uuid4().bytes
        request = self._next()
        self._send(_SETUP, _LONG.pack(request), writer, _text(segment), _text(token))
        self._answer(_SETUP_DONE, segment)
        return Append(self, segment, writer, request)

    def length(self, segment: str, token: str) -> int:
        """Returns how many bytes of the segment can be read."""
        self._send(_INFO, _LONG.pack(self._next()), _text(segment), _text(token))
        answer = self._answer(_INFO_DONE, segment)
        _modified, written, _start = struct.unpack_from(">qqq", answer, len(answer) - 24)
        return int(written)

    def read(self, segment: str, token: str, offset: int, length: int) -> Chunk:
        """Returns bytes that exist already (see `length`).

        At the end of a segment the store would wait for more bytes.
        """
        wanted = struct.pack(">qi", offset, length)
        self._send(_READ, _text(segment), wanted, _text(token), _LONG.pack(self._next()))
        answer = self._answer(_READ_DONE, segment)
        (name,) = struct.unpack_from(">H", answer)
        at = 2 + name
        found, _tail, _end, size = struct.unpack_from(">q??i", answer, at)
        at += struct.calcsize(">q??i")
        return Chunk(found, answer[at : at + size])

    def close(self) -> None:
        """Closes the connection; appends without an acknowledgement may be stored or not."""
        self._from.close()
        self._socket.close()

    def _next(self) -> int:
        self._request += 1
        return self._request

    def _send(self, kind: int, *parts: bytes) -> None:
        payload = b"".join(parts)
        self._socket.sendall(_HEADER.pack(kind, len(payload)) + payload)

    def _answer(self, wanted: int, about: str) -> bytes:
        while True:
            kind, length = _HEADER.unpack(self._take(_HEADER.size))
            payload = self._take(length)
            if kind == wanted:
                return payload
            if kind != _KEEP_ALIVE:
                raise SegmentError(kind, about)

    def _take(self, length: int) -> bytes:
        taken = self._from.read(length)
        if taken is None or len(taken) < length:
            raise ConnectionError("the segment store closed the connection")
        return taken


@dataclass(frozen=True)
class Append:
    """An append that the store has accepted. `SegmentStore.set_up` returns it. Use it only once."""

    store: SegmentStore
    segment: str
    writer: bytes
    request: int

    def write(self, blocks: Iterable[tuple[int, bytes]]) -> int:
        """Appends blocks of events (see `framed`), all acknowledged; returns the number of events."""
        number = 0
        for count, data in blocks:
            number += count
            self.store._send(_BLOCK, self.writer, data)
            end = struct.pack(">iiiqq", len(data), 0, count, number, self.request)
            self.store._send(_BLOCK_END, self.writer, end)
        acknowledged = 0
        while acknowledged < number:
            answer = self.store._answer(_APPENDED, self.segment)
            (acknowledged,) = _LONG.unpack_from(answer, len(self.writer))
        return number


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded
