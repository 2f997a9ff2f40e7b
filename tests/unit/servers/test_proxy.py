"""The proxy in front of a small server: it forwards, delays, drops and cuts."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from kafka.protocol.producer import ProduceResponse

from oncebench.processes.ports import free_ports, is_free
from oncebench.servers.proxy.framing import (
    END_TXN,
    PRODUCE,
    Framing,
    KafkaFraming,
    PostgresFraming,
    end_txn_error,
    is_commit,
    is_kafka,
    produce_error,
)
from oncebench.servers.proxy.tcp import Catch, Proxy

LIMIT_S = 10.0
HELD_S = 600.0
COMMIT = b"Q" + struct.pack("!I", 11) + b"COMMIT\0"
NO_ERROR, NOT_LEADER, PRODUCER_FENCED = 0, 6, 90


def kafka_request(api_key: int, correlation_id: int, version: int = 4) -> bytes:
    body = struct.pack("!hhi", api_key, version, correlation_id) + b"body"
    return struct.pack("!i", len(body)) + body


def kafka_answer(correlation_id: int, body: bytes = b"ok") -> bytes:
    return struct.pack("!ii", 4 + len(body), correlation_id) + body


class Server:
    """Answers each Kafka request with its correlation id, and records it."""

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._socket.accept()[:1], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            while request := received(client):
                self.came.append(request)
                client.sendall(kafka_answer(int.from_bytes(request[8:12])))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def exactly(end: socket.socket, count: int) -> bytes:
    """Reads `count` bytes; fewer at the end of the connection.

    A Python socket with a time limit does not block, so MSG_WAITALL would not wait.
    """
    got = b""
    while len(got) < count and (piece := end.recv(count - len(got))):
        got += piece
    return got


def received(end: socket.socket) -> bytes:
    """The next message; empty at the end of the connection."""
    head = exactly(end, 4)
    return head and head + exactly(end, int.from_bytes(head))


def ask(client: socket.socket, request: bytes) -> bytes:
    """The answer to a request; empty if the connection is lost."""
    client.sendall(request)
    try:
        return received(client)
    except ConnectionResetError:
        return b""


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(Server()) as made:
        yield made


@contextmanager
def before(port: int, framing: Framing) -> Iterator[Proxy]:
    with closing(Proxy(framing)) as made, made.open(port):
        yield made


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with before(server.port, KafkaFraming()) as made:
        yield made


class Hold:
    """The proxy's wait with a held request, which lasts until `release`."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._released, self._sleep = threading.Event(), asyncio.sleep

    async def wait(self, seconds: float) -> None:
        self.seconds.append(seconds)
        while not self._released.is_set():
            await self._sleep(0.005)

    def release(self) -> None:
        assert self.seconds == [HELD_S]
        self._released.set()


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Hold:
    made = Hold()
    monkeypatch.setattr("oncebench.servers.proxy.tcp.asyncio.sleep", made.wait)
    return made


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), LIMIT_S)


def end_txn(request: bytes) -> bool:
    return is_kafka(END_TXN, request)


def test_everything_passes_unchanged_without_a_catch(proxy: Proxy, server: Server) -> None:
    with connected(proxy) as one, connected(proxy) as other:
        for number in range(3):
            for client in (one, other):
                assert ask(client, kafka_request(END_TXN, number)) == kafka_answer(number)
        assert proxy.connections == 2
    assert set(server.came) == {kafka_request(END_TXN, number) for number in range(3)}
    wait_for(lambda: proxy.connections == 0)


def test_a_held_request_loses_its_connection_and_arrives_later(proxy: Proxy, server: Server, hold: Hold) -> None:
    catch = Catch(end_txn, held_s=HELD_S)
    proxy.catch(catch)
    with connected(proxy) as one, connected(proxy) as other:
        assert ask(one, kafka_request(PRODUCE, 1)) == kafka_answer(1)
        assert ask(one, kafka_request(END_TXN, 2)) == b""
        assert ask(other, kafka_request(END_TXN, 3)) == kafka_answer(3)
        hold.release()
        wait_for(lambda: catch.over)
    assert catch.answer == kafka_answer(2)
    assert server.came == [kafka_request(PRODUCE, 1), kafka_request(END_TXN, 3), kafka_request(END_TXN, 2)]


