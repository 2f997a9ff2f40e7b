"""Identifies the clients of Kafka that a process keeps for later batches.

Promise: a client is used again only with the settings that it was made with: its cluster, and its login. A worker
process serves several queries, and outlives a change of the password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Settings = tuple[tuple[str, str], ...]


def settings_of(client: Mapping[str, Any]) -> Settings:
    """Returns librdkafka's settings as a key of a mapping. It contains secrets.

    A callback is left out: a task has a new copy of it, which would need a new client.
    """
    return tuple(sorted((name, str(value)) for name, value in client.items() if not callable(value)))
