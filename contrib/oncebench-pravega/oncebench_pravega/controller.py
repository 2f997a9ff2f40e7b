"""A client of Pravega's controller, by gRPC: scopes, streams, segments and transactions.

Promise: a transaction is named by its id alone, and any process may end it. `commit` returns whether the controller
accepted the commit; an accepted commit happens even if the client dies. `state` returns how the transaction ended.

Pravega's own Python client cannot do this. A handle from its `get_txn` counts as closed from the beginning, so its
`commit` and `abort` fail before they ask the controller (pravega 0.3.8).

What can go wrong: the controller refuses a request, fails or is away (`ControllerError`: the request may have been
executed or not). The module imports gRPC only when a controller is used. A process that has used a controller must not
fork and use one in its child: gRPC does not support that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from oncebench.delivery.errors import RefusedStart

VARIABLE = "ONCEBENCH_PRAVEGA"  # the controller's address, host:port
ANSWER_S = 20.0  # a running controller needs some milliseconds

_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    # By default gRPC waits up to two minutes before it connects to the controller again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_PACKAGE = "io.pravega.controller.stream.api.grpc.v1"
_SERVICE = f"/{_PACKAGE}.ControllerService"
# The used fields of the controller's messages (Pravega's Controller.proto): field -> (number, type). An enum is an
# int32 on the wire.
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
_NO_TIME = -(1 << 63)  # "no time was noted", as in Pravega's own clients
_SIGN = 1 << 63


class ControllerError(Exception):
    """The controller refused a request, failed, or gave no answer.

    It may have executed the request or not.

    Attributes:
        call: the request.
        code: gRPC's name of the answer; UNAVAILABLE and DEADLINE_EXCEEDED if there was none.
    """

    def __init__(self, call: str, code: str, details: str) -> None:
        self.call, self.code = call, code
        super().__init__(f"{call}: {code}, {details}")


@dataclass(frozen=True)
class Stream:
    """A stream's name; `str` returns it as `scope/stream`."""

    scope: str
    name: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"

    @classmethod
    def named(cls, text: str) -> Stream:
        """Returns the stream of a text `scope/stream`.

        Raises `RefusedStart` if the text has another form.
        """
        scope, _, name = text.partition("/")
        if not scope or not name or "/" in name:
            raise RefusedStart(f"{text!r} is not a Pravega stream. Name the scope and the stream: SCOPE/STREAM.")
        return cls(scope, name)


@dataclass(frozen=True)
class Segments:
    """Names of segments in the order of their ids, and the store's token for them."""

    names: Sequence[str]
    token: str


@dataclass(frozen=True)
class Transaction:
    """An open transaction: its id (32 hexadecimal digits) and its hidden segments."""

    id: str
    segments: Segments


class Controller:
    """A connection to a controller at `host:port`."""

    def __init__(self, address: str) -> None:
        # PySpark forks this process to start the JVM. With gRPC's own handlers of forks, some 2 % of the children abort
        # before they run a program. Without them, only a child that uses gRPC itself is in danger, and none does.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        import grpc  # noqa: PLC0415

        self.address = address
        self._grpc = grpc
        self._channel = grpc.insecure_channel(address, _OPTIONS)

    def make_stream(self, stream: Stream, segments: int) -> bool:
        """Makes a scope and a stream with a fixed number of segments; returns False if refused."""
        scope = self._ask("createScope", _new("ScopeInfo", scope=stream.scope)).status
        if scope not in (_SUCCESS, _EXISTS):
            return False
        policy = _new("ScalingPolicy", scaleType=_FIXED_SEGMENTS, minNumSegments=segments)
        made = self._ask("createStream", _new("StreamConfig", streamInfo=_info(stream), scalingPolicy=policy)).status
        return bool(made == _SUCCESS)

    def segments(self, stream: Stream) -> Segments:
        """Returns the stream's present segments; none if there is no such stream."""
        try:
            found = self._ask("getCurrentSegments", _info(stream))
        except ControllerError as error:
            if error.code == "NOT_FOUND":
                return Segments((), "")
            raise
        return Segments([_named(stream, number) for number in _numbers(found.segmentRanges)], found.delegationToken)

    def home(self, segment: str) -> tuple[str, int]:
        """Returns host and port of the segment store that has one of the stream's own segments."""
        scope, name, rest = segment.split("/")
        number, _, epoch = rest.partition(".#epoch.")
        wanted = (int(epoch) << 32) + int(number)
        found = self._ask("getURI", _new("SegmentId", streamInfo=_info(Stream(scope, name)), segmentId=wanted))
        return found.endpoint, found.port

    def begin(self, stream: Stream, lease_ms: int) -> Transaction:
        """Begins a transaction; the controller aborts it if it is not ended within `lease_ms`."""
        made = self._ask("createTransaction", _new("CreateTxnRequest", streamInfo=_info(stream), lease=lease_ms))
        high, low = made.txnId.highBits % (1 << 64), made.txnId.lowBits % (1 << 64)
        name = f"{high:016x}{low:016x}"
        segments = [f"{_named(stream, number)}{_OF_TRANSACTION}{name}" for number in _numbers(made.activeSegments)]
        return Transaction(name, Segments(segments, made.delegationToken))

    def commit(self, stream: Stream, transaction: str) -> bool:
        """Whether the controller accepted the commit, by this or an earlier request."""
        return bool(self._ask("commitTransaction", _request(stream, transaction)).status == _SUCCESS)

    def abort(self, stream: Stream, transaction: str) -> bool:
        """Whether the controller accepted the abort, by this or an earlier request."""
        return bool(self._ask("abortTransaction", _request(stream, transaction)).status == _SUCCESS)

    def state(self, stream: Stream, transaction: str) -> int:
        """Returns a transaction's state; UNKNOWN if it never existed, or ended more than a day ago."""
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
            raise ControllerError(call, error.code().name, str(error.details())) from error


def own_segment(segment: str) -> str:
    """Returns the stream's segment into which a transaction's segment is merged."""
    return segment.split(_OF_TRANSACTION, maxsplit=1)[0]


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
    """Returns the classes of the messages, made at the first call."""
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
