"""A token endpoint on loopback (RFC 6749, client credentials).

It also serves the keys by which a broker checks its tokens.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

LIFE_S = 300


class TokenServer:
    """Gives tokens to one client.

    Attributes:
        asked: the scopes of the requests that got a token.
        requests: all requests of a token.
        moved_to: another address, to which it then sends clients.
    """

    def __init__(self, port: int, folder: Path, client: str, secret: str) -> None:
        self.token_url, self.keys_url = (f"http://127.0.0.1:{port}/{name}" for name in ("token", "keys"))
        self.asked: list[str] = []
        self.requests, self.moved_to = 0, ""
        self._key = folder / "tokens.key"
        self._login = f"{client}:{secret}"
        self._client = client
        subprocess.run(["openssl", "genrsa", "-out", self._key, "2048"], capture_output=True, check=True)

    def keys(self) -> dict[str, Any]:
        """The public key, as a JSON Web Key Set."""
        printed = subprocess.run(
            ["openssl", "rsa", "-in", self._key, "-noout", "-modulus"], capture_output=True, text=True, check=True
        ).stdout
        modulus = bytes.fromhex(printed.strip().removeprefix("Modulus="))
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one", "n": _text(modulus), "e": "AQAB"}
        return {"keys": [key]}

    def answer(self, authorization: str, form: str) -> tuple[int, dict[str, Any]]:
        """The status and the body for a request of a token."""
        fields = parse_qs(form)
        if b64decode(authorization.removeprefix("Basic ")).decode() != self._login:
            return 401, {"error": "invalid_client"}
        if fields.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        scope = fields.get("scope", [""])[0]
        self.asked.append(scope)
        return 200, {"access_token": self._token(scope), "token_type": "Bearer", "expires_in": LIFE_S}

    def _token(self, scope: str) -> str:
        now = int(time.time())
        claims = {"sub": self._client, "scope": scope or "any", "iat": now - 1, "exp": now + LIFE_S}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": "one"}, claims)
        signed = ".".join(_text(json.dumps(part).encode()) for part in parts)
        signature = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", self._key], input=signed.encode(), capture_output=True, check=True
        ).stdout
        return f"{signed}.{_text(signature)}"


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


@contextmanager
def token_server(port: int, folder: Path, client: str, secret: str) -> Iterator[TokenServer]:
    """Serves until the context ends."""
    server = TokenServer(port, folder, client, secret)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith("/token"):  # a client that was sent here asks in this way
                server.requests += 1
            self._send(200, server.keys())

        def do_POST(self) -> None:
            server.requests += 1
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if server.moved_to:
                self._send(302, {}, server.moved_to)
            else:
                self._send(*server.answer(self.headers["Authorization"], form))

        def _send(self, status: int, body: dict[str, Any], location: str = "") -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Prints nothing."""

    served = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        served.shutdown()
        served.server_close()
        thread.join()
