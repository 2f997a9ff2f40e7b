"""Waits for the processes of a Spark cluster."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

from oncebench.servers.spark_cluster import START_LIMIT_S


def waited(condition: Callable[[], bool], what: str, limit_s: float = START_LIMIT_S) -> None:
    """Waits for a condition; AssertionError after `limit_s`."""
    end = monotonic() + limit_s
    while not condition():
        assert monotonic() < end, f"not within {limit_s:g} s: {what}"
        sleep(0.05)