def test_only_the_answer_to_the_caught_request_is_lost(proxy: Proxy, server: Server) -> None:
    catch = Catch(end_txn)
    proxy.catch(catch)
    with connected(proxy) as client:
        client.sendall(kafka_request(PRODUCE, 1) + kafka_request(END_TXN, 2))
        assert (received(client), ask(client, b"")) == (kafka_answer(1), b"")
    wait_for(lambda: catch.over)
    assert (catch.request, catch.answer) == (kafka_request(END_TXN, 2), kafka_answer(2))
    assert len(server.came) == 2
    with connected(proxy) as client:
        assert ask(client, kafka_request(END_TXN, 3)) == kafka_answer(3), "only one is caught"


def test_a_cut_link_refuses_connections_and_keeps_its_port(proxy: Proxy) -> None:
    with connected(proxy) as client:
        assert ask(client, kafka_request(PRODUCE, 1))
        for _ in range(3):
            proxy.cut()
            with pytest.raises(ConnectionRefusedError):
                connected(proxy)
            assert not is_free(proxy.port), "another server could listen there"
            proxy.mend()
            with connected(proxy) as another:
                assert ask(another, kafka_request(PRODUCE, 2))
        assert ask(client, b"") == b""


@pytest.mark.parametrize("undo", [lambda proxy, catch: proxy.forget(catch), lambda proxy, _catch: proxy.cut()])
def test_a_held_request_is_never_sent_after_forget_or_cut(
    proxy: Proxy, server: Server, hold: Hold, undo: Callable[[Proxy, Catch], None]
) -> None:
    catch = Catch(end_txn, held_s=HELD_S)
    proxy.catch(catch)
    with connected(proxy) as client:
        assert ask(client, kafka_request(END_TXN, 1)) == b""
        undo(proxy, catch)
        hold.release()
        wait_for(lambda: catch.over)
    assert (catch.answer, server.came) == (None, [])


def test_a_withheld_request_never_arrives_and_neither_do_its_repeats(proxy: Proxy, server: Server) -> None:
    catch = Catch(end_txn, withheld=True)
    proxy.catch(catch)
    for number in range(1, 4):
        with connected(proxy) as client:
            assert ask(client, kafka_request(PRODUCE, number)) == kafka_answer(number)
            assert ask(client, kafka_request(END_TXN, number)) == b""
    assert (catch.request, catch.answer) == (kafka_request(END_TXN, 1), None)
    wait_for(lambda: proxy.connections == 0)
    proxy.forget(catch)
    with connected(proxy) as client:
        assert ask(client, kafka_request(END_TXN, 9)) == kafka_answer(9)
    assert server.came == [*(kafka_request(PRODUCE, number) for number in range(1, 4)), kafka_request(END_TXN, 9)]


def test_a_forgotten_catch_lets_the_request_pass(proxy: Proxy) -> None:
    catch = Catch(end_txn)
    proxy.catch(catch)
    proxy.forget(catch)
    with connected(proxy) as client:
        assert ask(client, kafka_request(END_TXN, 1)) == kafka_answer(1)
    assert catch.request is None


