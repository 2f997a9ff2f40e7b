"""Fetches OAuth tokens for kafka-python. librdkafka and Java fetch theirs themselves.

Promise: a token is kept for most of its life. The address is http or https (`oncebench.kafka_access.security`). The
client's secret is sent to this address only: a redirection is an error.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Mapping
from http.client import HTTPException
from threading import Lock
from typing import Any
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

# A token endpoint answers in tens of milliseconds; a connection waits for it.
_LIMIT_S = 5.0
# A token is replaced when this share of its life is over, as in Java's client.
_USED_SHARE = 0.8


class _NoRedirection(HTTPRedirectHandler):
    """Refuses a redirection of a request for a token.

    Python sends the header with the secret on to the other address. librdkafka and Java do not go there.
    """

    def redirect_request(self, *_answer: Any) -> None:
        """Returns None, which makes the answer an error."""


_OPENER = build_opener(_NoRedirection)


class TokenEndpoint(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Tokens of one client (RFC 6749, 4.4: client credentials), kept for most of their life."""

    def __init__(self, url: str, client_id: str, client_secret: str, scope: str | None) -> None:
        self._url, self._scope = url, scope
        # As librdkafka and Java send it: not encoded for a URL first (sasl.oauthbearer.header.urlencode=false).
        self._login = b64encode(f"{client_id}:{client_secret}".encode()).decode()
        self._lock = Lock()
        self._token, self._good_until = "", 0.0

    @staticmethod
    def of(client: Mapping[str, Any]) -> TokenEndpoint:
        """Returns the endpoint in librdkafka's settings."""
        of = "sasl.oauthbearer."
        return TokenEndpoint(
            client[f"{of}token.endpoint.url"], client[f"{of}client.id"], client[f"{of}client.secret"],
            client.get(f"{of}scope"),
        )  # fmt: skip

    def token(self) -> str:
        """Returns a valid token.

        Raises:
            KafkaError: the endpoint gives none.
        """
        with self._lock:
            if time.monotonic() >= self._good_until:
                self._token, life_s = self._fetched()
                self._good_until = time.monotonic() + _USED_SHARE * life_s
            return self._token

    def _fetched(self) -> tuple[str, float]:
        scope = {"scope": self._scope} if self._scope else {}
        form = urlencode({"grant_type": "client_credentials", **scope}).encode()
        headers = {"Authorization": f"Basic {self._login}", "Accept": "application/json"}
        request = Request(self._url, form, headers)  # noqa: S310  http or https, see the module
        try:
            with _OPENER.open(request, timeout=_LIMIT_S) as answer:
                found = json.load(answer)
            return str(found["access_token"]), float(found.get("expires_in", 60))
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            raise KafkaError(f"the token endpoint {self._url} gives no token: {error!r}") from error
