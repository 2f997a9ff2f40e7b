"""Pages of the suite's own servers are fetched past a proxy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from oncebench.servers.pages import page


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as serving:
        Thread(target=serving.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_a_proxy_is_not_asked_for_a_page_on_loopback(name: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert page(f"{server}/json/", 10) == b"/json/"


def test_a_program_that_speaks_another_language_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"?\r\n\r\n")

        Thread(target=answer, daemon=True).start()
        with pytest.raises(OSError, match="no HTTP answer"):
            page(f"http://127.0.0.1:{other.getsockname()[1]}", 10)
