"""A real S3-compatible server for tests: versitygw over a folder.

There is also a proxy that drops answers.

The program is `$ONCEBENCH_VERSITYGW`, or `versitygw` in the path, or is built with Go into the cache (some minutes on
the first use). versitygw is a single Go program of the Apache licence; it obeys `If-None-Match: *`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from oncebench.downloads.cache import locked
from oncebench.processes.ports import LOOPBACK, free_ports

PROGRAM = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BUCKET = "bench"
LOGIN = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_REGION": "us-east-1"}
START_LIMIT_S = 60.0
_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


def program() -> str:
    """Returns the path of the server's program; skips the test if it cannot be had."""
    found = os.environ.get("ONCEBENCH_VERSITYGW") or shutil.which("versitygw")
    if found:
        return found
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        pytest.skip("needs versitygw, or Go to build it")
    with locked("versitygw") as cache:
        folder = cache / "versitygw"
        if not (folder / "versitygw").exists():
            subprocess.run([go, "install", PROGRAM], env={**os.environ, "GOBIN": str(folder)}, check=True)
        return str(folder / "versitygw")


@dataclass
class S3Server:
    """The server's process; its objects are files in `folder`."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Starts the process, and waits until it answers."""
        (self.folder / BUCKET).mkdir(parents=True, exist_ok=True)
        login = {
            "ROOT_ACCESS_KEY_ID": LOGIN["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_ACCESS_KEY": LOGIN["AWS_SECRET_ACCESS_KEY"],
        }
        command = [program(), "--port", f"{LOOPBACK}:{self.port}", "--quiet", "--keep-alive", "posix", str(self.folder)]
        self.process = subprocess.Popen(command, env={**os.environ, **login}, stdout=subprocess.DEVNULL)
        waited = threading.Event()
        for _ in range(int(START_LIMIT_S / 0.05)):
            with suppress(OSError), closing(socket.create_connection((LOOPBACK, self.port), 1)):
                return
            waited.wait(0.05)
        raise TimeoutError("the S3 server does not answer")

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server that runs inside."""
    server = S3Server(folder, free_ports(1)[0])
    server.start()
    try:
        yield server
    finally:
        server.kill()


@dataclass
class DroppingProxy:
    """Passes HTTP on, and drops answers.

    The request has reached the server, and the connection then ends.

    Attributes:
        server: where requests go.
        drops: the next requests whose answers are dropped, in this order. Each is a method, and words that the path
            contains: `["PUT", "POST uploadId="]`.
        dropped: the number of dropped answers.
    """

    server: S3Server
    drops: list[str] = field(default_factory=list)
    dropped: int = 0

    def __post_init__(self) -> None:
        self._socket = socket.create_server((LOOPBACK, 0))
        self.endpoint = f"http://{LOOPBACK}:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            asks = client.makefile("rb")
            while request := _message(asks, waits=lambda: client.sendall(_GO_ON)):
                # A connection of its own: versitygw leaves the end of a body of chunks unread.
                with socket.create_connection((LOOPBACK, self.server.port)) as server:
                    server.sendall(request)
                    answer = _message(server.makefile("rb"), empty=request.startswith(b"HEAD "))
                if self.drops and _is(request, self.drops[0]):
                    self.drops.pop(0)
                    self.dropped += 1
                    return
                client.sendall(answer)


def _is(request: bytes, wanted: str) -> bool:
    method, *words = wanted.split()
    line = request.partition(b"\r\n")[0].decode()
    return line.startswith(method) and all(word in line for word in words)


def _message(source: object, *, empty: bool = False, waits: Callable[[], None] | None = None) -> bytes:
    """Reads one request or answer; empty at the end of the connection.

    Args:
        empty: whether it is the answer to HEAD, which has a length and no body.
        waits: is called if the client sends its body only after an answer to `Expect: 100-continue`.
    """
    lines: list[bytes] = []
    length, chunked = 0, False
    while True:
        line: bytes = source.readline()  # type: ignore[attr-defined]
        if waits is not None and line.lower().startswith(b"expect:"):
            waits()
            continue
        lines.append(line)
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        chunked |= line.lower().startswith(b"transfer-encoding:") and b"chunked" in line.lower()
        if line in (b"\r\n", b""):
            break
    if chunked and not empty:
        return b"".join(lines) + b"".join(_chunks(source))
    body: bytes = source.read(length) if length and not empty else b""  # type: ignore[attr-defined]
    return b"".join(lines) + body


def _chunks(source: object) -> Iterator[bytes]:
    """Reads a body of chunks, each after a line with its length; the last one is empty."""
    size = -1
    while size:
        line: bytes = source.readline()  # type: ignore[attr-defined]
        size = int(line.split(b";")[0], 16)
        yield line
        yield source.read(size) if size else b""  # type: ignore[attr-defined]
        while (end := source.readline()) not in (b"\r\n", b""):  # type: ignore[attr-defined]
            yield end  # a trailer
        yield end
