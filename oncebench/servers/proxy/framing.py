"""Message boundaries in Kafka's and PostgreSQL's protocols, as far as the proxy needs them.

Promise: every yielded request is exactly one whole request, byte for byte as it arrived.

Failure modes: a connection that ends inside a message ends the iteration (`asyncio.IncompleteReadError`). Encrypted
connections cannot be read, so this works only for servers that the suite started.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Protocol

from kafka.protocol.producer import ProduceResponse

PRODUCE, END_TXN = 0, 26  # Kafka's request types (api_key)
# First versions with the flexible format, whose response header has one more field.
_END_TXN_FLEXIBLE, _PRODUCE_FLEXIBLE = 3, 9
# PostgreSQL's requests before the login. The server answers each with one byte, and the login still follows.
_BEFORE_LOGIN = frozenset({80877103, 80877104})  # SSLRequest, GSSENCRequest
# psycopg's prefix for prepared statements. psycopg first sends only the text, and waits for the answer before it
# executes. Java's driver names its statements too, but sends text and execution together.
_PREPARED_AHEAD = b"_pg3_"
_HEAD = 5  # type and length of a PostgreSQL message
_CHUNK = 65536


class Framing(Protocol):
    """Finds the messages in a byte stream."""

    def requests(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """The client's requests, one by one."""

    def answers(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """The server's bytes in pieces. Each piece belongs to one request at most."""

    def belongs(self, answer: bytes, request: bytes) -> bool:
        """Whether a piece that came after this request is its answer."""


class KafkaFraming:
    """Kafka: length (4 bytes), then api_key, api_version, correlation_id of a request.

    An answer has only the correlation_id after its length.
    """

    async def requests(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """See `Framing`."""
        while True:
            head = await reader.readexactly(4)
            yield head + await reader.readexactly(int.from_bytes(head))

    answers = requests

    def belongs(self, answer: bytes, request: bytes) -> bool:
        """See `Framing`."""
        return answer[4:8] == request[8:12]


class PostgresFraming:
    """PostgreSQL: type (1 byte, none before the login), then length (4 bytes, counting itself)."""

    async def requests(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """See `Framing`."""
        code = min(_BEFORE_LOGIN)
        while code in _BEFORE_LOGIN:
            head = await reader.readexactly(8)
            length, code = struct.unpack("!II", head)
            yield head + await reader.readexactly(length - 8)
        while True:
            head = await reader.readexactly(_HEAD)
            yield head + await reader.readexactly(int.from_bytes(head[1:]) - 4)

    async def answers(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """See `Framing`."""
        while piece := await reader.read(_CHUNK):
            yield piece

    def belongs(self, answer: bytes, request: bytes) -> bool:
        """See `Framing`. A client waits for each answer before it sends the next request."""
        del answer, request
        return True


def is_kafka(api_key: int, request: bytes) -> bool:
    """Whether a request to Kafka has this type."""
    return int.from_bytes(request[4:6]) == api_key


def is_commit(request: bytes) -> bool:
    """Whether a PostgreSQL request executes COMMIT or COMMIT PREPARED.

    It may be a simple or an extended query. A statement that psycopg only prepares does not count, because its answer
    does not report a commit.
    """
    kind, body = request[:1], request[5:]
    if kind == b"P":
        name, _, body = body.partition(b"\0")
        if name.startswith(_PREPARED_AHEAD):
            return False
    return kind in (b"Q", b"P") and body.upper().startswith(b"COMMIT")


def end_txn_error(answer: bytes, request: bytes) -> int:
    """Kafka's error code in an answer to EndTxn; 0 means success."""
    flexible = int.from_bytes(request[6:8]) >= _END_TXN_FLEXIBLE
    at = 8 + flexible + 4  # length, correlation_id, tags, throttle_time_ms
    return int.from_bytes(answer[at : at + 2], signed=True)


def produce_error(answer: bytes, request: bytes) -> int:
    """The first error code of all partitions in Kafka's answer to Produce; 0 means success."""
    version = int.from_bytes(request[6:8])
    decoded = ProduceResponse.decode(answer[8 + (version >= _PRODUCE_FLEXIBLE) :], version=version)
    codes = (partition.error_code for topic in decoded.responses for partition in topic.partition_responses)
    return next(filter(None, codes), 0)


def commit_outcome(answer: bytes) -> dict[str, str]:
    """The outcome in PostgreSQL's answer to a COMMIT.

    Returns its `command_tag` (which may be ROLLBACK), or the `sqlstate` of an error, or nothing if it has neither.
    """
    while len(answer) > _HEAD:
        length = int.from_bytes(answer[1:_HEAD])
        kind, body, answer = answer[:1], answer[_HEAD : 1 + length], answer[1 + length :]
        if kind == b"C":
            return {"command_tag": body.rstrip(b"\0").decode()}
        if kind == b"E":
            return {"sqlstate": next(field for field in body.split(b"\0") if field[:1] == b"C")[1:].decode()}
    return {}
