"""kafka-python's tokens come from the endpoint, and are kept for most of their life.

An error names no secret.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from kafka.errors import KafkaError

from oncebench.kafka_access import tokens
from oncebench.kafka_access.tokens import TokenEndpoint
from oncebench.processes.ports import free_ports
from tests.integration.kafka_access.token_server import LIFE_S, TokenServer, token_server

SECRET = "canary /:+%7f3a"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TokenServer]:
    with token_server(free_ports(1)[0], tmp_path, "orders", SECRET) as served:
        yield served


def test_a_token_is_kept_for_most_of_its_life(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(tokens.time, "monotonic", lambda: now)
    endpoint = TokenEndpoint(server.token_url, "orders", SECRET, "kafka")
    assert endpoint.token() == endpoint.token()
    assert server.asked == ["kafka"]
    now += LIFE_S * 0.8
    endpoint.token()
    assert server.asked == ["kafka", "kafka"]


def test_the_secret_is_not_sent_on_to_another_address(server: TokenServer, tmp_path: Path) -> None:
    with token_server(free_ports(1)[0], tmp_path, "orders", SECRET) as other:
        server.moved_to = other.token_url
        with pytest.raises(KafkaError, match=r"gives no token.*302"):
            TokenEndpoint(server.token_url, "orders", SECRET, None).token()
        assert other.requests == 0


def test_a_refused_client_is_an_error_without_its_secret(server: TokenServer) -> None:
    endpoint = TokenEndpoint(server.token_url, "orders", "canary-wrong", None)
    with pytest.raises(KafkaError, match=f"the token endpoint {server.token_url} gives no token.*401") as refused:
        endpoint.token()
    assert "canary" not in f"{refused.value} {refused.value!r}"


def test_an_endpoint_that_does_not_speak_http_is_an_error() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        Thread(target=_answer, args=(server, b"\x15\x03\x01\x00\x02\x02\x16"), daemon=True).start()  # TLS
        endpoint = TokenEndpoint(f"http://127.0.0.1:{server.getsockname()[1]}/token", "orders", SECRET, None)
        with pytest.raises(KafkaError, match=r"gives no token.*BadStatusLine"):
            endpoint.token()


def _answer(server: socket.socket, text: bytes) -> None:
    with closing(server.accept()[0]) as connection:
        connection.recv(4096)
        connection.sendall(text)