@contextmanager
def caught(framing: Framing, catch: Catch, request: bytes) -> Iterator[tuple[Proxy, socket.socket, socket.socket]]:
    """The proxy, the client's socket and the server's socket, after a caught request.

    The server has received the request.
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        before(server.getsockname()[1], framing) as proxy,
        connected(proxy) as client,
    ):
        proxy.catch(catch)
        client.sendall(request)
        upstream, _ = server.accept()
        upstream.settimeout(LIMIT_S)
        with upstream:
            assert exactly(upstream, len(request)) == request
            yield proxy, client, upstream


@pytest.mark.parametrize("framing", [KafkaFraming(), PostgresFraming()])
def test_an_answer_passes_if_its_catch_was_forgotten(framing: Framing) -> None:
    login = b"" if isinstance(framing, KafkaFraming) else struct.pack("!II", 8, 196608)
    request, wanted = (kafka_request(END_TXN, 1), end_txn) if not login else (COMMIT, is_commit)
    catch = Catch(wanted)
    with caught(framing, catch, login + request) as (proxy, client, upstream):
        proxy.forget(catch)
        upstream.sendall(kafka_answer(1))
        assert received(client) == kafka_answer(1)
        client.sendall(request)
        assert exactly(upstream, len(request)) == request
        upstream.sendall(kafka_answer(1))
        assert received(client) == kafka_answer(1)
    assert (catch.request, catch.answer) == (request, None)


def test_a_forgotten_catch_without_client_leaves_no_connection() -> None:
    catch = Catch(end_txn, held_s=0.0)
    with caught(KafkaFraming(), catch, kafka_request(END_TXN, 1)) as (proxy, client, upstream):
        assert ask(client, b"") == b"", "a held request loses its connection"
        for _ in range(5):
            proxy.mend()  # after this the proxy's thread waits only for the answer
        proxy.forget(catch)
        upstream.sendall(kafka_answer(1))
        wait_for(lambda: proxy.connections == 0)
    assert (catch.answer, catch.over) == (None, True)


def test_forgetting_one_catch_keeps_the_next(proxy: Proxy) -> None:
    first, second = Catch(end_txn), Catch(end_txn)
    proxy.catch(first)
    with connected(proxy) as client:
        assert ask(client, kafka_request(END_TXN, 1)) == b""
    proxy.catch(second)
    proxy.forget(first)
    with connected(proxy) as client:
        assert ask(client, kafka_request(END_TXN, 2)) == b""
    assert (first.request, second.request) == (kafka_request(END_TXN, 1), kafka_request(END_TXN, 2))


def test_the_port_is_kept_until_close_and_the_thread_ends_with_open(server: Server) -> None:
    made = Proxy(KafkaFraming())
    for _ in range(2):
        assert not is_free(made.port)
        with pytest.raises(ConnectionRefusedError):
            connected(made)
        with made.open(server.port):
            client = connected(made)
            assert ask(client, kafka_request(PRODUCE, 1)) == kafka_answer(1)
        assert ask(client, b"") == b""
        client.close()
        assert "proxy" not in {thread.name for thread in threading.enumerate()}
    made.close()
    assert is_free(made.port)


def test_a_missing_server_closes_the_clients_connection() -> None:
    (unused,) = free_ports(1)
    with before(unused, KafkaFraming()) as proxy, connected(proxy) as client:
        assert ask(client, kafka_request(PRODUCE, 1)) == b""


@pytest.mark.parametrize(
    ("kind", "body", "commits"),
    [
        (b"Q", b"COMMIT\0", True),
        (b"Q", b"COMMIT PREPARED 'a:1'\0", True),
        (b"P", b"\0COMMIT\0\0\0", True),
        (b"P", b"S_1\0commit\0\0\0", True),
        (b"P", b"_pg3_0\0COMMIT\0\0\0", False),  # only another message executes it
        (b"Q", b"PREPARE TRANSACTION 'commit'\0", False),
        (b"d", b"COMMIT\0", False),
    ],
)
def test_a_commit_to_postgres_is_recognised_in_both_query_forms(kind: bytes, body: bytes, commits: bool) -> None:
    assert is_commit(kind + struct.pack("!I", 4 + len(body)) + body) is commits


def test_requests_to_postgres_are_separated_from_the_login_on() -> None:
    sent = [
        struct.pack("!II", 8, 80877103),  # does it speak TLS?
        struct.pack("!II", 20, 196608) + b"user\0postgre",
        b"Q" + struct.pack("!I", 11) + b"BEGIN;\0",
        b"Q" + struct.pack("!I", 11) + b"COMMIT\0",
    ]
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        before(server.getsockname()[1], PostgresFraming()) as proxy,
        connected(proxy) as client,
    ):
        catch = Catch(is_commit)
        proxy.catch(catch)
        client.sendall(b"".join(sent))
        upstream, _ = server.accept()
        with upstream:
            assert exactly(upstream, sum(map(len, sent))) == b"".join(sent)
            upstream.sendall(b"C....COMMIT")
            assert ask(client, b"") == b""
        assert (catch.request, catch.answer) == (sent[-1], b"C....COMMIT")


@pytest.mark.parametrize(("version", "tags"), [(1, b""), (4, b"\0")])
def test_the_error_code_of_end_txn_is_read_in_both_formats(version: int, tags: bytes) -> None:
    for code in (NO_ERROR, PRODUCER_FENCED):
        answer = kafka_answer(7, tags + struct.pack("!ih", 0, code) + tags)
        assert end_txn_error(answer, kafka_request(END_TXN, 7, version)) == code


@pytest.mark.parametrize(("version", "tags"), [(3, b""), (8, b""), (9, b"\0"), (13, b"\0")])
def test_the_first_error_code_of_produce_is_read_in_each_format(version: int, tags: bytes) -> None:
    for codes, expected in (([NO_ERROR, NO_ERROR], NO_ERROR), ([NO_ERROR, NOT_LEADER, PRODUCER_FENCED], NOT_LEADER)):
        partitions = [
            ProduceResponse.TopicProduceResponse.PartitionProduceResponse(index=number, error_code=code, base_offset=0)
            for number, code in enumerate(codes)
        ]
        topic = ProduceResponse.TopicProduceResponse(name="out", partition_responses=partitions)
        body = bytes(ProduceResponse(responses=[topic]).encode(version=version))
        assert produce_error(kafka_answer(7, tags + body), kafka_request(PRODUCE, 7, version)) == expected
