"""Logins of a REST catalog that pyiceberg sends outside the catalog's session.

Promise: a request for an OAuth2 token ends within the given times. A login raises only errors of requests or of
pyiceberg, whatever library fetches the token.
"""

from __future__ import annotations

import time

import requests
from pyiceberg.catalog.rest.auth import AuthManager, OAuth2AuthManager, OAuth2TokenProvider
from pyiceberg.exceptions import OAuthError, RESTError
from requests import PreparedRequest
from requests.auth import AuthBase

Times = tuple[float, float]  # s: to connect, to read an answer


class NoToken(RESTError):  # type: ignore[misc]  # mypy sees no types of pyiceberg
    """The library of a login (for example Google's) fetched no token."""


class Login(AuthBase):
    """Adds the header of a login to a request.

    Raises:
        NoToken: see the class.
        OAuthError: the answer of an OAuth2 server has no token.
        requests.RequestException: the login server refuses, or does not answer.
    """

    def __init__(self, manager: AuthManager, times: Times) -> None:
        self.auth_manager = manager  # pyiceberg reads this name when it refreshes a token after an answer 401
        if type(manager) is OAuth2AuthManager:
            manager.token_provider = _TimedTokens(manager.token_provider, times)

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        try:
            header = self.auth_manager.auth_header()
        except (requests.RequestException, RESTError):
            raise
        except Exception as error:
            raise NoToken(f"{type(error).__name__}: {error}") from error
        if header:
            request.headers["Authorization"] = header
        return request


class _TimedTokens(OAuth2TokenProvider):  # type: ignore[misc]  # mypy sees no types of pyiceberg
    """Requests OAuth2 tokens with a time-out; pyiceberg's own request waits for ever."""

    def __init__(self, other: OAuth2TokenProvider, times: Times) -> None:
        super().__init__(
            other.client_id, other.client_secret, other.token_url, other.scope, other.refresh_margin, other.expires_in
        )
        self._times = times

    def _refresh_token(self) -> None:
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        headers = {"Authorization": self._client_secret_header}
        answer = requests.post(self.token_url, data=form, headers=headers, timeout=self._times)
        answer.raise_for_status()
        found = answer.json()
        try:
            token, lasts_s = str(found["access_token"]), int(found.get("expires_in") or self.expires_in)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise OAuthError("the login server sent no token, or no lifetime of the token") from error
        self._token, self._expires_at = token, time.monotonic() + lasts_s - self.refresh_margin
