"""Requests to a REST catalog on this machine go past a proxy; requests to another machine do not."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from oncebench_iceberg.catalogs.rest import RestPlace


class _Sent(Exception):
    """A request, with the proxies that it would use."""


@pytest.mark.parametrize(
    ("host", "proxied"),
    [("127.0.0.1", False), ("localhost", False), ("[::1]", False), ("mine", False), ("catalog.example", True)],
)
def test_a_proxy_is_asked_for_other_machines_only(host: str, proxied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(_self: requests.Session, _request: Any, **options: Any) -> None:
        raise _Sent("http" in options["proxies"])

    monkeypatch.setattr(requests.Session, "send", send)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "mine")
    with pytest.raises(_Sent) as sent:
        RestPlace.of(f"http://{host}:1/shop.orders").open()
    assert sent.value.args == (proxied,)
