"""Fetches pages of the suite's own servers on loopback.

Promise: a request goes to the server itself. Python would send it to the proxy in `http_proxy`, which has another
loopback.
"""

from __future__ import annotations

import urllib.request
from http.client import HTTPException


def page(address: str, timeout_s: float) -> bytes:
    """Returns the content of an http address. Raises `OSError` without an answer."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(address, timeout=timeout_s) as answer:
            content: bytes = answer.read()
    except HTTPException as error:
        raise OSError(f"{address} gives no HTTP answer ({type(error).__name__})") from error
    return content
