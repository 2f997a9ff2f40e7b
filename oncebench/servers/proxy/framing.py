"""Where a message ends on the wire: Kafka's and PostgreSQL's protocol, as far as somebody between the two must know it.

Promise: what is handed on is byte for byte what came, one whole request at a time. What can go wrong: a connection that
ends within a message ends the iteration too (`asyncio.IncompleteReadError`); encrypted connections can't be read, so
this is for servers that the suite started.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Protocol

from kafka.protocol.producer import ProduceResponse

PRODUCE, END_TXN = 0, 26  # Kafka's numbers of requests (api_key)
# First versions with the flexible format: their answer's header has a field more.
_END_TXN_FLEXIBLE, _PRODUCE_FLEXIBLE = 3, 9
# PostgreSQL's requests before the login that are answered with one byte, and after which the login still comes.
_BEFORE_LOGIN = frozenset({80877103, 80877104})  # SSLRequest, GSSENCRequest
# psycopg names so what it prepares, and then sends the text alone: nothing of it is executed before the server answers.
# Java's driver names its statements too, and sends text and execution in one breath.
_PREPARED_AHEAD = b"_pg3_"
_HEAD = 5  # type and length of a message of PostgreSQL's
_CHUNK = 65536


class Framing(Protocol):
    """How a protocol's messages are told apart."""

    def requests(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """What a client says, request by request."""

    def answers(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """What a server says, in pieces of which each belongs to one request at most."""

    def belongs(self, answer: bytes, request: bytes) -> bool:
        """Whether a piece that came after this request is its answer."""


class KafkaFraming:
    """Length (4 bytes), then of a request api_key, api_version, correlation_id, and of an answer correlation_id."""

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
    """Type (1 byte, none before the login), then length (4 bytes, itself counted)."""

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
        """See `Framing`: a client waits for each answer before it asks again."""
        del answer, request
        return True


def is_kafka(api_key: int, request: bytes) -> bool:
    """Whether a request to Kafka is of this kind."""
    return int.from_bytes(request[4:6]) == api_key


def is_commit(request: bytes) -> bool:
    """Whether a request to PostgreSQL is a COMMIT or COMMIT PREPARED, as a simple query or to be parsed and executed.

    What psycopg only prepares is none: its answer says nothing of a commit.
    """
    kind, body = request[:1], request[5:]
    if kind == b"P":
        name, _, body = body.partition(b"\0")
        if name.startswith(_PREPARED_AHEAD):
            return False
    return kind in (b"Q", b"P") and body.upper().startswith(b"COMMIT")


def end_txn_error(answer: bytes, request: bytes) -> int:
    """Kafka's error code in an answer to EndTxn; 0 is none."""
    flexible = int.from_bytes(request[6:8]) >= _END_TXN_FLEXIBLE
    at = 8 + flexible + 4  # length, correlation_id, tags, throttle_time_ms
    return int.from_bytes(answer[at : at + 2], signed=True)


def produce_error(answer: bytes, request: bytes) -> int:
    """Kafka's error code in an answer to Produce: the first that is one, of all partitions; 0 is none."""
    version = int.from_bytes(request[6:8])
    said = ProduceResponse.decode(answer[8 + (version >= _PRODUCE_FLEXIBLE) :], version=version)
    codes = (partition.error_code for topic in said.responses for partition in topic.partition_responses)
    return next(filter(None, codes), 0)


def commit_outcome(answer: bytes) -> dict[str, str]:
    """What PostgreSQL answered to a COMMIT: its `command_tag` (ROLLBACK too), or an error's `sqlstate`; or neither."""
    while len(answer) > _HEAD:
        length = int.from_bytes(answer[1:_HEAD])
        kind, body, answer = answer[:1], answer[_HEAD : 1 + length], answer[1 + length :]
        if kind == b"C":
            return {"command_tag": body.rstrip(b"\0").decode()}
        if kind == b"E":
            return {"sqlstate": next(field for field in body.split(b"\0") if field[:1] == b"C")[1:].decode()}
    return {}
