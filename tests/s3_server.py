"""A real S3-compatible server for tests: versitygw over a folder, and a proxy that drops answers.

The program is `$ONCEBENCH_VERSITYGW`, or `versitygw` in the path, or is built with Go into the cache (some minutes on
the first use). versitygw is a single Go program of the Apache licence; it obeys `If-None-Match: *`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from oncebench.downloads.cache import locked

PROGRAM = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BUCKET = "bench"
LOGIN = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_REGION": "us-east-1"}
LOOPBACK = "127.0.0.1"
START_LIMIT_S = 60.0


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
    with closing(socket.create_server((LOOPBACK, 0))) as free:
        port = free.getsockname()[1]
    server = S3Server(folder, port)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@dataclass
class DroppingProxy:
    """Passes HTTP on, and drops answers: the request has reached the server, and the connection then ends.

    Attributes:
        server: where requests go.
        drops: the methods of the next requests whose answers are dropped, for example `["PUT", "PUT"]`.
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
        with suppress(OSError), client, socket.create_connection((LOOPBACK, self.server.port)) as server:
            asks, answers = client.makefile("rb"), server.makefile("rb")
            while request := _message(asks):
                server.sendall(request)
                answer = _message(answers)
                if self.drops and request.startswith(self.drops[0].encode()):
                    self.drops.pop(0)
                    self.dropped += 1
                    return
                client.sendall(answer)


def _message(source: object) -> bytes:
    """Reads one request or answer; empty at the end of the connection."""
    lines: list[bytes] = []
    length = 0
    while True:
        line: bytes = source.readline()  # type: ignore[attr-defined]
        lines.append(line)
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        if line in (b"\r\n", b""):
            break
    body: bytes = source.read(length) if length else b""  # type: ignore[attr-defined]
    return b"".join(lines) + body
