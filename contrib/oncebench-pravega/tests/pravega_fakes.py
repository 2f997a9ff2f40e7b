"""A small segment store and a simulated controller, for tests without a server."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
from oncebench_pravega import controller as pravega_controller
from oncebench_pravega.controller import Controller, ControllerError, Segments, Stream, Transaction
from oncebench_pravega.sink import PravegaSink

from oncebench.delivery.contract import EXACTLY_ONCE, Support

STREAM = Stream("scope", "stream")
SEGMENT = "scope/stream/0.#epoch.0"
AWAY = ControllerError("getURI", "UNAVAILABLE", "gone")
LEASE = ControllerError("createTransaction", "UNKNOWN", "lease value too large, max value is 600000")
TWO_PHASE = Support(EXACTLY_ONCE, "two-phase", "")
SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
HEADER = struct.Struct(">ii")


class Store:
    """A segment store that keeps appended bytes; `refuse` sets another answer."""

    def __init__(self) -> None:
        self.held = b""
        self.refuse: int | None = None
        self.refuse_once: list[int] = []
        self.cut = False
        self.connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def drop_idle(self) -> None:
        """Closes every connection, as a load balancer does after some silent minutes."""
        while self.connections:
            self.connections.pop().shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with suppress(ConnectionError), connection, connection.makefile("rb") as taken:
            while head := taken.read(8):
                kind, length = HEADER.unpack(head)
                answer = self._answer(kind, taken.read(length))
                if self.cut and kind != -127:
                    break
                connection.sendall(answer)

    def _answer(self, kind: int, payload: bytes) -> bytes:
        if self.refuse_once and kind in (1, 11):
            return HEADER.pack(self.refuse_once.pop(0), 0)
        if self.refuse is not None and kind not in (-127, 3):
            return HEADER.pack(self.refuse, 0)
        if kind == -127:
            return HEADER.pack(-127, 8) + payload + HEADER.pack(100, 0)  # and a keep-alive, which means nothing
        if kind == 1:
            return HEADER.pack(2, 0)
        if kind == 3:
            self.held += payload[16:]
            return b""
        if kind == 4:
            return self._framed(7, payload[:16], payload[16 + 12 : 16 + 20])
        name = 2 + len(SEGMENT)
        if kind == 11:
            return self._framed(12, payload[: 8 + name], b"\x01\0\0", struct.pack(">qqq", 0, len(self.held), 0))
        assert kind == 9
        offset, length = struct.unpack_from(">qi", payload, name)
        data = self.held[offset : offset + min(length, 7)]  # in small pieces: an event comes in several
        return self._framed(10, payload[:name], struct.pack(">q??i", offset, False, False, len(data)), data, b"\0" * 8)

    def _framed(self, kind: int, *parts: bytes) -> bytes:
        return HEADER.pack(kind, sum(map(len, parts))) + b"".join(parts)


class Made(Controller):
    """A controller with a given answer or error for each call."""

    def __init__(self, store: Store | None = None, **answers: Any) -> None:
        self.address = "nowhere:1"
        self.asked: list[str] = []
        self._store, self._answers = store, answers

    def segments(self, stream: Stream) -> Segments:
        return self._say("segments", Segments((SEGMENT,), ""))

    def home(self, segment: str) -> tuple[str, int]:
        assert self._store is not None
        return "127.0.0.1", self._store.port

    def begin(self, stream: Stream, lease_ms: int) -> Transaction:
        return self._say("begin", Transaction("a" * 32, Segments((SEGMENT,), "")))

    def commit(self, stream: Stream, transaction: str) -> bool:
        return self._say("commit", True)

    def abort(self, stream: Stream, transaction: str) -> bool:
        return self._say("abort", True)

    def state(self, stream: Stream, transaction: str) -> int:
        return self._say("state", pravega_controller.COMMITTED)

    def close(self) -> None:
        """There is nothing to close."""

    def _say(self, call: str, default: Any) -> Any:
        self.asked.append(call)
        answers = self._answers.get(call, [default])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Task:
    """A task of batch 7, partition 0."""

    batch, partition = 7, 0

    def __init__(self, reach: Callable[[str], None] = lambda point: None) -> None:
        self.reach = reach

    def counted(self) -> tuple[int, int]:
        return 0, 0


def rows(*keys: str) -> pa.RecordBatch:
    values = [json.dumps({"session_key": key, "j": 1}).encode() for key in keys]
    return pa.RecordBatch.from_pydict({"key": [key.encode() for key in keys], "value": values})


def sink() -> PravegaSink:
    return PravegaSink(STREAM, 2, 60_000)
