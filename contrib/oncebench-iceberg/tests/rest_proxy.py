"""A loopback proxy before a REST catalog: loses or changes the answers of commits."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

# (answer's code, its body), or None: the connection is closed without an answer.
Answer = tuple[int, bytes] | None
Forward = Callable[[], tuple[int, bytes]]

# A request that the catalog does not answer ends by then.
_LIMIT_S = 60


def lost(forward: Forward) -> Answer:
    """The commit arrives, and the connection breaks before the answer."""
    forward()
    return None


def never_arrives(_forward: Forward) -> Answer:
    """The connection breaks before the commit."""
    return None


def arrives_with(code: int) -> Callable[[Forward], Answer]:
    """The commit arrives, and a gateway answers this code."""

    def answer(forward: Forward) -> Answer:
        forward()
        return code, b""

    return answer


def refuses_with(code: int) -> Callable[[Forward], Answer]:
    """A gateway answers this code and does not forward the commit."""
    return lambda _forward: (code, b"")


def sent_twice(forward: Forward) -> Answer:
    """A gateway sends the commit, gets no answer in time, and sends it again."""
    forward()
    return forward()


class RestProxy(ThreadingHTTPServer):
    """Forwards requests to a catalog.

    `commits` has the actions for the next commits. Other requests are forwarded.
    """

    daemon_threads = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.commits: list[Callable[[Forward], Answer]] = []
        self.logins: list[str | None] = []  # the Authorization of each request
        self.seen: list[str] = []  # method and path of each request
        self.hands_out: dict[str, str] = {}  # settings of the table's files, in each answer with a table

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: RestProxy
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.logins.append(self.headers.get("Authorization"))
        self.server.seen.append(f"{self.command} {self.path}")
        commit = self.command == "POST" and "/tables/" in self.path and not self.path.endswith("/metrics")
        answer: Answer
        if commit and self.server.commits:
            answer = self.server.commits.pop(0)(lambda: self._forward(body))
        else:
            answer = self._forward(body)
        if answer is None:
            self.close_connection = True
            return
        code, content = answer
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_HEAD = do_DELETE = _handle  # noqa: N815  names of the base class

    def _forward(self, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=_LIMIT_S)
        try:
            headers = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            return answer.status, self._with_keys(answer.read())
        finally:
            connection.close()

    def _with_keys(self, body: bytes) -> bytes:
        """Adds what the catalog hands out with a table."""
        found = orjson.loads(body) if self.server.hands_out and body else None
        if not found or "metadata" not in found:
            return body
        return orjson.dumps({**found, "config": {**found.get("config", {}), **self.server.hands_out}})

    def log_message(self, *_: Any) -> None:
        """Keeps stderr for pytest."""


@contextmanager
def proxy_to(port: int) -> Iterator[RestProxy]:
    """A proxy to a loopback port."""
    proxy = RestProxy(port)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
