"""Makes PySpark's `transformWithState` several times faster, with the same results.

The module also stops a leak of sockets.

A worker calls the JVM for each state operation of each key. PySpark 4.2 waits for every answer, and sends each key's
rows as an Arrow batch of its own, empty or not. Both cost more than the operator's own work.

- **Answers that are only a status** (set the key, update, register a timer) are read together with the next value.
  The JVM handles a worker's calls in the order in which they were sent. Therefore no call overtakes another.
- **Rows** of many keys go into one batch.
- **The connection for state** ends from the JVM's side. Spark's `TransformWithStateInPySparkStateServer` closes its
  socket only if the end of the task interrupts it. PySpark tells it to stop before that, so each task leaves a socket
  open in the JVM, until no descriptor is left after some hours. Here the worker sends no stop, and keeps its own end
  open until the JVM has closed the other end.

Failure mode: a call fails. The next call that waits then raises the error, with the message of the first failure. At
the end of a task the worker reads every answer that is left. So no failure is lost, and Spark fails the task before it
commits the state.

Other versions of PySpark run unchanged, because this module replaces private functions of
`pyspark.sql.streaming.stateful_processor_api_client` and `pyspark.sql.pandas.serializers`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.serializers import write_int
from pyspark.sql.pandas.serializers import ArrowStreamUDFSerializer, TransformWithStateInPySparkRowSerializer
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient, StatefulProcessorHandleState
from pyspark.sql.streaming.value_state_client import ValueStateClient
from pyspark.sql.types import StructType

KNOWN = ("4", "2")
# Many enough to make a batch's own cost (some 0.1 ms) small.
MOST_ROWS = 500
# A rejected record may have megabytes, and a flood of them may have one key. Neither may fill the worker's memory.
MOST_BYTES = 8 * 1024 * 1024
_RECEIVE = "_receive_proto_message"
# Clients of ended tasks, until the JVM has closed its end. Python would close a connection without a reference.
_ending: list[Any] = []
_PLAIN = frozenset({int, str, bytes, bool, float, type(None)})


def install() -> bool:
    """Replaces PySpark's functions in this process; returns whether this version is known."""
    if tuple(pyspark.__version__.split(".")[:2]) != KNOWN:
        return False
    client: Any = StatefulProcessorApiClient
    client.is_deferring, client.unread = False, 0
    status_of = client._receive_proto_message
    for name in [name for name in vars(client) if name.startswith(_RECEIVE)]:
        setattr(client, name, _after_unread(getattr(client, name), status_of))
    client._receive_proto_message = _or_later(client._receive_proto_message)
    client._send_proto_message = _send
    client.set_handle_state = _ended_by_the_jvm(client.set_handle_state, status_of)
    client._serialize_to_bytes = _unless_plain(client._serialize_to_bytes)
    for name in ("set_implicit_key", "register_timer", "delete_timer"):
        setattr(client, name, _deferred(getattr(client, name), lambda client: client))
    states: Any = ValueStateClient
    for name in ("update", "clear"):
        setattr(states, name, _deferred(getattr(states, name), lambda state: state._stateful_processor_api_client))
    serializer: Any = TransformWithStateInPySparkRowSerializer
    serializer.dump_stream = _dump_stream
    return True


def _deferred(call: Callable[..., None], client_of: Callable[[Any], Any]) -> Callable[..., None]:
    """Returns a call that does not wait for its answer."""

    @wraps(call)
    def deferred(owner: Any, *arguments: Any) -> None:
        client = client_of(owner)
        client.is_deferring = True
        try:
            call(owner, *arguments)
        finally:
            client.is_deferring = False

    return deferred


def _or_later(receive: Callable[[Any], tuple[int, str, bytes]]) -> Callable[[Any], tuple[int, str, bytes]]:
    """Returns a `receive` that returns at once in a deferred call, and leaves the answer unread."""

    def received(client: Any) -> tuple[int, str, bytes]:
        if client.is_deferring:
            client.unread += 1
            return 0, "", b""
        return receive(client)

    return received


def _after_unread(
    receive: Callable[[Any], Any], status_of: Callable[[Any], tuple[int, str, bytes]]
) -> Callable[[Any], Any]:
    """Returns a `receive` that first reads the answers of deferred calls."""

    def received(client: Any) -> Any:
        _read_answers(client, status_of)
        return receive(client)

    return received


def _read_answers(client: Any, status_of: Callable[[Any], tuple[int, str, bytes]]) -> None:
    while client.unread:
        client.unread -= 1
        status, message, _ = status_of(client)
        if status != 0:
            raise PySparkRuntimeError(f"Error of an earlier state call: {message}")


def _ended_by_the_jvm(
    set_state: Callable[[Any, Any], None], status_of: Callable[[Any], tuple[int, str, bytes]]
) -> Callable[[Any, Any], None]:
    """Returns a `set_handle_state` that does not report the end to the JVM.

    The function still raises the errors of earlier calls.
    """

    @wraps(set_state)
    def set_handle_state(client: Any, state: StatefulProcessorHandleState) -> None:
        if state != StatefulProcessorHandleState.CLOSED:
            set_state(client, state)
            return
        client.sockfile.flush()
        _read_answers(client, status_of)
        client.handle_state = state
        _ending[:] = [*(other for other in _ending if not _is_closed(other._client_socket)), client]

    return set_handle_state


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed its end, or this one is closed."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _send(client: Any, message: bytes) -> None:
    """Writes a call; a deferred call stays in the buffer until the next call that waits."""
    write_int(0, client.sockfile)  # type: ignore[no-untyped-call]  # the version of the protocol
    write_int(len(message), client.sockfile)  # type: ignore[no-untyped-call]
    client.sockfile.write(message)
    if not client.is_deferring:
        client.sockfile.flush()


def _unless_plain(serialize: Callable[..., bytes]) -> Callable[..., bytes]:
    """Returns a `serialize` without PySpark's search for numpy and pandas types in plain values."""

    @wraps(serialize)
    def serialized(client: Any, schema: StructType, data: tuple[Any, ...]) -> bytes:
        if all(map(_is_plain, data)):
            plain: bytes = client.pickleSer.dumps(schema.toInternal(data))
            return plain
        return serialize(client, schema, data)

    return serialized


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is list and _PLAIN.issuperset(map(type, value)))


def _dump_stream(serializer: ArrowStreamUDFSerializer, iterator: Iterator[Any], stream: Any) -> None:
    """Sends the operator's rows; one batch has the rows of many keys."""
    ArrowStreamUDFSerializer.dump_stream(serializer, _batches(iterator), stream)  # type: ignore[no-untyped-call]


def _batches(iterator: Iterator[Any]) -> Iterator[tuple[pa.RecordBatch, Any]]:
    rows: list[dict[str, Any]] = []
    kind: Any = None
    size = 0
    for ((made, spark_type),) in iterator:
        kind = kind or to_arrow_type(spark_type, timezone="UTC", prefers_large_types=False)
        for row in made:  # here the operator handles a key
            rows.append(row.asDict(True))
            size += sum(len(part) for part in row if type(part) is bytes)
            if len(rows) >= MOST_ROWS or size >= MOST_BYTES:
                yield pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(kind))), kind
                rows, size = [], 0
    yield pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(kind))), kind
