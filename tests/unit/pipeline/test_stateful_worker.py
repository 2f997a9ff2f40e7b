"""State calls with only a status as answer do not wait, keep their order, and lose no error."""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyspark
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.proto import StateMessage_pb2 as messages
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient, StatefulProcessorHandleState
from pyspark.sql.streaming.value_state_client import ValueStateClient
from pyspark.sql.types import ArrayType, BinaryType, LongType, Row, StringType, StructField, StructType

from pipeline.spark import stateful_worker

KEY = StructType([StructField("key", StringType())])
STATE = StructType([StructField("count", LongType())])
assert stateful_worker.install()


class Server:
    """Answers state calls as the JVM does: one by one, in the order in which they arrive.

    It answers nothing before `at_least` calls have arrived, so a worker that waits for each answer would never go on.
    """

    def __init__(self, path: Path, at_least: int, failing: int | None) -> None:
        self.calls: list[str] = []
        self._at_least, self._failing = at_least, failing
        self._connection: socket.socket | None = None
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(1)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        self._connection = connection
        with connection, connection.makefile("rwb") as stream:
            waiting = []
            while header := stream.read(8):
                request = messages.StateRequest.FromString(stream.read(struct.unpack("!ii", header)[1]))
                self.calls.append(_name(request))
                answer = messages.StateResponse(statusCode=0)
                if len(self.calls) - 1 == self._failing:
                    answer = messages.StateResponse(statusCode=1, errorMessage="no room")
                waiting.append(answer.SerializeToString())
                if len(self.calls) < self._at_least:
                    continue
                for each in waiting:
                    stream.write(struct.pack("!i", len(each)) + each)
                stream.flush()
                waiting.clear()

    def hang_up(self) -> None:
        """Closes the connection as the JVM does when a task ends."""
        assert self._connection is not None
        self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)

    def close(self) -> None:
        self._thread.join(10)
        self._listening.close()


def _name(request: Any) -> str:
    while (name := request.WhichOneof("method")) and hasattr(getattr(request, name), "WhichOneof"):
        request = getattr(request, name)
        if "method" not in request.DESCRIPTOR.oneofs_by_name:
            break
    return str(name)


@contextmanager
def served(folder: Path, at_least: int, failing: int | None = None) -> Iterator[tuple[Any, ValueStateClient, Server]]:
    server = Server(folder / "state", at_least, failing)
    client = StatefulProcessorApiClient(str(folder / "state"), KEY)
    try:
        yield client, ValueStateClient(client, STATE), server
    finally:
        client.sockfile.close()
        client._client_socket.close()
        server.close()


def test_calls_without_a_value_do_not_wait(tmp_path: Path) -> None:
    with served(tmp_path, at_least=4) as (client, state, server):
        client.set_implicit_key(("a",))
        state.update("count", (1,))
        client.register_timer(5)
        assert state.get("count") is None  # the server answers only now
        assert len(server.calls) == 4


def test_calls_keep_their_order(tmp_path: Path) -> None:
    with served(tmp_path, at_least=1) as (client, state, server):
        for key in ("a", "b"):
            client.set_implicit_key((key,))
            state.get("count")
            state.update("count", (1,))
        client.set_handle_state(StatefulProcessorHandleState.DATA_PROCESSED)
        assert server.calls == [*(["setImplicitKey", "get", "valueStateUpdate"] * 2), "setHandleState"]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_the_next_call_that_waits_raises_an_earlier_error(tmp_path: Path, failing: int) -> None:
    with served(tmp_path, at_least=3, failing=failing) as (client, state, _):
        client.set_implicit_key(("a",))
        state.update("count", (1,))
        client.register_timer(5)
        with pytest.raises(PySparkRuntimeError, match="no room"):
            client.set_handle_state(StatefulProcessorHandleState.CLOSED)


def test_a_connection_stays_until_the_jvm_has_closed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateful_worker, "_ending", [])
    closed = StatefulProcessorHandleState.CLOSED
    with served(tmp_path, at_least=1) as (client, state, server):
        state.get("count")
        client.set_handle_state(closed)
        assert (server.calls, client.handle_state) == (["get"], closed), "the JVM must not stop before its task ends"
        assert client in stateful_worker._ending
        (tmp_path / "next").mkdir()
        with served(tmp_path / "next", at_least=1) as (following, _, _):
            following.set_handle_state(closed)
            assert client in stateful_worker._ending, "the JVM's end is open"
            server.hang_up()
            following.set_handle_state(closed)
            assert client not in stateful_worker._ending


def test_many_calls_without_a_value_leave_the_buffer(tmp_path: Path) -> None:
    with served(tmp_path, at_least=2001) as (client, state, server):
        for _ in range(2000):
            client.set_implicit_key(("x" * 100,))
        state.get("count")
        assert len(server.calls) == 2001


def test_rows_of_many_keys_are_one_batch() -> None:
    output = Row("key", "count")
    made = [[(iter([output(str(key), key)] * 2), StructType([*KEY.fields, *STATE.fields]))] for key in range(3)]
    (batch,) = [batch for batch, _ in stateful_worker._batches(iter(made))]
    assert batch.to_pylist() == [{"key": str(key), "count": key} for key in range(3) for _ in range(2)]


def test_a_flood_of_large_rows_of_one_key_is_sent_in_small_batches() -> None:
    megabyte, made = bytes(1_000_000), 0

    def flood() -> Iterator[Row]:
        nonlocal made
        for number in range(40):
            made += 1
            yield Row("value", "count")(megabyte, number)

    sent = 0
    schema = StructType([StructField("value", BinaryType()), StructField("count", LongType())])
    for batch, _ in stateful_worker._batches(iter([[(flood(), schema)]])):
        sent += batch.num_rows
        assert batch.nbytes < 10_000_000
        assert made == sent, "no more rows are in memory than those of a batch"
    assert sent == 40


def test_an_operator_without_rows_sends_an_empty_batch() -> None:
    made = [[(iter(()), STATE)]] * 2
    assert [batch.num_rows for batch, _ in stateful_worker._batches(iter(made))] == [0]


def test_numpy_values_of_a_users_operator_are_still_stored(tmp_path: Path) -> None:
    with served(tmp_path, at_least=1) as (client, _, _server):
        lists = StructType([StructField("seen", ArrayType(LongType()))])
        for values in ([np.int64(3)], [3]):
            assert pickle.loads(client._serialize_to_bytes(lists, (values,))) == ([3],)
            assert b"numpy" not in client._serialize_to_bytes(lists, (values,))


def test_an_unknown_pyspark_runs_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    before = StatefulProcessorApiClient._send_proto_message
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    assert not stateful_worker.install()
    assert StatefulProcessorApiClient._send_proto_message is before
