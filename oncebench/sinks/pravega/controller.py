"""Pravega's controller, as far as this sink needs it: scopes, streams, segments and transactions, by gRPC.

Promise: a transaction is named by its id alone, and any process may end it: who began it is not asked. `commit` answers
whether the controller has taken it (from then on it will be committed, whoever dies) and `state` what became of it.

Pravega's own Python client cannot do this: a handle that its `get_txn` gives counts as closed from the beginning, so
that its `commit` and `abort` fail before they ask the controller (pravega 0.3.8).

What can go wrong: the controller is away (`ControllerAway`: nothing is known); grpcio is not installed (`RefusedStart`
with what to install). Nothing is imported until a controller is asked for. A process that has used one must not fork
and use one in its child: gRPC does not survive that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from oncebench.delivery.errors import RefusedStart

ANSWER_S = 20.0  # a controller that is up needs some milliseconds
MISSING = (
    "" if find_spec("grpc") else "it needs the package grpcio: pip install -e '.[pravega]' in this project's folder"
)

_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    # As shipped, a controller that comes back would be looked for again after up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_PACKAGE = "io.pravega.controller.stream.api.grpc.v1"
_SERVICE = f"/{_PACKAGE}.ControllerService"
# What is used of the controller's messages (Controller.proto of Pravega): field -> (number, type). An enum is an int32
# on the wire.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "ScopeInfo": {"scope": (1, "string")},
    "StreamInfo": {"scope": (1, "string"), "stream": (2, "string"), "accessOperation": (3, "int32")},
    "ScalingPolicy": {"scaleType": (1, "int32"), "minNumSegments": (4, "int32")},
    "StreamConfig": {"streamInfo": (1, "StreamInfo"), "scalingPolicy": (2, "ScalingPolicy")},
    "Status": {"status": (1, "int32")},
    "SegmentId": {"streamInfo": (1, "StreamInfo"), "segmentId": (2, "int64")},
    "SegmentRange": {"segmentId": (1, "SegmentId")},
    "SegmentRanges": {"segmentRanges": (1, "repeated SegmentRange"), "delegationToken": (2, "string")},
    "NodeUri": {"endpoint": (1, "string"), "port": (2, "int32")},
    "TxnId": {"highBits": (1, "int64"), "lowBits": (2, "int64")},
    "CreateTxnRequest": {"streamInfo": (1, "StreamInfo"), "lease": (2, "int64")},
    "CreateTxnResponse": {
        "txnId": (1, "TxnId"),
        "activeSegments": (2, "repeated SegmentRange"),
        "delegationToken": (3, "string"),
    },
    "TxnRequest": {
        "streamInfo": (1, "StreamInfo"),
        "txnId": (2, "TxnId"),
        "writerId": (3, "string"),
        "timestamp": (4, "int64"),
    },
    "TxnState": {"state": (1, "int32")},
}
_ANSWERS = {
    "createScope": "Status",
    "createStream": "Status",
    "getCurrentSegments": "SegmentRanges",
    "getURI": "NodeUri",
    "createTransaction": "CreateTxnResponse",
    "commitTransaction": "Status",
    "abortTransaction": "Status",
    "checkTransactionState": "TxnState",
}
UNKNOWN, OPEN, COMMITTING, COMMITTED, ABORTING, ABORTED = range(6)
_SUCCESS, _EXISTS = 0, 2
_FIXED_SEGMENTS, _READ_WRITE = 0, 5
_OF_TRANSACTION = "#transaction."
_NO_TIME = -(1 << 63)  # "no time was noted", as Pravega's own clients have it
_SIGN = 1 << 63


class ControllerAway(Exception):
    """The controller gave no answer: what was asked may have been done or not."""


@dataclass(frozen=True)
class Stream:
    """A stream's name; `str` gives it as `scope/stream`."""

    scope: str
    name: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"

    @classmethod
    def named(cls, text: str) -> Stream:
        """From `scope/stream`."""
        scope, _, name = text.partition("/")
        return cls(scope, name)


@dataclass(frozen=True)
class Segments:
    """Names of segments in ascending order of their ids, and the token that the store wants for them."""

    names: Sequence[str]
    token: str


@dataclass(frozen=True)
class Transaction:
    """An open transaction: its id (32 hexadecimal digits), and its segments, which nobody reads before the commit."""

    id: str
    segments: Segments


class Controller:
    """A connection to a controller at `host:port`. Raises `RefusedStart` if grpcio is not there."""

    def __init__(self, address: str) -> None:
        if MISSING:
            raise RefusedStart(f"this is a sink for Pravega, and {MISSING}")
        import grpc  # noqa: PLC0415

        self.address = address
        self._grpc = grpc
        self._channel = grpc.insecure_channel(address, _OPTIONS)

    def make_stream(self, stream: Stream, segments: int) -> bool:
        """Makes a stream of so many segments for ever, and its scope; False if the controller would not."""
        scope = self._ask("createScope", _new("ScopeInfo", scope=stream.scope)).status
        if scope not in (_SUCCESS, _EXISTS):
            return False
        policy = _new("ScalingPolicy", scaleType=_FIXED_SEGMENTS, minNumSegments=segments)
        made = self._ask("createStream", _new("StreamConfig", streamInfo=_info(stream), scalingPolicy=policy)).status
        return bool(made == _SUCCESS)

    def segments(self, stream: Stream) -> Segments:
        """The stream's present segments; none if there is no such stream."""
        try:
            found = self._ask("getCurrentSegments", _info(stream))
        except ControllerAway as error:
            if _is(error, "NOT_FOUND"):
                return Segments((), "")
            raise
        return Segments([_named(stream, number) for number in _numbers(found.segmentRanges)], found.delegationToken)

    def home(self, segment: str) -> tuple[str, int]:
        """Host and port of the segment store that has a segment of the stream's own."""
        scope, name, rest = segment.split("/")
        number, _, epoch = rest.partition(".#epoch.")
        wanted = (int(epoch) << 32) + int(number)
        found = self._ask("getURI", _new("SegmentId", streamInfo=_info(Stream(scope, name)), segmentId=wanted))
        return found.endpoint, found.port

    def begin(self, stream: Stream, lease_ms: int) -> Transaction:
        """Begins a transaction, which the controller aborts when nobody has ended it within `lease_ms`."""
        made = self._ask("createTransaction", _new("CreateTxnRequest", streamInfo=_info(stream), lease=lease_ms))
        high, low = made.txnId.highBits % (1 << 64), made.txnId.lowBits % (1 << 64)
        name = f"{high:016x}{low:016x}"
        segments = [f"{_named(stream, number)}{_OF_TRANSACTION}{name}" for number in _numbers(made.activeSegments)]
        return Transaction(name, Segments(segments, made.delegationToken))

    def commit(self, stream: Stream, transaction: str) -> bool:
        """Whether the controller took the commit of a transaction, now or before; see `state` for when it is done."""
        return bool(self._ask("commitTransaction", _request(stream, transaction)).status == _SUCCESS)

    def abort(self, stream: Stream, transaction: str) -> bool:
        """Whether the controller took the abort of a transaction, now or before."""
        return bool(self._ask("abortTransaction", _request(stream, transaction)).status == _SUCCESS)

    def state(self, stream: Stream, transaction: str) -> int:
        """What became of a transaction; UNKNOWN of one that never was, or that ended a day ago."""
        return int(self._ask("checkTransactionState", _request(stream, transaction)).state)

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def _ask(self, call: str, request: Any) -> Any:
        ask = self._channel.unary_unary(
            f"{_SERVICE}/{call}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=_types()[_ANSWERS[call]].FromString,
        )
        try:
            return ask(request, timeout=ANSWER_S)
        except self._grpc.RpcError as error:
            raise ControllerAway(f"{call}: {error.code().name}, {error.details()}") from error


def own_segment(segment: str) -> str:
    """The stream's own segment into which one of a transaction is merged; it is in the same store."""
    return segment.split(_OF_TRANSACTION, maxsplit=1)[0]


def _is(error: ControllerAway, code: str) -> bool:
    cause: Any = error.__cause__
    return bool(cause.code().name == code)


def _info(stream: Stream) -> Any:
    return _new("StreamInfo", scope=stream.scope, stream=stream.name, accessOperation=_READ_WRITE)


def _request(stream: Stream, transaction: str) -> Any:
    parts = (int(transaction[:16], 16), int(transaction[16:], 16))
    high, low = (part - 2 * _SIGN if part >= _SIGN else part for part in parts)
    name = _new("TxnId", highBits=high, lowBits=low)
    return _new("TxnRequest", streamInfo=_info(stream), txnId=name, timestamp=_NO_TIME)


def _numbers(ranges: Any) -> list[int]:
    return sorted(each.segmentId.segmentId for each in ranges)


def _named(stream: Stream, number: int) -> str:
    return f"{stream}/{number & 0xFFFFFFFF}.#epoch.{number >> 32}"


def _new(name: str, **fields: Any) -> Any:
    return _types()[name](**fields)


@cache
def _types() -> Mapping[str, Any]:
    """The classes of the messages, made when they are first needed."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415

    file = descriptor_pb2.FileDescriptorProto(name="oncebench/pravega.proto", package=_PACKAGE, syntax="proto3")
    field_type = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            added = message.field.add(name=field, number=number)
            one = kind.removeprefix("repeated ")
            added.label = field_type.LABEL_OPTIONAL if one == kind else field_type.LABEL_REPEATED
            if one in _MESSAGES:
                added.type, added.type_name = field_type.TYPE_MESSAGE, f".{_PACKAGE}.{one}"
            else:
                added.type = getattr(field_type, f"TYPE_{one.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }
